"""Functions of booleans and integers whose results are floats: PyTorch/XLA converts some types for some functions,
fails for others when the computation is compiled, and compares a boolean with infinity as a boolean."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


@hands_on(Plain.FLOATING)
def of_floats(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """As torch does: booleans and integers become torch's default type."""
    if values.is_floating_point() or values.is_complex():
        return kernel(values, *rest, **named)
    import torch

    return kernel(values.to(torch.get_default_dtype()), *rest, **named)


def atan2(kernel: Callable[..., Any], values: torch.Tensor, other: torch.Tensor) -> Any:
    import torch

    dtype = torch.result_type(values, other)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    tensors = [item for item in (values, other) if isinstance(item, torch.Tensor)]
    both = [torch.as_tensor(item, dtype=dtype, device=tensors[0].device) for item in (values, other)]
    return kernel(*both)


@hands_on(Plain.FLOATING)
def never(kernel: Callable[..., Any], values: torch.Tensor) -> Any:
    """What booleans and integers are not, and complex numbers are where one of their parts is."""
    if values.is_floating_point():
        return kernel(values)
    import torch

    if values.is_complex() and values.numel() > 0:
        return kernel(torch.view_as_real_copy(values)).any(-1)

    return torch.zeros(values.shape, dtype=torch.bool, device=values.device)


def dropout_backward(gradient: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    return gradient * (mask.to(gradient.dtype) * scale)


REPLACED: dict[str, Callable[..., Any]] = {"native_dropout_backward": dropout_backward}
FLOATS = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
)
"""Functions of one argument that give floats."""


@hands_on(Plain.FLOATING)
def acosh(kernel: Callable[..., Any], values: torch.Tensor) -> Any:
    """Of complex numbers the principal value, whose real part is not negative."""
    import torch

    if not values.is_complex():
        return of_floats(kernel, values)
    made = torch.log(values + torch.sqrt(values + 1) * torch.sqrt(values - 1))
    real, imaginary = torch.view_as_real_copy(made).abs().unbind(-1)
    sign = torch.view_as_real_copy(values).select(-1, 1)
    return torch.view_as_complex_copy(torch.stack((real, imaginary.copysign(sign)), -1))


def logarithm(base: int) -> Callable[..., Any]:
    """``log2`` or ``log10``, whose constant PyTorch/XLA has as a float32, also for float64."""

    @hands_on(Plain.FLOATING | Plain.NO_DOUBLE)
    def wrapper(kernel: Callable[..., Any], values: torch.Tensor) -> Any:
        import torch

        if values.dtype != torch.float64:
            return of_floats(kernel, values)
        return torch.log(values) / math.log(base)

    return wrapper


WRAPPED: dict[str, Callable[..., Any]] = dict.fromkeys(FLOATS, of_floats)
WRAPPED |= {"acosh": acosh, "log2": logarithm(2), "log10": logarithm(10)}
WRAPPED |= {"atan2": atan2, "isnan": never, "isneginf": never, "isposinf": never, "isinf": never}
