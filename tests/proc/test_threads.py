"""Several threads in one program: those that may compute at the same time do, and others get an error before harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import thread_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]
KINDS = pytest.mark.parametrize("kind", ["traced", "captured"])


def outcome(name: str, kind: str) -> Any:
    result = outcome_of(Path(scenarios.__file__))[f"{name} {kind}"]
    assert "error" not in result, result["error"]
    return result


@KINDS
def test_a_thread_that_computes_in_the_middle_of_anothers_step_is_refused_and_the_loop_goes_on(kind: str) -> None:
    found = outcome("evaluation_without_turns", kind)
    assert len(found["said"]) == 1
    assert "thread 'evaluation' computes on xla:0" in found["said"][0] and "'MainThread' does" in found["said"][0]
    assert "thread_scenarios.py" in found["said"][0] and "a lock around each one's step" in found["said"][0]
    assert found["losses"] == scenarios.STEPS and found["off"] < 1e-4


@KINDS
def test_an_evaluation_that_takes_turns_with_the_training_disturbs_nothing(kind: str) -> None:
    found = outcome("evaluation_in_turns", kind)
    assert found["off"] < 1e-4 and found["scores"] > 0
    assert kind == "traced" or found["replays"] > 5


@KINDS
def test_two_threads_train_on_a_slice_each(kind: str) -> None:
    assert outcome("a_slice_for_each", kind)["off"] < 1e-4


@KINDS
def test_a_thread_may_upload_batches_while_another_one_trains(kind: str) -> None:
    found = outcome("a_thread_that_feeds", kind)
    assert found["off"] < 1e-4
    assert kind == "traced" or found["replays"] > 5


@KINDS
def test_a_thread_may_compute_while_the_one_that_began_waits_for_it(kind: str) -> None:
    assert outcome("threads_one_after_the_other", kind)["off"] < 1e-4
