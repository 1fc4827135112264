"""Shifts of integers. PyTorch/XLA multiplies or divides by a power of two, which has to be a number of the type that is
shifted, and moves zeros into negative integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch


def bitwise(kernel: Callable[..., Any], values: Any, other: Any) -> Any:
    """``bitwise_left_shift`` and its opposite, in the type that torch gives the result; either may be a number."""
    import torch

    dtype = torch.result_type(values, other)
    if dtype.is_floating_point or dtype.is_complex:
        raise NotImplementedError(f"a shift needs integers, got a {dtype}")
    if not isinstance(other, torch.Tensor):
        bits = 8 * dtype.itemsize  # not all numbers are of the type; by any that is too large nothing is left
        other = _xla.number(other if 0 <= other < bits else bits, dtype, values.device)
    elif not isinstance(values, torch.Tensor):
        values = _xla.number(values, torch.int64, other.device)
    return kernel(values.to(dtype), other.to(dtype))


def left(values: torch.Tensor, other: Any) -> torch.Tensor:
    import torch

    return torch.bitwise_left_shift(values, other)


def right(values: torch.Tensor, other: Any) -> torch.Tensor:
    import torch

    return torch.bitwise_right_shift(values, other)


REPLACED: dict[str, Callable[..., Any]] = {
    "__lshift__.Scalar": left,
    "__lshift__.Tensor": left,
    "__rshift__.Scalar": right,
    "__rshift__.Tensor": right,
}
WRAPPED: dict[str, Callable[..., Any]] = {"bitwise_left_shift.Tensor": bitwise, "bitwise_right_shift.Tensor": bitwise}
