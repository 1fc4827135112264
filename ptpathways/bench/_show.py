"""Records as a table on the screen and as a plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ptpathways.bench._record import Record
from ptpathways.bench._workload import Goal, Workload

_ROW_INCHES = 0.35


def show_workloads(workloads: Mapping[str, Workload], console: Console) -> None:
    """One line for each workload."""
    table = Table(box=None, show_header=False)
    for workload in workloads.values():
        table.add_row(workload.name, workload.what)
    console.print(table)


def show_records(records: Sequence[Record], goals: Mapping[str, Goal], console: Console) -> None:
    """A table of ``records`` of one run; a median of ours is followed by its goal and whether it is met."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("system")
    table.add_column("variant")
    for column in ("median", "p10", "p90"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("of", justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    for record in records:
        goal = goals.get(record.variant) if record.system == "ptpathways" else None
        table.add_row(
            record.system,
            record.variant,
            *(number(value) for value in (record.median, record.p10, record.p90)),
            record.unit,
            str(record.repeats),
            "" if goal is None else f"{goal} {'met' if goal.met_by(record.median) else 'missed'}",
        )
    if records:
        console.print(title(records[0]), style="bold")
        console.print(table)
        machine = records[0].machine
        facts = ", ".join(f"{name} {version}" for name, version in records[0].versions.items())
        console.print(f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mib']} MiB; {facts}", style="dim")


def title(record: Record) -> str:
    """What a run of a workload was, without its figures."""
    hosts = f"{record.hosts} host{'s' if record.hosts > 1 else ''}"
    return f"{record.workload}: {hosts}, {record.devices} device{'s' if record.devices > 1 else ''}"


def number(value: float) -> str:
    """At least three significant digits, thousands separated, never an exponent."""
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{min(max(2 - magnitude, 0), 9)}f}"


def plot(records: Sequence[Record], path: Path) -> None:
    """Bars of the medians with lines from p10 to p90, one panel for each unit; the format is that of the suffix.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plot needs matplotlib, which is not installed; run `pip install matplotlib`") from error
    units = list(dict.fromkeys(record.unit for record in records))
    groups = [[record for record in records if record.unit == unit] for unit in units]
    rows = [len(group) for group in groups]
    figure = Figure(figsize=(8, 1.0 * len(units) + _ROW_INCHES * sum(rows)), layout="constrained")
    panels = figure.subplots(len(units), 1, squeeze=False, height_ratios=[count + 1 for count in rows])
    for unit, group, panel in zip(units, groups, panels[:, 0], strict=True):
        names = [f"{record.system}: {record.variant}" for record in group]
        medians = [record.median for record in group]
        below = [record.median - record.p10 for record in group]
        above = [record.p90 - record.median for record in group]
        bars = panel.barh(names, medians, xerr=[below, above], capsize=3)
        panel.bar_label(bars, [number(median) for median in medians], padding=4)
        panel.invert_yaxis()
        panel.margins(x=0.15)
        panel.set_xlabel(unit)
    if records:
        figure.suptitle(f"{title(records[0])}, {records[0].date[:10]}")
    figure.savefig(path)
