"""``pipeline-dispatch``: items pass 8 stages of 1 ms on 4 hosts; how much of what an ideal dispatcher would do is done.

Each host has two neighbouring stages. A stage occupies its host for 1 ms and hardly uses a core: ours by a custom call,
a rival's by a call, and both sleep until 60 us before the end and then spin, because a sleeper is woken late. An ideal
system finishes an item every 2 ms once the pipeline is full. Filling and emptying it count against everyone: 200 items
in 406 ms would be 98.5%.
"""

from __future__ import annotations

import functools

from rich.console import Console

from ptpathways.bench._record import Record, Setting
from ptpathways.bench._scale import OWN_MODULE
from ptpathways.bench._systems import able, side_by_side
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

_HOSTS = 4


def _run(options: BenchOptions) -> list[Record]:
    console = Console(stderr=True)
    hosts = options.hosts or _HOSTS
    found = side_by_side(
        [OURS, *able(options.peers, "pipeline", console)],
        "pipeline",
        hosts,
        OWN_MODULE,
        passes=options.repeats_or(3, 1),
        seconds=options.choose(3, 1),
        told=functools.partial(console.print, style="yellow", markup=False),
    )
    setting = Setting("pipeline-dispatch", hosts, hosts)
    return [
        setting.record(system, figure, "% of ideal", [value.rate * 100 for value in values], figures.versions)
        for system, figures in found.items()
        for figure, values in figures.values.items()
    ]


PIPELINE = Workload(
    "pipeline-dispatch",
    "items through 8 stages of 1 ms on 4 hosts, in per cent of an ideal dispatcher's throughput",
    _run,
    {"pipeline": Goal(95, at_least=True)},
    compares=True,
)
