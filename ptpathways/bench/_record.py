"""One measured figure with what is needed to judge it later: versions, machine, date."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptpathways import core
from ptpathways.bench._stats import summarise

_PACKAGES = ("torch", "torch_xla")


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a benchmark's JSON output."""

    workload: str
    system: str
    """What was measured: ``ptpathways``, or a system to compare with."""
    variant: str
    hosts: int
    devices: int
    """Of the whole cluster."""
    at: Mapping[str, float]
    """What else was varied, such as clients or stages: the place on the plot's axis."""
    unit: str
    median: float
    p10: float
    p90: float
    repeats: int
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""
    """UTC, ISO 8601, to the second."""

    def to_json(self) -> str:
        """The record as one line, keys in the order of the fields."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})


@dataclass(frozen=True, slots=True)
class Setting:
    """What the records of one run of a workload have in common."""

    workload: str
    hosts: int
    devices: int
    at: Mapping[str, float] = field(default_factory=dict)

    def record(
        self,
        system: str,
        variant: str,
        unit: str,
        values: Sequence[float],
        peer_versions: Mapping[str, str] | None = None,
    ) -> Record:
        """``values``, one per repeat, as a record of now and here."""
        middle = summarise(values)
        return Record(
            workload=self.workload,
            system=system,
            variant=variant,
            hosts=self.hosts,
            devices=self.devices,
            at=dict(self.at),
            unit=unit,
            median=middle.median,
            p10=middle.p10,
            p90=middle.p90,
            repeats=middle.repeats,
            versions=versions() | dict(peer_versions or {}),
            machine=machine(),
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )


def write_json_lines(path: Path, records: Iterable[Record]) -> None:
    """Appends ``records`` to ``path``, one a line, so that a file can hold the history of a machine."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(record.to_json() + "\n" for record in records)


@functools.cache
def versions() -> dict[str, str]:
    """Of ptpathways, what it builds on, and Python; looked up without importing anything."""
    found = {"ptpathways": core.__version__}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    found["python"] = platform.python_version()
    return found


@functools.cache
def machine() -> dict[str, Any]:
    """Processor model, cores this process may use, memory in MiB, kernel."""
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": memory_kib(Path("/proc/meminfo").read_text(), "MemTotal") // 1024,
        "kernel": platform.release(),
    }


def cpu_model(cpuinfo: str) -> str:
    """The processor's name in the text of ``/proc/cpuinfo``, or the architecture's where it has none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def memory_kib(text: str, key: str) -> int:
    """The value of ``key`` in a text of lines such as ``Rss:   1234 kB`` (meminfo, smaps_rollup).

    Raises:
        ValueError: there is no such line, or it has another unit.
    """
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == key:
            amount, unit = rest.split()
            if unit != "kB":
                raise ValueError(f"{key} must be in kB, got {rest.strip()!r}")
            return int(amount)
    raise ValueError(f"expected a line {key!r}, got none")
