"""Records as a table on the screen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from ptpathways.bench._record import Record
from ptpathways.bench._workload import Workload


def show_workloads(workloads: Mapping[str, Workload], console: Console) -> None:
    """One line for each workload."""
    table = Table(box=None, show_header=False)
    for workload in workloads.values():
        table.add_row(workload.name, workload.what)
    console.print(table)


def show_records(records: Sequence[Record], workload: Workload, console: Console) -> None:
    """Tables of ``records`` of one run; a median of ours is followed by its goal and whether it is met.

    Records with a place on the workload's axis come as one row for each system and variant, with a column for each
    place; the others with their spread.
    """
    if not records:
        return
    console.print(title(records), style="bold")
    spread = [record for record in records if workload.axis not in record.at]
    if spread:
        console.print(_with_spread(spread, workload))
    placed = [record for record in records if workload.axis in record.at]
    if placed:
        console.print(_by_place(placed, workload))
    machine = records[0].machine
    versions: dict[str, str] = {}
    for record in records:
        versions |= record.versions
    facts = ", ".join(f"{name} {version}" for name, version in versions.items())
    console.print(f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mib']} MiB; {facts}", style="dim")


def _with_spread(records: Sequence[Record], workload: Workload) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("system")
    table.add_column("variant")
    for column in ("median", "p10", "p90"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("of", justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    for record in records:
        goal = workload.goal_of(record)
        table.add_row(
            record.system,
            record.variant,
            *(number(value) for value in (record.median, record.p10, record.p90)),
            record.unit,
            str(record.repeats),
            "" if goal is None else f"{goal} {'met' if goal.met_by(record.median) else 'missed'}",
        )
    return table


def _by_place(records: Sequence[Record], workload: Workload) -> Table:
    places = sorted({record.at[workload.axis] for record in records})
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("variant")
    table.add_column("system", no_wrap=True)
    for place in places:
        table.add_column(f"{workload.axis} {place:g}", justify="right", no_wrap=True)
    rows: dict[tuple[str, str, str], dict[float, Record]] = {}
    for record in records:
        rows.setdefault((record.variant, record.system, record.unit), {})[record.at[workload.axis]] = record
    order = list(dict.fromkeys(variant for variant, _, _ in rows))
    for (variant, system, unit), cells in sorted(rows.items(), key=lambda row: order.index(row[0][0])):
        table.add_row(f"{variant}, {unit}", system, *(_cell(cells.get(place), workload) for place in places))
    return table


def _cell(record: Record | None, workload: Workload) -> str:
    if record is None:
        return ""
    goal = workload.goal_of(record)
    if goal is None:
        return number(record.median)
    return f"{number(record.median)} ✓" if goal.met_by(record.median) else f"{number(record.median)} ✗ {goal}"


def title(records: Sequence[Record]) -> str:
    """What a run of a workload was, without its figures."""
    hosts, devices = sorted({record.hosts for record in records}), sorted({record.devices for record in records})
    return f"{records[0].workload}: {_count(hosts, 'host')}, {_count(devices, 'device')}"


def _count(numbers: Sequence[int], what: str) -> str:
    return f"{', '.join(str(value) for value in numbers)} {what}{'s' if numbers[-1] > 1 else ''}"


def number(value: float) -> str:
    """At least three significant digits, thousands separated, never an exponent."""
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{min(max(2 - magnitude, 0), 9)}f}"
