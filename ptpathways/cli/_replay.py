"""``ptpathways replay``: a saved program, on a machine without torch."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from typing import Any

from rich.console import Console
from rich.table import Table

from ptpathways import core, programs
from ptpathways.launch import local


def main(arguments: argparse.Namespace) -> int:
    """Runs and times it; exit code 0.

    Raises:
        InvalidProgram: the file is no saved program.
        InvalidOption: runs of this program cannot be chained.
        InvalidOption, PluginNotFound, ConnectionFailed, DeadlineExceeded: the cluster did not start.
        SliceUnavailable: it has not the devices that the program's slices need.
        CompileFailed, OutOfDeviceMemory, HostLost: the program failed.
    """
    bundle = programs.Bundle.load(arguments.path)
    hosts = 1 if arguments.hosts is None else arguments.hosts
    largest = max((part.mesh.size for part in bundle.program.slices), default=1)
    options = core.Options(
        hosts=hosts,
        devices_per_host=largest if arguments.devices_per_host is None else arguments.devices_per_host,
        platform=arguments.platform,
        plugin=arguments.plugin,
        memory_per_device=arguments.memory_per_device,
    )
    with local.start(options) as cluster:
        measured = programs.replay(bundle, cluster.session, repeat=arguments.repeat, chained=arguments.chain)
    if arguments.json:
        print(json.dumps(_json_of(dataclasses.asdict(measured)), allow_nan=False))
    else:
        _show(measured)
    return 0


def _json_of(value: Any) -> Any:
    """``value`` with texts for numbers that JSON does not have: nan, inf, -inf."""
    if isinstance(value, dict):
        return {key: _json_of(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_json_of(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _show(measured: programs.Replay) -> None:
    console = Console(highlight=False)
    console.print(
        f"program {measured.program} on {measured.hosts} host(s), {measured.devices} {measured.platform} device(s)"
    )
    times = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("compile ms", "first run ms", "run p50 ms", "run p90 ms", "pipelined ms/run", "runs"):
        times.add_column(column, justify="right")
    measures = (
        measured.compile_ms,
        measured.first_ms,
        measured.median_ms,
        measured.p90_ms,
        measured.pipelined_ms,
    )
    times.add_row(*(f"{value:.3f}" for value in measures), str(measured.repeat))
    console.print(times)
    for argument, given in measured.chained.items():
        console.print(f"argument %{argument} of each run: result %{given} of the one before", markup=False)
    results = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("result", "type", "first values", "mean", "checksum"):
        results.add_column(column)
    for result in measured.results:
        first = ", ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in result.first)
        results.add_row(result.name, result.type, first, f"{result.mean:.6g}", result.checksum)
    console.print(results)
