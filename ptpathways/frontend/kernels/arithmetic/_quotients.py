"""Quotients that are rounded to integers. PyTorch/XLA divides integers as float32, which has 24 bits for their 64, and
rounds a quotient of floats that has been rounded already: ``1.0 // 0.1`` is 9."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.arithmetic import _precision
from ptpathways.frontend.kernels.arithmetic._mixed_types import as_number, common, converted
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch


def divided(kernel: Callable[..., Any], values: Any, other: Any, **named: Any) -> Any:
    """``floor_divide``, and ``div`` with a rounding. Either of the two may be a number.

    An integer divided by an element that is zero gives -1, because a device cannot raise.

    Raises:
        RuntimeError: integers are divided by the number zero.
    """
    import torch

    mode = named.get("rounding_mode", "floor")
    dtype = torch.result_type(values, other)
    floats = dtype.is_floating_point
    wide = torch.float32 if _precision.is_short(dtype) else dtype  # also of a number, which torch does not round before
    whole = not floats and not dtype.is_complex and dtype != torch.bool
    if not isinstance(values, torch.Tensor):
        values = _xla.number(as_number(values, dtype), dtype, other.device)
    elif not isinstance(other, torch.Tensor):
        if whole:
            _check_divisor(other)
        other = _xla.number(as_number(other, wide), wide, values.device)
    if mode is not None and not (whole or floats):
        raise RuntimeError(f"a quotient that is rounded is of integers or floats, got {dtype}; convert them (.float())")
    if mode is None:
        return kernel(values, other, **named)
    if whole:
        return _of_integers(values.to(dtype), other.to(dtype), mode == "floor")
    values, other = values.to(wide), other.to(wide)
    return (_floor(values, other) if mode == "floor" else torch.trunc(values / other)).to(dtype)


def remainder(kernel: Callable[..., Any], values: Any, other: Any) -> Any:
    """Of floats it is made of ``fmod``, as torch makes it: PyTorch/XLA's is no number where ``other`` is infinite.

    Of int8 PyTorch/XLA computes uint8 and says that it is int8; what the same computation makes of it is wrong.

    Raises:
        RuntimeError: integers are divided by the number zero.
    """
    import torch

    dtype = common((values, other))
    if not dtype.is_floating_point:
        if not isinstance(other, torch.Tensor):
            _check_divisor(other)
        right = torch.int16 if dtype == torch.int8 else dtype
        return kernel(*(item.to(right) for item in converted((values, other), dtype))).to(dtype)
    wide = torch.float32 if _precision.is_short(dtype) else dtype
    values, other = converted((values, other), wide)
    rest = torch.fmod(values, other)
    return torch.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest).to(dtype)


def remainder_by_number(kernel: Callable[..., Any], values: torch.Tensor, other: Any) -> Any:
    return remainder(_xla.former("remainder.Tensor"), values, other)


def fmod_by_number(kernel: Callable[..., Any], values: torch.Tensor, other: Any) -> Any:
    """
    Raises:
        RuntimeError: integers are divided by the number zero.
    """
    import torch

    dtype = torch.result_type(values, other)
    if not (dtype.is_floating_point or dtype.is_complex or isinstance(other, torch.Tensor)):
        _check_divisor(other)
    return kernel(values.to(dtype), as_number(other, dtype))


def _check_divisor(number: Any) -> None:
    if number == 0:
        raise RuntimeError("ZeroDivisionError: integers need a divisor that is not zero, got the number 0")


def _floor(values: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """As torch does: without the remainder the quotient is whole, but for its rounding."""
    import torch

    plain = values / other
    rest = torch.fmod(values, other)
    quotient = (values - rest) / other
    quotient = torch.where((rest != 0) & ((rest < 0) != (other < 0)), quotient - 1, quotient)
    below = torch.floor(quotient)
    found = torch.where(quotient - below > 0.5, below + 1, below)
    found = torch.where(quotient != 0, found, plain * 0)  # which has the sign
    return torch.where(other == 0, plain, found)


def _of_integers(values: torch.Tensor, other: torch.Tensor, floor: bool) -> torch.Tensor:
    if values.shape != other.shape and values.dim() > 0 and other.dim() > 0:
        import torch

        values, other = torch.broadcast_tensors(values, other)
    computation = _computation(values.dtype, values.shape, other.shape, floor)
    (found,) = _xla.binding()._xla_user_computation("xla::_op_quotient", (values, other), computation)
    result: torch.Tensor = found
    return result


@functools.lru_cache(maxsize=1024)
def _computation(dtype: torch.dtype, shape: torch.Size, other_shape: torch.Size, floor: bool) -> Any:
    """XLA's division of integers, which none of PyTorch/XLA's operations is."""
    from torch_xla.core import xla_builder

    names = {"uint8": "u8", "int8": "s8", "int16": "s16", "int32": "s32", "int64": "s64"}
    name = names[str(dtype).removeprefix("torch.")]
    builder: Any = xla_builder
    return builder.create_computation(
        "floor" if floor else "trunc",
        _floored if floor else lambda values, other: values / other,
        [builder.Shape.create(name, sizes) for sizes in (shape, other_shape)],
    )


def _floored(values: Any, other: Any) -> Any:
    """Of operations of XLA's builder."""
    quotient, rest = values / other, values % other
    zero = rest.zeros_like()
    below = (rest != zero) & ((rest < zero) != (other < zero))
    return quotient - below.select(rest.ones_like(), zero)


WRAPPED: dict[str, Callable[..., Any]] = {
    "div.Tensor_mode": divided,
    "floor_divide": divided,
    "fmod.Scalar": fmod_by_number,
    "remainder.Scalar": remainder_by_number,
    "remainder.Tensor": remainder,
}
