"""The loss scale of a gradient scaler: PyTorch/XLA forgets the factors when it looks for a compiled computation, so
that of two scalers the second would grow and shrink as the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def amp_update_scale(
    scale: torch.Tensor,
    growth_tracker: torch.Tensor,
    found_inf: torch.Tensor,
    growth_factor: float,
    backoff_factor: float,
    growth_interval: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new scale and the number of steps since it changed. A scale that would not be finite does not grow."""
    import torch

    overflow = found_inf != 0
    steps = growth_tracker + 1
    grown = scale * growth_factor
    due = steps == growth_interval
    without = torch.where(due & torch.isfinite(grown), grown, scale)
    new_scale = torch.where(overflow, scale * backoff_factor, without)
    return new_scale, torch.where(overflow | due, torch.zeros_like(steps), steps)


REPLACED: dict[str, Callable[..., Any]] = {"_amp_update_scale": amp_update_scale}
