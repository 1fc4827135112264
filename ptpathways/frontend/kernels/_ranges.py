"""Tensors made of numbers: PyTorch/XLA rounds ranges of integers otherwise, and takes float32 for float64 there; filled
with a complex number they are complex128."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels import _copies

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


def full(
    kernel: Callable[..., Any],
    size: Sequence[int],
    fill_value: complex,
    *,
    dtype: torch.dtype | None = None,
    **named: Any,
) -> Any:
    """A single number gets a buffer of its own, as those that are uploaded do (``_copies.alone``)."""
    import torch

    if dtype is None and isinstance(fill_value, complex):
        dtype = torch.get_default_dtype().to_complex()
    device = named.get("device")
    if not size and device is not None and _copies.is_to_be_alone():
        made = torch.full((), fill_value, dtype=dtype)
        return _copies.alone(made, made.dtype, device)
    return kernel(size, fill_value, dtype=dtype, **named)


REPLACED: dict[str, Callable[..., Any]] = {"linspace": linspace}
WRAPPED: dict[str, Callable[..., Any]] = {"full": full}
