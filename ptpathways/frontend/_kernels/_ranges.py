"""Ranges of numbers: PyTorch/XLA rounds those of integers otherwise, and takes float32 for float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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


REPLACED: dict[str, Callable[..., Any]] = {"linspace": linspace}
