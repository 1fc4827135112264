"""Who has drawn random numbers on the CPU."""

from __future__ import annotations

import copy
import copyreg
import pickle
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from ptpathways.frontend.capture.recording import _cpu_draws
from ptpathways.frontend.capture.recording._cpu_draws import Draws, loading

WAIT_S = 30.0


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: Any) -> None:
    """The threads of the test run itself do not draw."""
    there = set(threading.enumerate())
    everybody = threading.enumerate
    mine = threading.current_thread()
    monkeypatch.setattr(threading, "enumerate", lambda: [t for t in everybody() if t not in there or t is mine])


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (random.random, "random"),
        (lambda: np.random.rand(), "numpy.random"),
        (lambda: torch.rand(1), "torch's generator of the CPU"),
    ],
)
def test_a_draw_is_seen(draw: Callable[[], Any], name: str) -> None:
    with Draws() as draws:
        draw()
    assert draws.moved == (name,) and draws.certain


def test_generators_of_ones_own_and_restored_states_are_no_draws() -> None:
    with Draws() as draws:
        random.Random(1).random()
        np.random.default_rng(1).random()
        with torch.random.fork_rng(devices=[]):
            torch.rand(1)
    assert not draws.moved and draws.certain


def test_new_generators_whose_draws_nobody_sees_are_told() -> None:
    own, bits = random.Random(1), np.random.PCG64(1)
    before = dict(copyreg.dispatch_table)
    for make, kind in (
        (lambda: copy.deepcopy([own]), "a copy of a random.Random"),
        (lambda: pickle.loads(pickle.dumps(own)), "a copy of a random.Random"),
        (lambda: copy.copy(np.random.default_rng(1)), "a copy of a numpy.random._generator.Generator"),
        (lambda: pickle.dumps(np.random.RandomState(1)), "a copy of a numpy.random.mtrand.RandomState"),
        (lambda: copy.deepcopy(bits), "a copy of a numpy.random._pcg64.PCG64"),
        (random.Random, "a newly seeded random.Random"),
    ):
        told: list[str] = []
        with _cpu_draws.unseen(told.append):
            make()
            assert random.Random(3).random() == random.Random(3).random()
        seen = list(told)
        make()
        assert told == seen and told[0] == kind
    assert before == copyreg.dispatch_table and copy.deepcopy(own).random() == own.random()


def test_copies_that_other_threads_make_are_theirs() -> None:
    told: list[str] = []
    with _cpu_draws.unseen(told.append):
        thread = threading.Thread(target=lambda: copy.deepcopy([random.Random(), np.random.default_rng(1)]))
        thread.start()
        thread.join(WAIT_S)
    assert told == []


def test_what_a_loader_draws_is_not_taken_for_the_calls() -> None:
    """One that is loading is waited for, and one that wants to load waits."""
    inside, go_on, drawn = threading.Event(), threading.Event(), []

    def load() -> None:
        for _ in range(2):
            with loading():
                inside.set()
                assert go_on.wait(WAIT_S)
                drawn.append(random.random())

    thread = threading.Thread(target=load, name="pw-feed", daemon=True)
    thread.start()
    assert inside.wait(WAIT_S)
    go_on.set()
    with Draws() as draws:
        assert len(drawn) in (1, 2)
        seen = len(drawn)
        sum(range(10_000))
        assert len(drawn) == seen
    assert not draws.moved and draws.certain
    thread.join(WAIT_S)
    assert len(drawn) == 2


def test_a_call_that_waits_for_a_batch_gets_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(_cpu_draws, "LOADER_WAITS_S", 0.05)
    loaded = threading.Event()

    def load() -> None:
        with loading():
            random.random()
            loaded.set()

    with Draws() as draws:
        threading.Thread(target=load, name="pw-feed", daemon=True).start()
        assert loaded.wait(WAIT_S)
    assert draws.moved == ("random",) and not draws.certain


def test_a_thread_of_the_users_may_have_drawn() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, args=(WAIT_S,), daemon=True)
    thread.start()
    with Draws() as draws:
        random.random()
    stop.set()
    thread.join(WAIT_S)
    assert draws.moved and not draws.certain
