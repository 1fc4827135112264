"""Metrics of loops on clusters: the scenarios of metrics_scenarios.py, each mode in one process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import metrics_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]


@pytest.fixture(scope="module")
def folder() -> Any:
    with tempfile.TemporaryDirectory() as made:
        yield made


def outcome(mode: str, name: str, folder: str) -> Any:
    result = outcome_of(Path(scenarios.__file__), mode, folder)[name]
    assert "error" not in result, result["error"]
    return result


LOOPS = [
    ("together", "logged_before_the_cut"),
    ("together", "logged_after_the_cut"),
    ("single", "logged_after_the_cut"),
]


@pytest.mark.parametrize(("mode", "name"), LOOPS)
def test_a_loop_sends_the_averages_of_its_windows_in_order(mode: str, name: str, folder: str) -> None:
    result = outcome(mode, name, folder)
    losses = result["losses"]
    running = [sum(losses[: index + 1]) for index in range(len(losses))]
    assert [step for step, _ in result["sent"]] == [5, 10, 15, 20, 23]
    for first, (last, values) in zip((0, 5, 10, 15, 20), result["sent"], strict=True):
        assert values["loss"] == pytest.approx(sum(losses[first:last]) / (last - first), rel=1e-4)
        assert values["running"] == pytest.approx(sum(running[first:last]) / (last - first), rel=1e-4)
        assert values["half"] == 0.5
    assert result["came"], "they come without being asked for"


@pytest.mark.parametrize(("mode", "name"), LOOPS)
def test_logging_adds_one_small_computation_and_no_waits(mode: str, name: str, folder: str) -> None:
    result = outcome(mode, name, folder)
    compiled = result["compiled"]
    after_the_first_steps = compiled[2]
    assert compiled[-1] - after_the_first_steps <= 1, "the mean of a window, once"
    assert result["waits"] <= 3, "the thread's fetches are no waits of the loop"
    plain = outcome("together", "not_logged", folder)["compiled"]
    assert plain[-1] == plain[2]


def test_results_of_captured_steps_are_averaged(folder: str) -> None:
    result = outcome("single", "captured_steps", folder)
    losses = result["losses"]
    assert result["replays"] >= 18, "logging does not make a step be traced again"
    assert [step for step, _ in result["sent"]] == [5, 10, 15, 20, 22]
    for first, (last, values) in zip((0, 5, 10, 15, 20), result["sent"], strict=True):
        assert values["loss"] == pytest.approx(sum(losses[first:last]) / (last - first), rel=1e-4)


def test_steps_can_be_given_and_single_values_are_sent_at_once(folder: str) -> None:
    result = outcome("together", "steps_and_every", folder)
    assert result["sent"] == [[1, {"validation": 3.0}], [140, {"a": 120.0}], [150, {"a": 150.0}]]
    assert list(result["latest"].items())[-2:] == [("validation", 3.0), ("a", 150.0)]


def test_sinks_write_and_one_that_fails_is_told_of_once(folder: str) -> None:
    result = outcome("together", "sinks", folder)
    assert result["board"] == [[2, "2.0"], [4, "nan"]]
    assert [(line["step"], line["loss"]) for line in result["lines"]] == [(2, 2.0), (4, "nan")]
    (said,) = result["warnings"]
    assert "the sink Broken failed" in said and "no space left on device" in said


def test_a_run_of_weights_and_biases_has_what_is_logged(folder: str) -> None:
    pytest.importorskip("wandb")
    result = outcome("tracked", "weights_and_biases", folder)
    assert result == {"step": 25, "loss": 23.0, "runs": 1}, "the mean of the last window, 21 to 25"


def test_what_is_no_number_is_refused_by_name(folder: str) -> None:
    vector, plain, text, nothing, sink, every = outcome("together", "refused", folder)
    assert "'odd' of shape [2]" in vector and "'odd' of shape [3]" in plain
    assert "'odd' = 'text'" in text and "'odd' = None" in nothing
    assert "metrics go to TensorBoard" in sink and "at least 1, got 0" in every


def test_progress_without_a_terminal_is_lines(folder: str) -> None:
    result = outcome("together", "progress_in_lines", folder)
    whole, broken = result["lines"]
    assert whole.startswith("epoch 1: 6/6 ") and "samples/s" in whole
    assert "devices busy" in whole and "client waits" in whole
    assert broken.startswith("epoch 1: 0/6 ") and "mean " in broken, "what was logged last"
    assert result["length"] == 6 and result["computed"] > 0


def test_values_that_are_lost_are_told_of_by_their_cause(folder: str) -> None:
    result = outcome("single", "lost", folder)
    assert [values for _, values in result["sent"]] == [{"plain": 1.0}]
    assert any("'loss' of step" in said and "is lost" in said for said in result["warnings"]), result
