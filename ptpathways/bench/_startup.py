"""``startup``: from nothing to the first result of every host, and what an idle worker weighs."""

from __future__ import annotations

import functools
from typing import Any

from ptpathways.bench._child import Child
from ptpathways.bench._harness import interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import BenchOptions, Goal, Workload

_MODULE = "ptpathways.bench._startup_process"
_TOTAL = {"native": "without torch: to first results", "pytorch": "to first results"}
_IN_TOTAL = {"native": ("cluster", "first results"), "pytorch": ("init", "first results")}
_PARTS = {
    ("pytorch", "init"): "init: workers, session, PyTorch/XLA's client",
    ("pytorch", "first results"): "compile and results",
    ("native", "cluster"): "without torch: workers and session",
    ("native", "another session"): "without torch: one more session",
    ("native", "first results"): "without torch: compile and results",
}


def _run(options: BenchOptions) -> list[Record]:
    size = options.cluster(hosts=4)
    answers: dict[str, list[dict[str, Any]]] = {"native": [], "pytorch": []}

    def seconds(kind: str) -> float:
        with Child(_MODULE, kind, str(size.hosts), str(size.devices_per_host)) as child:
            answer = child.ask(None)
        answers[kind].append(answer)
        laps: dict[str, float] = answer["laps"]
        return sum(laps[part] for part in _IN_TOTAL[kind])

    repeats = options.repeats_or(7, 2)
    variants = {kind: functools.partial(seconds, kind) for kind in ("pytorch", "native")}
    totals = interleave(variants, repeats=repeats, warm_up=1)
    kept = {kind: all_of_it[-repeats:] for kind, all_of_it in answers.items()}
    setting = Setting("startup", size.hosts, size.device_count)
    records = [setting.record("ptpathways", _TOTAL[kind], "s", totals[kind]) for kind in ("pytorch", "native")]
    for (kind, part), variant in _PARTS.items():
        values = [answer["laps"][part] for answer in kept[kind]]
        records.append(setting.record("ptpathways", variant, "s", values))
    return records + _memory(setting, [memory for answer in kept["native"] for memory in answer["memory"]])


def _memory(setting: Setting, memories: list[dict[str, Any]]) -> list[Record]:
    """Of one idle worker; every worker of every repeat counts."""
    records = [
        setting.record("ptpathways", variant, "MiB", [memory[key] for memory in memories])
        for variant, key in (("idle worker: resident", "rss"), ("idle worker: proportional", "pss"))
    ]
    parts = sorted({part for memory in memories for part in memory["parts"]})
    for part in parts:
        values = [memory["parts"].get(part, 0.0) for memory in memories]
        records.append(setting.record("ptpathways", f"idle worker: of it {part}", "MiB", values))
    return records


STARTUP = Workload(
    "startup",
    "four hosts from nothing to a result of each, after importing torch_xla, in seconds; an idle worker's memory",
    _run,
    {"to first results": Goal(1.0, at_least=False), "idle worker: resident": Goal(110, at_least=False)},
)
