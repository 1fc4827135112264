"""Gradients that autograd keeps have memory of their own.

Autograd takes the gradient that a parameter gets over as its ``grad``, without a copy, if nobody else has it and its
elements lie as the parameter's. PyTorch/XLA says of every tensor that they do. So after ``p.sum().backward()`` the
``grad`` was a number that is expanded to the parameter's shape, and what was written to it in place, as the next
backward pass does, was summed up over all elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.memory import _views
from ptpathways.frontend.slices import _buffers
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch

_KEEPER = "torch::autograd::AccumulateGrad"


@hands_on(Plain.NO_GRADIENT)
def detach(kernel: Callable[..., Any], values: torch.Tensor) -> Any:
    """A copy of a gradient that autograd takes over, if it is a view that repeats elements or others have its memory.

    Autograd calls ``detach`` of what it takes over; of what it does not, it makes a copy itself.
    """
    return values.clone() if _is_to_be_copied(values) else kernel(values)


def _is_to_be_copied(values: torch.Tensor) -> bool:
    import torch

    node: Any = torch._C._current_autograd_node()
    if node is None or node.name() != _KEEPER or not _views.is_view(values):
        return False
    if node.variable is values or node.variable.grad is not None:  # a hook of the user's asks
        return False
    return not _buffers.is_alone(values) or _views.may_repeat(values)


WRAPPED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {"detach": detach}
