"""``shares``: 4 clients with weights 1:1:1:1 and 1:2:4:8 under the fair policy (the paper's Fig. 9).

Each client is a process that always has computations of 1 ms waiting; they share one device of a standing cluster. A
share is the client's part of the computations finished in the measured time. ``--plot`` also draws who had the device
when, in a file beside the plot: ``NAME-trace.SUFFIX``.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ptpathways import core
from ptpathways.bench._plot import draw_trace
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._tenancy import tenant, together
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

WEIGHTS = ((1, 1, 1, 1), (1, 2, 4, 8))
_COMPUTE_S = 1e-3
_SHOWN_S = 0.06

_traces: dict[tuple[int, ...], list[list[float]]] = {}
"""Of the last run, by weights: when each client's computations ended, seconds of CLOCK_MONOTONIC."""


def _run(options: BenchOptions) -> list[Record]:
    from ptpathways.launch import local

    records = []
    seconds = options.choose(30, 5) / 10
    for weights in WEIGHTS:
        with local.serve(core.Options(policy="fair")) as cluster, ExitStack() as stack:
            tenants = [stack.enter_context(tenant(cluster.address, 0, _COMPUTE_S, float(weight))) for weight in weights]
            together(tenants, 0.2)
            answers = [together(tenants, seconds) for _ in range(options.repeats_or(5, 2))]
        _traces[weights] = [answer["ends"] for answer in answers[-1]]
        records += _records(weights, answers, seconds)
    return records


def _records(weights: tuple[int, ...], answers: list[list[dict[str, Any]]], seconds: float) -> list[Record]:
    setting = Setting("shares", 1, 1)
    name = ":".join(str(weight) for weight in weights)
    finished = [[answer["finished"] for answer in each] for each in answers]
    records = []
    for index, weight in enumerate(weights):
        asked = weight / sum(weights)
        shares = [100 * each[index] / sum(each) for each in finished]
        who = f"{name}, client {index + 1}"
        records.append(setting.record(OURS, f"{who} (asked {100 * asked:.1f}%)", "% of computations", shares))
        away = [abs(share / 100 / asked - 1) * 100 for share in shares]
        records.append(setting.record(OURS, f"{who}: off its share by", "% of the share", away))
    used = [sum(each) * _COMPUTE_S / seconds * 100 for each in finished]
    records.append(setting.record(OURS, f"{name}: device in use", "% of time", used))
    return records


def save_trace(path: Path) -> None:
    """Draws what the last run recorded, one row for each client and set of weights."""
    rows = {
        f"{':'.join(map(str, weights))}, client {index + 1}": ends
        for weights, clients in _traces.items()
        for index, ends in enumerate(clients)
    }
    groups = list(_traces.values())
    starts = [min(ends[len(ends) // 2] for ends in clients if ends) for clients in groups]
    offsets = [start for start, clients in zip(starts, groups, strict=True) for _ in clients]
    draw_trace(rows, offsets, _COMPUTE_S, _SHOWN_S, path)


SHARES = Workload(
    "shares",
    "4 clients with weights 1:1:1:1 and 1:2:4:8 on a device under the fair policy: the shares they get (Fig. 9)",
    _run,
    {
        f"{':'.join(map(str, weights))}, client {index + 1}: off its share by": Goal(5, at_least=False)
        for weights in WEIGHTS
        for index in range(len(weights))
    },
    trace=save_trace,
)
