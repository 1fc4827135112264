"""16-bit floats: torch computes with them in float32, and rounds the result. PyTorch/XLA rounds after each operation
of which it makes an operator, and few digits are left of differences, as in ``gelu`` below zero, and of sums."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _small
from ptpathways.frontend.xla._plain import Plain, hands_on, of_wrapper

if TYPE_CHECKING:
    import torch


def is_short(dtype: torch.dtype) -> bool:
    """Whether it is a 16-bit float."""
    return dtype.itemsize == 2 and dtype.is_floating_point


@hands_on(Plain.WIDE)
def in_float32(kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """``kernel`` of float32; its results in the type that was given."""
    import torch
    from torch.utils._pytree import tree_map_only

    short = next((item.dtype for item in arguments if isinstance(item, torch.Tensor) and is_short(item.dtype)), None)
    if short is None:
        return kernel(*arguments, **named)
    wide = [item.float() if isinstance(item, torch.Tensor) and is_short(item.dtype) else item for item in arguments]
    return tree_map_only(
        torch.Tensor, lambda made: made.to(short) if made.dtype == torch.float32 else made, kernel(*wide, **named)
    )


@hands_on(Plain.WIDE | Plain.SAME_TYPES)
def cross_entropy_of_two(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """``binary_cross_entropy`` and its gradient: a weight may be of any type, and changes that of no result."""
    import torch

    values = next(item for item in arguments if isinstance(item, torch.Tensor))
    return in_float32(
        kernel, *(item.to(values.dtype) if isinstance(item, torch.Tensor) else item for item in arguments)
    )


def of_float32(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """``wrapper``, to which 16-bit floats come as float32; other calls are plain where it says so."""
    plain = of_wrapper(wrapper)

    def wrapped(kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return in_float32(functools.partial(wrapper, kernel), *arguments, **named)

    return wrapped if plain is None else hands_on(plain | Plain.WIDE)(wrapped)


def wider(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """``kernel`` of float32, or of ``dtype`` where that is wider; the result in ``dtype``, or else in the type that was
    given."""
    import torch

    dtype = named.pop("dtype", None) or values.dtype
    if not is_short(dtype):  # each value is one of them before they are added up
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


@hands_on(Plain.FLOATING | Plain.WIDE | Plain.WITH_DIMENSIONS)
def softmax(kernel: Callable[..., Any], values: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    """
    Raises:
        NotImplementedError: of integers or booleans.
    """
    if not values.is_floating_point() and not values.is_complex():
        raise NotImplementedError(
            f"softmax is of floats, got a tensor of {values.dtype}; convert it (.float()), or name a dtype="
        )
    if is_short(values.dtype) and values.dim() > 0:
        found = kernel(values.float(), dim, False)
        return found if half_to_float else found.to(values.dtype)
    return _small.scalar_as_vector(kernel, values, dim, half_to_float)


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


WRAPPED: dict[str, Callable[..., Any]] = dict.fromkeys(
    (
        "elu",
        "hardsigmoid",
        "hardswish",
        "leaky_relu",
        "leaky_relu_backward",
        "lerp.Scalar",
        "lerp.Tensor",
        "mse_loss_backward",
        "silu",
        "silu_backward",
        "softplus",
        "softplus_backward",
    ),
    in_float32,
)
WRAPPED |= {
    "binary_cross_entropy": cross_entropy_of_two,
    "binary_cross_entropy_backward": cross_entropy_of_two,
    "_log_softmax": softmax,
    "_softmax": softmax,
    "_log_softmax_backward_data": softmax_backward,
    "_softmax_backward_data": softmax_backward,
    "convolution_backward_overrideable": convolution_backward,
    "sum": summed_up,
    "sum.dim_IntList": summed,
}
WRAPPED |= {name: of_float32(_small.running(name)) for name in ("cumprod", "cumsum")}
