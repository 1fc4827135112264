"""Elements that a mask chooses, where no shape hangs on how many they are.

PyTorch/XLA's ``masked_scatter`` makes shapes that only the step knows, of which XLA knows few operations, and torch
computes its gradient by ``masked_select``, which has such a shape too. Here a running count says which element of the
source a place takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels import _out_of_range

if TYPE_CHECKING:
    import torch


def _order(mask: torch.Tensor) -> torch.Tensor:
    """At each chosen place, how many are chosen before it. Flat."""
    return mask.flatten().cumsum(0) - 1


def masked_scatter(values: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """``values`` with the elements of ``source``, in order, where ``mask`` is; NaN where ``source`` has too few."""
    import torch

    values, mask = torch.broadcast_tensors(values, mask)
    if values.numel() == 0:
        return values.clone()
    order, count = _order(mask), source.numel()
    if count == 0:
        taken, out = values, mask
    else:
        taken = source.flatten()[order.clamp(0, count - 1)].view(values.shape)
        out = _out_of_range.outside(order, count).view(values.shape) & mask
    return torch.where(mask, _out_of_range.put_out(taken, out), values)


def masked_scatter_backward(gradient: torch.Tensor, mask: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The gradient of ``source``, of shape ``sizes``."""
    import torch

    gradient, mask = torch.broadcast_tensors(gradient, mask)
    count = math.prod(sizes)
    nothing = torch.zeros(count, dtype=gradient.dtype, device=gradient.device)
    if count == 0 or gradient.numel() == 0:
        return nothing.view(sizes)
    order = _order(mask)
    here = mask.flatten() & ~_out_of_range.outside(order, count)
    return nothing.index_add(0, order.clamp(0, count - 1), gradient.flatten().masked_fill(~here, 0)).view(sizes)


REPLACED: dict[str, Callable[..., Any]] = {
    "masked_scatter": masked_scatter,
    "masked_scatter_backward": masked_scatter_backward,
}
