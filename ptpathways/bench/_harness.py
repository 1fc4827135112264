"""Measuring variants side by side, so that what else the machine does hits all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Measure = Callable[[], float]
"""Does the work once and returns the measured value."""


def interleave(variants: Mapping[str, Measure], *, repeats: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Measures every variant ``repeats`` times, round by round; the i-th values of all variants are one round's.

    Every other round runs backwards, so that no variant is always the one after a certain other. The first
    ``warm_up`` rounds are thrown away.

    Raises:
        ValueError: ``repeats`` is not positive, or ``warm_up`` is negative.
    """
    if repeats < 1 or warm_up < 0:
        raise ValueError(f"need at least one repeat and no negative warm-up, got {repeats} and {warm_up}")
    values: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    for round_number in range(warm_up + repeats):
        for name in order if round_number % 2 == 0 else reversed(order):
            value = variants[name]()
            if round_number >= warm_up:
                values[name].append(value)
    return values
