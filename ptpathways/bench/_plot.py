"""Records as pictures: bars, or lines over what the workload varies, like the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptpathways.bench._record import Record
from ptpathways.bench._show import number, title
from ptpathways.bench._workload import OURS, Workload

_ROW_INCHES = 0.35
_PANEL_INCHES = 4.0
_MARKERS = "osD^vPX*<>"


def plot(records: Sequence[Record], workload: Workload, path: Path) -> None:
    """Draws ``records``; the format is that of the suffix.

    With an axis: a panel for each unit, a line for each system and variant, both axes logarithmic. Without: bars of the
    medians with lines from p10 to p90.

    Raises:
        ImportError: matplotlib is not installed.
    """
    figure_type = _figure_type()
    lines = [record for record in records if workload.axis in record.at]
    figure = _lines(figure_type, lines, workload) if lines else _bars(figure_type, records)
    if records:
        figure.suptitle(f"{title(records)}, {records[0].date[:10]}")
    figure.savefig(path)


def draw_trace(
    rows: Mapping[str, Sequence[float]], starts: Sequence[float], each_s: float, shown_s: float, path: Path
) -> None:
    """A row of boxes for each client: computations of ``each_s`` seconds, by their ends, ``shown_s`` from its start.

    Raises:
        ImportError: matplotlib is not installed.
    """
    figure = _figure_type()(figsize=(10, 0.6 + _ROW_INCHES * len(rows)), layout="constrained")
    panel = figure.subplots()
    for row, ((_, ends), start) in enumerate(zip(rows.items(), starts, strict=True)):
        shown = [end for end in ends if start <= end - each_s and end <= start + shown_s]
        boxes = [((end - each_s - start) * 1e3, each_s * 1e3) for end in shown]
        panel.broken_barh(boxes, (row - 0.4, 0.8), facecolors=f"C{row % 10}", edgecolor="white", linewidth=0.3)
    panel.set_yticks(range(len(rows)), list(rows))
    panel.invert_yaxis()
    panel.set_xlim(0, shown_s * 1e3)
    panel.set_xlabel("ms")
    figure.savefig(path)


def _figure_type() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plot needs matplotlib, which is not installed; run `pip install matplotlib`") from error
    return Figure


def _bars(figure_type: Any, records: Sequence[Record]) -> Any:
    units = list(dict.fromkeys(record.unit for record in records))
    groups = [[record for record in records if record.unit == unit] for unit in units]
    rows = [len(group) for group in groups]
    figure = figure_type(figsize=(8, 1.0 * len(units) + _ROW_INCHES * sum(rows)), layout="constrained")
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
    return figure


def _lines(figure_type: Any, records: Sequence[Record], workload: Workload) -> Any:
    units = list(dict.fromkeys(record.unit for record in records))
    figure = figure_type(figsize=(9, _PANEL_INCHES * len(units)), layout="constrained")
    panels = figure.subplots(len(units), 1, squeeze=False)
    places = sorted({record.at[workload.axis] for record in records})
    for unit, panel in zip(units, panels[:, 0], strict=True):
        series: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            if record.unit == unit:
                series.setdefault((record.system, record.variant), []).append(record)
        for index, ((system, variant), points) in enumerate(series.items()):
            points.sort(key=lambda record: record.at[workload.axis])
            panel.errorbar(
                [record.at[workload.axis] for record in points],
                [record.median for record in points],
                yerr=[
                    [record.median - record.p10 for record in points],
                    [record.p90 - record.median for record in points],
                ],
                label=f"{system}: {variant}",
                linewidth=2.0 if system == OURS else 1.0,
                linestyle="-" if system == OURS else "--",
                marker=_MARKERS[index % len(_MARKERS)],
                capsize=2,
            )
        panel.set_xscale("log", base=2)
        panel.set_xticks(places, [f"{place:g}" for place in places])
        if all(record.median > 0 for record in records if record.unit == unit):
            panel.set_yscale("log")
        panel.set_xlabel(workload.axis)
        panel.set_ylabel(unit)
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
