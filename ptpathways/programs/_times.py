"""When the computations of a program's last runs began and ended, put together from what its hosts noted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Noted = tuple[int, str, int, int, int]
"""Device, node, the node's place, start and end in nanoseconds of its machine's clock."""
HostTimes = tuple[int, Sequence[tuple[int, int, Sequence[Noted]]]]
"""By how many nanoseconds real time is ahead of that clock; each run's number, how many are missing, and the others."""


@dataclass(frozen=True, slots=True)
class Computation:
    """A node of a program on one device. Times are microseconds after the run's first start."""

    device: int
    node: str
    place: int
    """Of two nodes of a slice the later one in the program has the higher number."""
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A run on all hosts that took part."""

    run: int
    """A later run has a higher number."""
    missing: int
    """Computations that have not ended, or never will."""
    computations: tuple[Computation, ...]
    """In the order of their starts."""


def gather(answers: Iterable[tuple[str, HostTimes]]) -> list[TimedRun]:
    """The runs that every host still knows, the oldest first.

    Hosts of one machine share the clock of their times. Those of several machines are compared by the machines' real
    time, which is as exact as they keep it.

    Args:
        answers: each host's machine, and what it said.
    """
    ahead: dict[str, int] = {}
    parts: dict[int, list[tuple[int, Sequence[Noted], int]]] = {}
    hosts = 0
    for machine, (real_ns_ahead, runs) in answers:
        hosts += 1
        offset = ahead.setdefault(machine, real_ns_ahead)
        for run, missing, computations in runs:
            parts.setdefault(run, []).append((missing, computations, offset))
    whole = {run: known for run, known in sorted(parts.items()) if len(known) == hosts}
    return [_together(run, known) for run, known in whole.items()]


def _together(run: int, parts: Sequence[tuple[int, Sequence[Noted], int]]) -> TimedRun:
    every = sorted(
        (start + offset, end + offset, device, node, place)
        for _, computations, offset in parts
        for device, node, place, start, end in computations
    )
    first = every[0][0] if every else 0
    spans = (
        Computation(device, node, place, (start - first) / 1e3, (end - first) / 1e3)
        for start, end, device, node, place in every
    )
    return TimedRun(run, sum(missing for missing, _, _ in parts), tuple(spans))
