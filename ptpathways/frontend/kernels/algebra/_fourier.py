"""Fourier transforms, which the client computes (``_fallback``): their gradients and their frequencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def of_reals(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """``_fft_r2c``, whose result is negated twice where it has a gradient; inf and signed zeros stay what they are.

    Torch's gradient of it refers to the sizes of the gradient that it is given, and reads them after it has made a
    tensor like that one. Where a write to the given gradient is pending, which ``irfft`` leaves, the write is done in
    between, and the sizes are freed. To a gradient that has been negated no write is pending.
    """
    made: torch.Tensor = kernel(values, *rest, **named)
    return made.neg().neg() if made.requires_grad else made


def frequencies(n: int, d: float = 1.0, **named: Any) -> torch.Tensor:
    """``fftfreq``. Torch's own lets a part of a tensor without elements grow over those behind it."""
    import torch

    made: torch.Tensor = torch.fft.fftfreq(n, d, dtype=named.get("dtype"))
    return made.to(named.get("device") or "xla")


REPLACED: dict[str, Callable[..., Any]] = {"fft_fftfreq": frequencies}
WRAPPED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {"_fft_r2c": of_reals}
