"""``collectives``: all-reduce among processes, by our transport and by gloo in the same processes, in turn."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ptpathways import core
from ptpathways.bench._child import Child
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

SIZES = {4: 200, 64 << 10: 100, 16 << 20: 3, 256 << 20: 1}
"""Bytes of an all-reduce, and how many are done between two looks at the clock."""

_MODULE = "ptpathways.bench._collectives_process"
_SYSTEMS = (OURS, "gloo")
_TIMEOUT_S = 300.0


@contextlib.contextmanager
def _group(hosts: int) -> Iterator[list[Child]]:
    """So many processes that have both groups ready."""
    name = f"bench-{os.getpid()}-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="pwb", dir="/tmp") as folder, contextlib.ExitStack() as stack:
        store = str(Path(folder) / "store")
        environment = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        children = [
            stack.enter_context(Child(_MODULE, name, str(rank), str(hosts), store, environment=environment))
            for rank in range(hosts)
        ]
        yield children


def _ask(children: Sequence[Child], request: dict[str, object]) -> list[float]:
    """Every process does the same; what each measured."""
    for child in children:
        child.send(request)
    return [float(child.receive(_TIMEOUT_S)) for child in children]


def _measure(hosts: int, options: BenchOptions) -> list[Record]:
    repeats = options.repeats_or(15, 3)
    records = []
    with _group(hosts) as children:
        for size, full in SIZES.items():
            count = max(1, full // 10) if options.quick else full
            seconds: dict[str, list[float]] = {system: [] for system in _SYSTEMS}
            for system in _SYSTEMS:
                _ask(children, {"system": system, "bytes": size, "count": max(2, count // 4), "check": True})
            for repeat in range(repeats):
                for system in _SYSTEMS if repeat % 2 == 0 else reversed(_SYSTEMS):
                    # The slowest process's time: an all-reduce is over when all have it.
                    took = max(_ask(children, {"system": system, "bytes": size, "count": count, "check": False}))
                    seconds[system].append(took)
            setting = Setting("collectives", hosts, hosts, {"bytes": size})
            name = f"all-reduce, {hosts} hosts"
            for system, values in seconds.items():
                records.append(setting.record(system, name, "us", [value * 1e6 for value in values]))
                records.append(setting.record(system, name, "GB/s", [size / value / 1e9 for value in values]))
            ratios = [gloo / ours for ours, gloo in zip(seconds[OURS], seconds["gloo"], strict=True)]
            records.append(setting.record(OURS, f"times gloo's speed, {hosts} hosts", "x", ratios))
    return records


def _run(options: BenchOptions) -> list[Record]:
    if options.hosts is not None and options.hosts < 2:
        raise core.InvalidOption(f"workload collectives needs at least 2 hosts, got {options.hosts}")
    return [record for hosts in ([options.hosts] if options.hosts else [2, 4]) for record in _measure(hosts, options)]


COLLECTIVES = Workload(
    "collectives",
    "all-reduce of 4 B to 256 MiB over 2 and 4 processes, against torch.distributed's gloo in the same processes",
    _run,
    {
        (f"times gloo's speed, {hosts} hosts", float(size)): Goal(2 if size == 4 else 1, at_least=True)
        for hosts in (2, 4)
        for size in SIZES
    },
    axis="bytes",
)
