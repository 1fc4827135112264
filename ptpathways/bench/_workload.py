"""What a workload is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ptpathways import core
from ptpathways.bench._record import Record

OURS = "ptpathways"
"""The system of our own records."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What the user may change of every workload; None: the workload's own choice.

    Raises:
        InvalidOption: a number that is not positive.
    """

    hosts: int | None = None
    devices_per_host: int | None = None
    repeats: int | None = None
    quick: bool = False
    """A fraction of the work, to see that everything runs; the figures are rough."""
    peers: tuple[str, ...] = ()
    """Names of rivals to measure beside ours."""
    allreduce: bool = False
    """Computations with a collective over all hosts, beside a loop of gloo in each of as many processes."""
    parts: tuple[str, ...] = ()
    """Of a workload that has several; none: all of them."""
    platform: str = "cpu"
    """Of the workers' devices; only workloads that say so (``any_platform``) can measure others than CPUs."""
    plugin: str = ""
    """Path of the PJRT plugin; empty: the installed one."""

    def __post_init__(self) -> None:
        for name in ("hosts", "devices_per_host", "repeats"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise core.InvalidOption(f"option {name} must be at least 1, got {value}")

    def cluster(self, *, hosts: int, devices_per_host: int = 1) -> core.Options:
        """Options of a local cluster of the given size, unless the user chose another."""
        return core.Options(
            hosts=self.hosts or hosts,
            devices_per_host=self.devices_per_host or devices_per_host,
            platform=self.platform,
            plugin=self.plugin,
        )

    def choose(self, full: int, quick: int) -> int:
        """The amount of work for this run."""
        return quick if self.quick else full

    def repeats_or(self, full: int, quick: int) -> int:
        """How often to measure."""
        return self.repeats or self.choose(full, quick)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a variant of ``ptpathways`` should reach."""

    value: float
    at_least: bool
    """Else: at most."""

    def met_by(self, median: float) -> bool:
        return median >= self.value if self.at_least else median <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.value:,g}"


@dataclass(frozen=True, slots=True)
class Workload:
    """Something to measure."""

    name: str
    what: str
    """One line for the list of workloads."""
    run: Callable[[BenchOptions], list[Record]]
    goals: dict[str | tuple[str, float], Goal] = field(default_factory=dict)
    """By variant, or by variant and place on the axis."""
    axis: str = ""
    """Key of ``Record.at`` that is drawn from left to right; empty: bars."""
    trace: Callable[[Path], None] | None = None
    """Draws who had the devices when in the last run."""
    compares: bool = False
    """It can measure rivals beside ours."""
    parts: tuple[str, ...] = ()
    """Names of what it can measure alone (``BenchOptions.parts``)."""
    any_platform: bool = False
    """It can measure devices of any platform."""

    def goal_of(self, record: Record) -> Goal | None:
        """What the record should reach; None for rivals and for what has no goal."""
        if record.system != OURS:
            return None
        return self.goals.get((record.variant, record.at.get(self.axis, math.nan))) or self.goals.get(record.variant)
