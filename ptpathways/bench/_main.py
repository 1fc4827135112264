"""Running workloads by name, from Python and from the command line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ptpathways import core, native
from ptpathways.bench._capture import CAPTURE
from ptpathways.bench._checkpoint import CHECKPOINT
from ptpathways.bench._collectives import COLLECTIVES
from ptpathways.bench._data_parallel import DATA_PARALLEL
from ptpathways.bench._device import DEVICE
from ptpathways.bench._dispatch import DISPATCH
from ptpathways.bench._first_step import FIRST_STEP
from ptpathways.bench._input import INPUT
from ptpathways.bench._operators import OPERATORS
from ptpathways.bench._paper import PAPER_TABLES
from ptpathways.bench._parity import PARITY
from ptpathways.bench._pipeline import PIPELINE
from ptpathways.bench._pipelining import PIPELINE_TRAINING
from ptpathways.bench._plot import plot
from ptpathways.bench._record import Record, write_json_lines
from ptpathways.bench._reshard import RESHARD
from ptpathways.bench._shares import SHARES
from ptpathways.bench._show import show_records, show_workloads
from ptpathways.bench._stages import STAGES
from ptpathways.bench._standby import STANDBY
from ptpathways.bench._startup import STARTUP
from ptpathways.bench._step import STEP
from ptpathways.bench._systems import parse_peers
from ptpathways.bench._tenancy import TENANCY
from ptpathways.bench._train import TRAIN
from ptpathways.bench._transfer import TRANSFER
from ptpathways.bench._workload import BenchOptions, Workload

_PICTURES = (".png", ".svg", ".pdf")
_FILE_COLUMNS = 180
_ALL = (
    DISPATCH,
    PARITY,
    STAGES,
    TENANCY,
    SHARES,
    PIPELINE,
    PIPELINE_TRAINING,
    TRANSFER,
    RESHARD,
    COLLECTIVES,
    DEVICE,
    STEP,
    CAPTURE,
    TRAIN,
    OPERATORS,
    INPUT,
    DATA_PARALLEL,
    STANDBY,
    STARTUP,
    FIRST_STEP,
    CHECKPOINT,
    PAPER_TABLES,
)

WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _ALL}
"""Every workload by its name."""


def run(name: str, options: BenchOptions | None = None) -> list[Record]:
    """Measures the workload called ``name`` on a local cluster that it starts and ends.

    Raises:
        InvalidOption: there is no such workload (the message lists them), or it cannot use an option.
        PathwaysError: the cluster could not be started, or failed.
    """
    if name not in WORKLOADS:
        raise core.InvalidOption(f"workload must be one of {', '.join(WORKLOADS)}, got {name!r}")
    workload, options = WORKLOADS[name], options or BenchOptions()
    for part in options.parts:
        if not workload.parts:
            having = ", ".join(each.name for each in _ALL if each.parts)
            raise core.InvalidOption(f"a table or figure must be one of workload {having}, got {part} of {name}")
        if part not in workload.parts:
            raise core.InvalidOption(f"{name} has {', '.join(workload.parts)}, got {part}")
    if (options.platform != "cpu" or options.plugin) and not workload.any_platform:
        having = ", ".join(each.name for each in _ALL if each.any_platform)
        raise core.InvalidOption(
            f"a platform or plugin must be one of workload {having}, got {options.plugin or options.platform} of {name}"
        )
    with native.translated():
        return workload.run(options)


def _check_files(lines: Path | None, picture: Path | None) -> None:
    """Raises InvalidOption if the figures could not be written there: before they are measured."""
    if picture is not None and picture.suffix not in _PICTURES:
        raise core.InvalidOption(f"--plot must end in {', '.join(_PICTURES)}, got {str(picture)!r}")
    for option, path in (("--json", lines), ("--plot", picture)):
        if path is None:
            continue
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise core.InvalidOption(f"{option} must be a file that can be written, got {str(path)!r}")


def _parts(arguments: argparse.Namespace) -> tuple[str, ...]:
    """What ``--table`` and ``--figure`` ask for."""
    return tuple(f"{what} {number}" for what in ("table", "figure") for number in getattr(arguments, what) or ())


def main(argv: Sequence[str] | None = None) -> int:
    """``ptpathways bench``; the exit code: 0 measured, 1 failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(prog="ptpathways bench", description="Measure ptpathways on this machine.")
    parser.add_argument("name", nargs="?", help="the workload; without it, list the workloads")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the figures to FILE, one JSON object a line")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures (.png, .svg, .pdf)")
    parser.add_argument("--hosts", type=int, metavar="N", help="worker processes, if not the workload's own choice")
    parser.add_argument("--devices-per-host", type=int, metavar="N", help="devices of each of them")
    parser.add_argument("--platform", default="cpu", help="device, transfer: cpu, cuda or tpu (default: cpu)")
    parser.add_argument("--plugin", default="", metavar="PATH", help="the PJRT plugin, instead of the installed one")
    parser.add_argument("--repeats", type=int, metavar="N", help="how often to measure")
    parser.add_argument("--peers", default="", metavar="LIST", help="rivals beside ours: ray,monarch,... or all")
    parser.add_argument(
        "--allreduce", action="store_true", help="dispatch: with a collective over all hosts, and a loop of gloo"
    )
    parser.add_argument(
        "--table", type=int, action="append", metavar="N", help="paper: this table of it; may be repeated"
    )
    parser.add_argument("--figure", type=int, action="append", metavar="N", help="paper: this figure of it")
    parser.add_argument("--quick", action="store_true", help="a fraction of the work, for rough figures")
    arguments = parser.parse_args(argv)
    if threading.current_thread() is threading.main_thread():  # told to end, it still ends and cleans up its children
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Rich takes a file for a terminal of 80 columns, too few for a column for each of 8 places.
    console = Console() if sys.stdout.isatty() else Console(width=_FILE_COLUMNS)
    errors = Console(stderr=True)
    if arguments.name is None:
        show_workloads(WORKLOADS, console)
        return 0
    try:
        options = BenchOptions(
            arguments.hosts,
            arguments.devices_per_host,
            arguments.repeats,
            arguments.quick,
            parse_peers(arguments.peers),
            arguments.allreduce,
            _parts(arguments),
            arguments.platform,
            arguments.plugin,
        )
        _check_files(arguments.json, arguments.plot)
        records = run(arguments.name, options)
    except core.InvalidOption as error:
        if arguments.name not in WORKLOADS:
            show_workloads(WORKLOADS, errors)
        errors.print(str(error), markup=False, style="red")
        return 2
    except core.PathwaysError as error:
        errors.print(str(error), markup=False, style="red")
        return 1
    show_records(records, WORKLOADS[arguments.name], console)
    if arguments.json is not None:
        write_json_lines(arguments.json, records)
    if arguments.plot is not None:
        workload = WORKLOADS[arguments.name]
        plot(records, workload, arguments.plot)
        if workload.trace is not None:
            workload.trace(arguments.plot.with_stem(f"{arguments.plot.stem}-trace"))
    return 0
