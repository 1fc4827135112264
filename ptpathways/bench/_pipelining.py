"""``pipeline``: a GPT in stages over hosts, real beside one device and ``torch.distributed.pipelining``; and simulated.

Simulated: devices that take a fixed time for each part of a stage, and the real control plane. As in the paper's
Table 2 the same model and batch go over 4, 8 and 16 hosts, in 4 microbatches per stage: a stage of 16 takes a quarter
of the time of one of 4. What is lost is the schedule's bubble and what the control plane adds.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from ptpathways.bench._child import Child
from ptpathways.bench._data_parallel import check_losses, environment
from ptpathways.bench._harness import interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

SCHEDULES = ("1f1b", "zero-bubble")
SIMULATED = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zero-bubble": 1}
"""Stages per host, by schedule."""
STAGES = (4, 8, 16)
PEER = "torch.distributed.pipelining"
ALONE = "one device"
_HOSTS = 4
_COST_US = 32000.0
"""Of a part of a stage, times the number of stages."""
_MICROBATCHES_PER_STAGE = 4
_PROCESS = "ptpathways.bench._pipelining_process"


def _run(options: BenchOptions) -> list[Record]:
    return [*_real(options), *_simulated(options)]


def _real(options: BenchOptions) -> list[Record]:
    from ptpathways.bench._pipelining_work import SAMPLES  # here: it imports torch, which a list need not

    hosts, cores = options.hosts or _HOSTS, os.cpu_count() or 1
    steps = options.choose(10, 3)
    threads = environment(hosts, cores)
    launcher = ("--standalone", "--nproc-per-node", str(hosts), "-m", "ptpathways.bench.peers.pipelining_peer", "1f1b")
    with ExitStack() as stack:
        ours = stack.enter_context(Child(_PROCESS, "real", str(hosts), environment=threads))
        alone = stack.enter_context(Child(_PROCESS, "alone", "1", environment=environment(1, cores)))
        peer = stack.enter_context(Child("torch.distributed.run", *launcher, environment=threads))
        asked = {
            f"{OURS}, {name}": functools.partial(ours.ask, {"steps": steps, "schedule": name}) for name in SCHEDULES
        }
        asked |= {
            ALONE: functools.partial(alone.ask, {"steps": steps}),
            PEER: functools.partial(peer.ask, {"steps": steps}),
        }
        answers: dict[str, list[dict[str, float]]] = {name: [] for name in asked}

        def seconds(name: str) -> float:
            answers[name].append(asked[name]())
            return answers[name][-1]["seconds"] / steps

        values = interleave(
            {name: functools.partial(seconds, name) for name in asked}, repeats=options.repeats_or(5, 2), warm_up=2
        )
        check_losses({name: found[0]["loss"] for name, found in answers.items()})
    return figures(Setting("pipeline", hosts, hosts), SAMPLES, values)


def figures(setting: Setting, samples: int, seconds: Mapping[str, Sequence[float]]) -> list[Record]:
    """Records of real runs: ``seconds`` of a step of ``samples``, by system."""
    records = [
        setting.record(
            PEER if name == PEER else OURS,
            f"real, {name.removeprefix(f'{OURS}, ')}",
            "samples/s",
            [samples / value for value in values],
        )
        for name, values in seconds.items()
    ]
    for schedule in SCHEDULES:
        for rival in (ALONE, PEER):
            mine = seconds[f"{OURS}, {schedule}"]
            ratios = [theirs / own for own, theirs in zip(mine, seconds[rival], strict=True)]
            records.append(setting.record(OURS, f"real, {schedule}: times {rival}", "x", ratios))
    return records


def _simulated(options: BenchOptions) -> list[Record]:
    found: dict[str, dict[int, list[dict[str, float]]]] = {name: {} for name in SIMULATED}
    for stages in STAGES:
        with Child(_PROCESS, "simulated", str(stages), str(_COST_US / stages)) as child:
            for schedule, chunks in SIMULATED.items():
                request = {
                    "schedule": schedule,
                    "chunks": chunks,
                    "microbatches": _MICROBATCHES_PER_STAGE * stages,
                    "steps": 6,
                }
                found[schedule][stages] = [child.ask(request) for _ in range(options.repeats_or(3, 1))]
    return simulated_figures(found)


def simulated_figures(found: Mapping[str, Mapping[int, Sequence[Mapping[str, float]]]]) -> list[Record]:
    """Records of answers by schedule and stages."""
    records: list[Record] = []
    for schedule, by_stages in found.items():
        for stages, answers in by_stages.items():
            setting = Setting("pipeline", stages, stages, {"stages": stages})
            name = f"simulated, {schedule}"
            records += [
                setting.record(OURS, f"{name}: bubble", "%", [one["bubble"] * 100 for one in answers]),
                setting.record(
                    OURS, f"{name}: bubble against theory", "x", [one["bubble"] / one["theory"] for one in answers]
                ),
                setting.record(
                    OURS,
                    f"{name}: first host idle between steps",
                    "% of a step",
                    [one["stall_us"] * 1e-4 / one["seconds"] for one in answers],
                ),
                setting.record(
                    OURS, f"{name}: submitting a step", "ms", [one["submit_seconds"] * 1e3 for one in answers]
                ),
            ]
        fewest, most = by_stages[min(by_stages)], by_stages[max(by_stages)]
        setting = Setting("pipeline", max(by_stages), max(by_stages))
        ratios = [few["seconds"] / many["seconds"] for few, many in zip(fewest, most, strict=True)]
        ideal = [(1 - many["theory"]) / (1 - few["theory"]) for few, many in zip(fewest, most, strict=True)]
        records.append(setting.record(OURS, f"simulated, {schedule}: S16/S4", "x", ratios))
        records.append(setting.record("theory", f"simulated, {schedule}: S16/S4", "x", ideal))
    return records


PIPELINE_TRAINING = Workload(
    "pipeline",
    "training a GPT in 4 stages over 4 hosts, against one device and torch.distributed.pipelining (gloo, 1F1B, same "
    "cut and microbatches); and over 4 to 16 simulated hosts (Table 2): throughput, bubbles against theory, stalls",
    _run,
    {
        f"real, 1f1b: times {ALONE}": Goal(0.95, at_least=True),
        f"real, 1f1b: times {PEER}": Goal(1.3, at_least=True),
        "simulated, zero-bubble: S16/S4": Goal(0.983, at_least=True),
        **{f"simulated, {name}: bubble against theory": Goal(1.03, at_least=False) for name in SIMULATED},
        **{f"simulated, {name}: first host idle between steps": Goal(1.0, at_least=False) for name in SIMULATED},
    },
    axis="stages",
)
"""``Workload`` of pipelines that train; ``pipeline-dispatch`` measures dispatch alone."""
