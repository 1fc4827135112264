"""16-bit floats: torch adds them up, and divides with rounding, in float32. PyTorch/XLA does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend._kernels import _small

if TYPE_CHECKING:
    import torch


def is_short(dtype: torch.dtype) -> bool:
    """Whether it is a 16-bit float."""
    return dtype.itemsize == 2 and dtype.is_floating_point


def wider(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """``kernel`` of float32; the result in ``dtype``, or else in the type that was given."""
    import torch

    dtype = named.pop("dtype", None) or values.dtype
    rest = tuple(item.float() if isinstance(item, torch.Tensor) and is_short(item.dtype) else item for item in rest)
    return kernel(values.float(), *rest, **named).to(dtype)


def summed(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    if is_short(values.dtype) and values.dim() > 0:
        return wider(kernel, values, *rest, **named)
    return _small.scalar_as_vector(kernel, values, *rest, **named) if rest else kernel(values, **named)


def divided(kernel: Callable[..., Any], values: torch.Tensor, other: Any, **named: Any) -> Any:
    """A quotient that is rounded to an integer."""
    import torch

    if not isinstance(other, torch.Tensor):
        other = torch.full((), other, dtype=torch.result_type(values, other), device=values.device)
    if is_short(values.dtype) and is_short(other.dtype):
        left, right = values.float(), other.float()
        quotient = kernel(left, right, **named)
        if named.get("rounding_mode", "floor") == "floor":  # a quotient too small for a float is rounded down, too
            rest = left - quotient * right
            below = (rest != 0) & ((rest < 0) != (right < 0)) & (quotient == 0)
            quotient = torch.where(below, quotient - 1, quotient)
        return quotient.to(torch.promote_types(values.dtype, other.dtype))
    return kernel(values, other, **named)


def softmax_backward(
    kernel: Callable[..., Any], gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> Any:
    if is_short(gradient.dtype) and gradient.dim() > 0:
        import torch

        return kernel(gradient.float(), output.float(), dim, torch.float32).to(gradient.dtype)
    return _small.scalar_as_vector(kernel, gradient, output, dim, input_dtype)


WRAPPED: dict[str, Callable[..., Any]] = {
    "_log_softmax_backward_data": softmax_backward,
    "_softmax_backward_data": softmax_backward,
    "div.Tensor_mode": divided,
    "floor_divide": divided,
    "sum": summed,
    "sum.dim_IntList": summed,
}
