"""bench: what data-parallel and dispatch with a collective make of what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch

from ptpathways.bench import WORKLOADS, Record, _data_parallel, _scale, _systems
from ptpathways.bench._data_parallel_loop import SAMPLES_PER_HOST, Batches, Loop, make, step_of
from ptpathways.bench._record import Setting
from ptpathways.bench._workload import OURS


def _by_variant(records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    return {(record.system, record.variant): record for record in records}


def test_ours_over_the_multi_controller_loop() -> None:
    def figures(**rates: float) -> _systems.Figures:
        return _systems.Figures({name: [_systems.Measured(rate, 1.0, 1e-3)] for name, rate in rates.items()})

    found = {OURS: figures(OpByOp=300.0, Chained=600.0, Fused=50.0), "gloo": figures(OpByOp=200.0)}
    records = _scale.against_loop(Setting("dispatch", 4, 4, {"hosts": 4}), found)
    values = {record.variant: record.median for record in records}
    assert values == {
        "OpByOp: times the loop of gloo": 1.5,
        "Chained: times the loop of gloo": 3.0,
        "Fused: times the loop of gloo": 0.25,
    }
    goals = [WORKLOADS["dispatch"].goal_of(record) for record in records]
    assert [goal is not None and goal.met_by(value) for goal, value in zip(goals, values.values(), strict=True)] == [
        True,
        True,
        False,
    ]
    named = _scale.named_records(Setting("dispatch", 4, 4, {"hosts": 4}), found, "AllReduce ")
    assert {record.variant for record in named} == {"AllReduce OpByOp", "AllReduce Chained", "AllReduce Fused"}
    assert all(WORKLOADS["dispatch"].goal_of(record) is None for record in named), "the goals are of the other work"
    assert not _scale.against_loop(Setting("dispatch", 4, 4), {OURS: found[OURS]})


@pytest.mark.parametrize(("hosts", "cores", "threads"), [(2, 2, "1"), (2, 8, "4"), (4, 2, "1")])
def test_every_system_gets_the_same_threads(hosts: int, cores: int, threads: str) -> None:
    assert set(_data_parallel.environment(hosts, cores).values()) == {threads}


def test_figures_of_a_model() -> None:
    seconds = {
        OURS: [0.1, 0.2],
        _data_parallel.CAPTURED: [0.1, 0.1],
        "torchrun, DDP": [0.2, 0.2],
        "one host's part alone": [0.05, 0.05],
        "without exchange": [0.15, 0.15],
    }
    costs = {"submitting": {OURS: [1.0, 3.0], _data_parallel.CAPTURED: [0.5, 0.5]}}
    records = _by_variant(_data_parallel.figures("gpt", Setting("data-parallel", 2, 2), 32, seconds, costs))
    captured = records[OURS, "gpt: captured, times DDP's samples/s"]
    assert captured.median == pytest.approx(2) and WORKLOADS["data-parallel"].goal_of(captured) is not None
    assert records["torchrun, DDP", "gpt: samples"].median == pytest.approx(160)
    ratio = records[OURS, "gpt: times DDP's samples/s"]
    assert ratio.median == pytest.approx(1.5) and ratio.repeats == 2
    assert WORKLOADS["data-parallel"].goal_of(ratio) is not None
    assert records[OURS, "gpt: a step, submitting"].median == pytest.approx(2)
    assert records[OURS, "gpt: a step, one host's part alone"].median == pytest.approx(50)
    assert records["torchrun, DDP", "gpt: a step, without exchange"].median == pytest.approx(150)


def test_systems_that_do_not_compute_the_same_are_not_compared() -> None:
    _data_parallel.check_losses({"a": 2.001, "b": 2.002})
    with pytest.raises(RuntimeError, match="agree on the loss"):
        _data_parallel.check_losses({"a": 2.0, "b": 2.1})


def test_a_timed_process_keeps_what_it_was_told() -> None:
    asked: list[Any] = []

    def ask(request: Any) -> dict[str, float]:
        asked.append(request)
        return {"seconds": 0.5, "submit_seconds": 0.1 * len(asked), "loss": 1.0}

    timed = _data_parallel.Timed(ask, {"steps": 10})
    assert [timed.seconds_per_step() for _ in range(3)] == [0.05] * 3
    assert timed.milliseconds("submit_seconds", 2) == pytest.approx([20.0, 30.0])
    assert asked == [{"steps": 10}] * 3


@pytest.mark.parametrize("model", _data_parallel.MODELS)
def test_the_hosts_parts_make_the_whole_batch(model: str) -> None:
    samples = SAMPLES_PER_HOST[model]
    whole = next(iter(Batches(model, 2, slice(None))))
    parts = [next(iter(Batches(model, 2, slice(i * samples, (i + 1) * samples)))) for i in range(2)]
    for column in range(2):
        assert torch.equal(whole[column], torch.cat([part[column] for part in parts]))


def test_the_loop_trains() -> None:
    model, optimizer = make("digits")
    before = [parameter.detach().clone() for parameter in model.parameters()]
    answer = Loop(step_of(model, optimizer), Batches("digits", 1, slice(None))).answer({"steps": 3})
    assert 0 < answer["submit_seconds"] <= answer["seconds"]
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
