"""The pure parts of the ``train`` workload, and its loop on the CPU."""

from __future__ import annotations

import pytest
import torch

from ptpathways.bench import _train
from ptpathways.bench._record import Setting
from ptpathways.bench._step_loop import TRAININGS, Loop
from ptpathways.bench._workload import OURS


def test_figures_are_ratios_of_the_same_round() -> None:
    seconds = {
        OURS: [0.2, 0.4],
        _train.CAPTURED: [0.1, 0.2],
        _train.XLA: [0.2, 0.8],
        _train.EAGER: [0.4, 0.4],
    }
    costs = {"client's CPU": {OURS: [20.0, 22.0], _train.CAPTURED: [1.0, 1.0]}}
    records = _train.figures("net", Setting("train", 1, 1), 8, seconds, costs)
    found = {(record.system, record.variant): record.median for record in records}
    assert found[_train.EAGER, "net: samples"] == pytest.approx(20.0)
    assert found[OURS, "net: times torch_xla"] == pytest.approx(1.5)
    assert found[OURS, "net: captured, times torch_xla"] == pytest.approx(3.0)
    assert found[OURS, "net: captured, times eager PyTorch"] == pytest.approx(3.0)
    assert found[_train.CAPTURED, "net: client's CPU"] == pytest.approx(1.0)


def test_systems_that_disagree_are_refused() -> None:
    _train.check_losses({"a": 2.001, "b": 2.002})
    with pytest.raises(RuntimeError, match="agree on the loss"):
        _train.check_losses({"a": 2.0, "b": 2.2})


@pytest.mark.parametrize("training", ["gpt 4/128", "gpt 4/256"])
def test_the_loop_trains_and_the_step_can_be_wrapped(training: str) -> None:
    calls = []

    def wrap(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: object) -> object:
        calls.append((model, optimizer))
        return step

    loop = Loop(training, torch.device("cpu"), wrap=wrap)  # type: ignore[arg-type]
    first, later = loop.block(1), loop.block(3)
    assert len(calls) == 1
    assert later["loss"] != first["loss"]
    assert later["client_seconds"] > 0 and later["submit_seconds"] <= later["seconds"]


def test_every_model_of_the_workload_has_a_training() -> None:
    assert set(_train.MODELS) <= set(TRAININGS)
    assert set(_train.STEPS) == set(_train.MODELS)
