"""16-bit floats: torch adds them up in float32. PyTorch/XLA does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels import _small
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


def is_short(dtype: torch.dtype) -> bool:
    """Whether it is a 16-bit float."""
    return dtype.itemsize == 2 and dtype.is_floating_point


def wider(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """``kernel`` of float32; the result in ``dtype``, or else in the type that was given."""
    import torch

    dtype = named.pop("dtype", None) or values.dtype
    if not dtype.is_floating_point:  # each value is one of them before they are added up
        return kernel(values.to(dtype), *rest, **named).to(dtype)
    rest = tuple(item.float() if isinstance(item, torch.Tensor) and is_short(item.dtype) else item for item in rest)
    return kernel(values.float(), *rest, **named).to(dtype)


@hands_on(Plain.WIDE | Plain.WITH_DIMENSIONS | Plain.DIMENSIONS_NAMED)
def summed(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """``sum`` over some dimensions."""
    rest = (_small.dimensions(values, rest[0]), *rest[1:])
    if is_short(values.dtype) and values.dim() > 0:
        return wider(kernel, values, *rest, **named)
    return _small.scalar_as_vector(kernel, values, *rest, **named)


@hands_on(Plain.WIDE)
def summed_up(kernel: Callable[..., Any], values: torch.Tensor, **named: Any) -> Any:
    """``sum`` of all."""
    short = is_short(values.dtype) and values.dim() > 0
    return wider(kernel, values, **named) if short else kernel(values, **named)


@hands_on(Plain.WIDE | Plain.WITH_DIMENSIONS)
def softmax_backward(
    kernel: Callable[..., Any], gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> Any:
    if is_short(gradient.dtype) and gradient.dim() > 0:
        import torch

        return kernel(gradient.float(), output.float(), dim, torch.float32).to(gradient.dtype)
    return _small.scalar_as_vector(kernel, gradient, output, dim, input_dtype)


@hands_on(Plain.WIDE)
def convolution_backward(kernel: Callable[..., Any], gradient: torch.Tensor, *rest: Any) -> Any:
    """The gradients of values, weight and bias. The bias's is the sum over batch and positions, of thousands of terms:
    a sum of ones that is kept in bfloat16 stops at 256."""
    *others, (of_values, of_weight, of_bias) = rest
    if not of_bias or not is_short(gradient.dtype):
        return kernel(gradient, *rest)
    first, second, _ = kernel(gradient, *others, [of_values, of_weight, False])
    return first, second, gradient.sum([dim for dim in range(gradient.dim()) if dim != 1])


WRAPPED: dict[str, Callable[..., Any]] = {
    "_log_softmax_backward_data": softmax_backward,
    "_softmax_backward_data": softmax_backward,
    "convolution_backward_overrideable": convolution_backward,
    "sum": summed_up,
    "sum.dim_IntList": summed,
}
