"""What a call of a step is found to have changed, and what Python makes of an optimizer's options. No devices."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from ptpathways.frontend.capture.objects import _walk
from ptpathways.frontend.capture.recording import _effects, _probe
from ptpathways.frontend.capture.recording._watch import Seen, watch
from ptpathways.frontend.plans._wiring import Uncapturable


class Trainer:
    """What a step belongs to."""

    def __init__(self) -> None:
        self.calls = 0
        self.fresh = True
        self.history = [1.0]
        self.row = [1.0, 2.0]
        self.table: dict[str, float] = {}
        self.array = np.zeros(3)
        self.members = {1}
        self.own = random.Random(1)
        self.offset = torch.zeros(2)
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)


def effects_of(body: Callable[[Trainer], Any]) -> _effects.Effects:
    trainer = Trainer()

    def step() -> None:
        body(trainer)

    before = _walk.walk(step, ())
    rates = before.rates()
    step()
    return _effects.effects(before, _walk.walk(step, ()), rates)


def _count(trainer: Trainer) -> None:
    trainer.calls += 1
    trainer.fresh = False
    trainer.row[1] = 5.0


def _evaluate(trainer: Trainer) -> None:
    trainer.model.eval()


def test_numbers_and_switches_are_left_behind() -> None:
    assert list(effects_of(_count).settings.values()) == [1, False, 5.0]
    assert set(effects_of(_evaluate).settings.values()) == {False}
    assert not effects_of(lambda trainer: trainer.model(torch.ones(2))).settings


REFUSED: dict[str, tuple[Callable[[Trainer], Any], str]] = {
    "a list": (lambda trainer: trainer.history.append(2.0), "the length of"),
    "a dictionary": (lambda trainer: trainer.table.update(a=1.0), "the size of"),
    "an array": (lambda trainer: trainer.array.fill(2.0), "what is in"),
    "a set": (lambda trainer: trainer.members.add(2), "what is in"),
    "a generator": (lambda trainer: trainer.own.random(), "draws from"),
    "a tensor of the CPU": (lambda trainer: trainer.offset.add_(1), "a tensor of the CPU"),
    "another object": (lambda trainer: setattr(trainer, "model", nn.Linear(2, 2)), "model"),
    "the rate": (lambda trainer: trainer.schedule.step(), "lr"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_replay_would_not_do_is_named(what: str) -> None:
    body, said = REFUSED[what]
    with pytest.raises(Uncapturable, match=said):
        effects_of(body)


def probe(value: float) -> tuple[Any, _probe.Log]:
    log = _probe.Log()
    return _probe.Probe.of(value, "lr", lambda rates: rates["lr"], log), log


def test_a_probe_computes_as_its_number_and_notes_how() -> None:
    lr, log = probe(0.1)
    made = 1 - lr * 0.5
    assert float.__add__(made, 0.0) == 1 - 0.1 * 0.5
    ((text, compute),) = [item for item in log.derived.items() if "sub" in item[0]]
    assert compute({"lr": 0.2}) == 1 - 0.2 * 0.5 and log.values[text] == 0.95
    assert torch.equal(torch.ones(2) * lr, torch.ones(2) * 0.1)
    assert torch.equal(torch.ones(2).add(torch.ones(2), alpha=-lr), torch.ones(2) * 0.9)


@pytest.mark.parametrize(
    "ask",
    [lambda lr: lr > 0.05, lambda lr: 0.2 > lr > 0, lambda lr: lr * 2 > 0.1, lambda lr: bool(lr), lambda lr: lr != 0],
)
def test_a_comparison_of_a_probe_holds_as_long_as_it_comes_out_the_same(ask: Callable[[Any], bool]) -> None:
    lr, log = probe(0.1)
    assert ask(lr) is ask(0.1) is True
    assert all(one.still({"lr": 0.08}) for one in log.predicates.values())
    assert not all(one.still({"lr": 0.0}) for one in log.predicates.values())


@pytest.mark.parametrize(
    "ask", [int, round, str, repr, hash, math.floor, lambda lr: f"{lr:.2f}", lambda lr: {0.1: 1}[lr], copy.deepcopy]
)
def test_a_probe_that_python_reads_is_pinned(ask: Callable[[Any], Any]) -> None:
    lr, log = probe(0.1)
    assert ask(lr) == ask(0.1)
    assert log.predicates and not all(one.still({"lr": 0.1001}) for one in log.predicates.values())
    assert all(one.still({"lr": 0.1}) for one in log.predicates.values())


def test_options_are_probes_inside_and_numbers_afterwards() -> None:
    trainer = Trainer()
    group = trainer.optimizer.param_groups[0]
    surroundings, log = _walk.walk(lambda: trainer.optimizer.step(), ()), _probe.Log()
    with _probe.probing(surroundings, log):
        assert isinstance(group["lr"], _probe.Probe)
        group["momentum"] = group["lr"] * 2
    assert type(group["lr"]) is float and type(group["momentum"]) is float
    assert (group["lr"], group["momentum"]) == (0.1, 0.2)


def test_reads_of_arguments_are_seen() -> None:
    lengths, x, other = torch.tensor([3, 4]), torch.ones(2, 3), torch.ones(2)
    for read in (
        lambda: int(lengths.max()),
        lambda: lengths.tolist(),
        lambda: lengths.numpy(),
        lambda: bool((lengths > 2).all()),
        lambda: [int(one) for one in lengths],
        lambda: torch.equal(lengths, lengths + 1),
    ):
        seen = Seen()
        with watch([x, lengths], seen):
            read()
        assert set(seen.read) == {1}, read
    seen = Seen()
    with watch([x, lengths], seen):
        assert x.shape[0] == len(lengths) == lengths.numel() and x.dtype is torch.float32 and other.sum() > 1
    assert not seen.read and [tensor is other for tensor, _ in seen.others] == [True]
