"""Dispatch over 1, 2, 4 and 8 hosts, ours and rivals on the same work (the paper's Fig. 5)."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from rich.console import Console

from ptpathways.bench._record import Record, Setting
from ptpathways.bench._stats import quantile
from ptpathways.bench._systems import Figures, Measured, able, side_by_side
from ptpathways.bench._workload import OURS, BenchOptions

SIZES = (1, 2, 4, 8)
REDUCING_SIZES = SIZES[1:]
OWN_MODULE = "ptpathways.bench._own"
ACROSS_PROCESSES = ("ray", "monarch", "dask")
"""Rivals whose hosts are processes of their own, as ours are."""

_TRIP = "round trip"
_RATES = ("OpByOp", "Chained")
MULTI_CONTROLLER = "gloo"
"""The loop of the multi-controller systems: every process by itself, which has no more ways to submit."""
_AGAINST_LOOP = ("OpByOp", "Chained", "Fused")


def measure_scale(workload: str, options: BenchOptions, console: Console | None = None) -> list[Record]:
    """Figures of every size, and how ours compare with the best rival that has a process for each host."""
    console = console or Console(stderr=True)
    told = functools.partial(console.print, style="yellow", markup=False)
    work = "allreduce" if options.allreduce else "add"
    wanted = dict.fromkeys((*((MULTI_CONTROLLER,) if options.allreduce else ()), *options.peers))
    peers = able(tuple(wanted), work, console)
    records: list[Record] = []
    for size in (options.hosts,) if options.hosts else REDUCING_SIZES if options.allreduce else SIZES:
        found = side_by_side(
            [OURS, *peers],
            work,
            size,
            OWN_MODULE,
            passes=options.repeats or options.choose(2, 1),
            seconds=options.choose(20, 3) / 10,
            told=told,
        )
        setting = Setting(workload, size, size, {"hosts": size})
        records += named_records(setting, found, "AllReduce " if options.allreduce else "")
        records += _ratios(setting, found)
        records += against_loop(setting, found)
    return records


def named_records(setting: Setting, found: Mapping[str, Figures], prefix: str) -> list[Record]:
    """What each system did; ``prefix`` tells figures of different work apart."""
    records = []
    for system, figures in found.items():
        for figure, measured in figures.values.items():
            trip = figure.startswith(_TRIP)
            name = prefix + (figure.replace(_TRIP, f"{_TRIP} p50") if trip else figure)
            values = [value.p50_s * 1e6 if trip else value.rate for value in measured]
            records.append(setting.record(system, name, "us" if trip else "computations/s", values, figures.versions))
    return records


def _ratios(setting: Setting, found: Mapping[str, Figures]) -> list[Record]:
    """Ours over the best rival's."""
    records = []
    for name in (*_RATES, _TRIP):
        rivals = [
            _middle(figure, values)
            for system in ACROSS_PROCESSES
            if system in found
            for figure, values in found[system].values.items()
            if figure == name or figure.startswith(f"{name},")
        ]
        ours = [_middle(figure, values) for figure, values in found[OURS].values.items() if figure == name]
        if rivals and ours:
            ratio = min(rivals) / ours[0] if name == _TRIP else ours[0] / max(rivals)
            records.append(setting.record(OURS, f"{name}: times as good as the best peer", "x", [ratio]))
    return records


def against_loop(setting: Setting, found: Mapping[str, Figures]) -> list[Record]:
    """Every rate of ours over that of the multi-controller loop; none when that was not measured."""
    if MULTI_CONTROLLER not in found:
        return []
    (loop,) = found[MULTI_CONTROLLER].values.values()
    return [
        setting.record(
            OURS,
            f"{name}: times the loop of {MULTI_CONTROLLER}",
            "x",
            [_middle(name, found[OURS].values[name]) / _middle(name, loop)],
        )
        for name in _AGAINST_LOOP
        if name in found[OURS].values
    ]


def _middle(figure: str, values: list[Measured]) -> float:
    return quantile([value.p50_s if figure.startswith(_TRIP) else value.rate for value in values], 0.5)
