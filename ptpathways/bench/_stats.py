"""Median and spread of repeated measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """Middle and spread of the same quantity, measured several times."""

    median: float
    p10: float
    p90: float
    repeats: int


def quantile(values: Sequence[float], fraction: float) -> float:
    """The value below which ``fraction`` of ``values`` lie, with straight lines between neighbours.

    Raises:
        ValueError: no values, a value that is not finite, or a fraction outside 0 to 1.
    """
    if not values:
        raise ValueError("a quantile needs at least one value, got none")
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"the fraction must be from 0 to 1, got {fraction}")
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"every value must be finite, got {list(values)}")
    ordered = sorted(values)
    place = fraction * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def summarise(values: Sequence[float]) -> Summary:
    """Median, 10th and 90th percentile of ``values``. Raises as ``quantile`` does."""
    return Summary(quantile(values, 0.5), quantile(values, 0.1), quantile(values, 0.9), len(values))
