"""Operands on the CPU, of operations of elements: they are brought to the device of the others; and operands of several
shapes, of gradients: they are broadcast.

PyTorch/XLA's kernels do the first for some operations (``x + y``), refuse the tensor for others, and ``clamp`` drops a
bound that is one. The second is what ``torch.func.vmap`` makes of a gradient, as in ``jacrev``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla._plain import Plain, hands_on, of_wrapper

if TYPE_CHECKING:
    import torch

Kernel = Callable[..., Any]

ACCEPTED = (
    *(f"{name}.Tensor" for name in ("eq", "ne", "lt", "le", "gt", "ge", "clamp", "clamp_min", "clamp_max")),
    *("maximum", "minimum", "logical_and", "logical_or", "logical_xor", "atan2", "where.self"),
    *("div.Tensor", "div.Tensor_mode", "floor_divide", "remainder.Tensor", "fmod.Tensor", "pow.Tensor_Tensor"),
    *("add.Tensor", "sub.Tensor", "rsub.Tensor", "mul.Tensor", "addcmul", "addcdiv", "lerp.Scalar", "lerp.Tensor"),
    *("xlogy.Tensor", "masked_fill.Scalar", "masked_fill.Tensor", "index_fill.int_Tensor"),
    *(f"{name}{part}" for name in ("mse_loss", "smooth_l1_loss", "binary_cross_entropy") for part in ("", "_backward")),
)
"""Operations that compute nothing but their results, and wait for no value, by torch's names: a refused call is made
twice."""

REFUSED_UNLIKE = ("leaky_relu_backward", "sigmoid_backward")
"""Gradients whose kernels refuse two shapes at the call; what the wrapper hands on is handed on until then."""
TAKEN_UNLIKE = ("hardshrink_backward", "softplus_backward", "softshrink_backward")
"""Those that give the result another shape, or fail when it is compiled."""


def brought(wrapper: Kernel) -> Kernel:
    """``wrapper`` of an operation of ``ACCEPTED``; what it hands on is handed on until PyTorch/XLA refuses it."""

    def of_one_device(kernel: Kernel, *arguments: Any, **named: Any) -> Any:
        return wrapper(kernel, *_on_device(arguments), **named)

    plain = of_wrapper(wrapper)
    return of_one_device if plain is None else hands_on(plain | Plain.UNTIL_REFUSED)(of_one_device)


def brought_to_replaced(replacement: Kernel) -> Kernel:
    """As ``brought``, for a kernel that has taken the place of PyTorch/XLA's."""

    def of_one_device(*arguments: Any, **named: Any) -> Any:
        return replacement(*_on_device(arguments), **named)

    return of_one_device


def alike(wrapper: Kernel, refused: bool) -> Kernel:
    """``wrapper`` of a gradient, whose first two arguments are tensors."""

    def of_one_shape(kernel: Kernel, one: torch.Tensor, other: torch.Tensor, *rest: Any, **named: Any) -> Any:
        if one.shape != other.shape:
            import torch

            shape = torch.broadcast_shapes(one.shape, other.shape)
            one, other = (torch.expand_copy(tensor, shape) for tensor in (one, other))
        return wrapper(kernel, one, other, *rest, **named)

    plain = of_wrapper(wrapper) if refused else None
    return of_one_shape if plain is None else hands_on(plain | Plain.UNTIL_REFUSED)(of_one_shape)


def _on_device(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    import torch

    devices: set[torch.device] = {item.device for item in arguments if isinstance(item, torch.Tensor)}
    if len(devices) < 2:
        return arguments
    device = next(device for device in devices if device.type == "xla")
    return tuple(
        item.to(device) if isinstance(item, torch.Tensor) and item.device.type == "cpu" else item for item in arguments
    )
