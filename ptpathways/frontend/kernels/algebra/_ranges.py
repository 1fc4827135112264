"""Tensors made of numbers: PyTorch/XLA rounds ranges of integers otherwise, takes float32 for float64 there, and adds a
fractional step up until it reaches the end, often once too often; filled with a complex number they are complex128."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _refusals
from ptpathways.frontend.kernels.memory import _copies
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Computed by the client, which has all it needs, and uploaded."""
    import torch

    return torch.linspace(start, end, steps, dtype=dtype).to(device or "xla")


def arange(
    start: float,
    end: float,
    step: float = 1,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """By whole steps on the device; by others, and of numbers that the type does not have, as ``linspace``: PyTorch/XLA
    makes 253 of -3 among uint8 before it counts, and adds 1 to 2**53, a float64, without end.

    Raises:
        RuntimeError: int64 by a step of less than 1, which ends the process of eager PyTorch.
    """
    import torch

    numbers = (start, end, step)
    if dtype is None:
        dtype = torch.get_default_dtype() if any(isinstance(item, float) for item in numbers) else torch.int64
    if all(float(item).is_integer() for item in numbers) and _has(dtype, *numbers):
        made: torch.Tensor = torch.empty(0, dtype=dtype, device=device or "xla")
        return torch.arange(*numbers, out=made)
    if dtype == torch.int64 and int(step) == 0:
        raise RuntimeError(f"step must be nonzero: {step} among {dtype} is 0")
    return torch.arange(*numbers, dtype=dtype).to(device or "xla")


def _has(dtype: torch.dtype, *numbers: float) -> bool:
    """Whether a type has these whole numbers; ranges of floats are counted in float64."""
    import torch

    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return all(abs(number) < 2**53 for number in numbers)
    limits = torch.iinfo(dtype)
    return all(limits.min <= number <= limits.max for number in numbers)


def full(
    kernel: Callable[..., Any],
    size: Sequence[int],
    fill_value: complex,
    *,
    dtype: torch.dtype | None = None,
    **named: Any,
) -> Any:
    """A single number gets a buffer of its own, as those that are uploaded do (``_copies.alone``).

    Raises:
        RuntimeError: the type has no such number.
    """
    import torch

    device = named.get("device")
    if device is not None and dtype is not None and _copies.is_wide_unsigned(dtype):
        return torch.full(size, fill_value, dtype=dtype).to(device)  # PyTorch/XLA has no operation that fills those
    if dtype is not None:
        _refusals.check_holds(dtype, fill_value)

    if dtype is None and isinstance(fill_value, complex):
        dtype = torch.get_default_dtype().to_complex()
    if not size and device is not None:
        made = torch.full((), fill_value, dtype=dtype)
        if _copies.is_to_be_alone(made.dtype):
            return _copies.alone(made, made.dtype, device)
    return kernel(size, fill_value, dtype=dtype, **named)


@hands_on(Plain.WIDE)
def filled(kernel: Callable[..., Any], values: torch.Tensor, number: complex) -> Any:
    """Of other types PyTorch/XLA refuses what they do not have, and makes infinity of 2**40 in float16.

    Raises:
        RuntimeError: the type has no such number.
    """
    _refusals.check_holds(values.dtype, number)
    return kernel(values, number)


REPLACED: dict[str, Callable[..., Any]] = {"linspace": linspace, "arange.start_step": arange}
WRAPPED: dict[str, Callable[..., Any]] = {"fill_.Scalar": filled, "full": full}
