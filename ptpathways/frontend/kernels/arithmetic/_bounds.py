"""Values held within numbers: PyTorch/XLA takes the largest finite number for a bound that is not given, so infinities
became finite, and does not promote integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_INFINITY = float("inf")


def _promoted(values: torch.Tensor, *bounds: float | None) -> torch.Tensor:
    """Integers and booleans in the type that they have together with the bounds.

    Raises:
        RuntimeError: no bound.
        NotImplementedError: complex numbers.
    """
    import torch

    if values.is_complex():
        raise NotImplementedError("clamp is not supported for complex types")
    given = [bound for bound in bounds if bound is not None]
    if not given:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    dtype = values.dtype
    for bound in given:
        dtype = torch.promote_types(dtype, torch.result_type(values, bound))
    return values.to(dtype)


def clamp(kernel: Callable[..., Any], values: torch.Tensor, min: float | None = None, max: float | None = None) -> Any:
    """A single bound that is no number bounds nothing; one of two makes all values no numbers."""
    if not values.is_floating_point() or (min is None and max is None):
        values = _promoted(values, min, max)
        if not values.is_floating_point():
            return kernel(values, min, max)
    if min is None:
        return kernel(values, -_INFINITY, _INFINITY if max != max else max)
    if max is None:
        return kernel(values, -_INFINITY if min != min else min, _INFINITY)
    return kernel(values, min, max)


def clamp_min(values: torch.Tensor, min: float) -> torch.Tensor:
    """A bound that is no number makes all values no numbers, as one of two does."""
    import torch

    return torch.clamp(values, min, _INFINITY if values.is_floating_point() or isinstance(min, float) else None)


def clamp_max(values: torch.Tensor, max: float) -> torch.Tensor:
    """As ``clamp_min``."""
    import torch

    return torch.clamp(values, -_INFINITY if values.is_floating_point() or isinstance(max, float) else None, max)


REPLACED: dict[str, Callable[..., Any]] = {"clamp_max": clamp_max, "clamp_min": clamp_min}
WRAPPED: dict[str, Callable[..., Any]] = {"clamp": clamp}
