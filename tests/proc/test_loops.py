"""The loops of loop_scenarios.py: the numbers of eager PyTorch, and nothing compiled after a loop's third step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import loop_mistakes, loops_of_optimizers
from tests.proc import loop_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]

TOLERANCE = {"mixed_precision": 5e-3, "scaled": 5e-3}
"""Relative, where it is not 2e-4: bfloat16 has 8 bits, and products are rounded in another order."""

FREED_LATE = ("functional", "compiled", "compiled_by_default")
"""PyTorch frees the graph of a backward pass on its own thread, sometimes after the cut behind it."""

COMPILES_LATER = {
    "scaled": "a step is skipped, taken, and taken with a larger scale: three kinds, the last one late",
    **dict.fromkeys(FREED_LATE, "as said above"),
}

STEPS_THAT_COMPILE = {"averaged": 4}
"""Where it is not 3. AveragedModel counts its updates on the devices, and asks whether the count is 0."""


def outcome(name: str) -> Any:
    return outcome_of(Path(scenarios.__file__), "2", "2")[name]


@pytest.mark.parametrize("name", [loop.__name__ for loop in scenarios.LOOPS])
def test_a_loop_gives_the_numbers_of_eager_pytorch(name: str) -> None:
    result = outcome(name)
    assert "error" not in result, result["error"]
    eager, cluster = result["eager"], result["cluster"]
    assert cluster["steps"] == eager["steps"] > 0 and len(eager["numbers"]) > 0
    assert cluster["numbers"] == pytest.approx(eager["numbers"], rel=TOLERANCE.get(name, 2e-4), abs=1e-5)


@pytest.mark.parametrize("name", [loop.__name__ for loop in scenarios.LOOPS])
def test_nothing_is_compiled_after_the_third_step(name: str) -> None:
    for phase, compiled in outcome(name)["cluster"]["compiled"].items():
        if name not in COMPILES_LATER:
            assert sum(compiled[STEPS_THAT_COMPILE.get(name, 3) :]) == 0, (
                f"{phase or name} compiled {compiled} per step"
            )


def test_a_scaler_compiles_no_more_once_every_kind_of_step_has_been() -> None:
    compiled = outcome("scaled")["cluster"]["compiled"][""]
    assert sum(compiled[-4:]) == 0, compiled


@pytest.mark.parametrize("name", FREED_LATE)
def test_a_loop_whose_graphs_are_freed_late_has_few_kinds_of_step(name: str) -> None:
    """One, and another for each part of a graph that may or may not be freed when its step is cut."""
    compiled = outcome(name)["cluster"]["compiled"][""]
    assert sum(compiled) <= 4 < len(compiled), compiled


def test_every_scheduler_of_torch_is_among_them() -> None:
    """A class that torch adds must be added here."""
    from torch.optim import lr_scheduler

    known = {name for name in lr_scheduler.__all__ if name != "LRScheduler"}
    assert known | {"SWALR"} == set(loops_of_optimizers.SCHEDULERS)


EXPECTED = {
    "a_batch_that_stayed_here": r"RuntimeError: .* at .*loop_mistakes\.py:\d+, in Linear\.forward\(\) of 0 \(Linear\): "
    r"input, of shape \(2, 4\) and torch\.float32, is on the CPU\. Bring it there with \.to\(pw\.device\(\)\)",
    "labels_that_stayed_here": r"RuntimeError: .* in cross_entropy\(\): target, of shape \(4,\) and torch\.int64",
    "an_expression_of_the_cpu": r"RuntimeError: .*\.py:\d+: a Float tensor of the CPU that this line makes",
    "an_attribute_that_is_no_buffer": r"RuntimeError: .*\.forward\(\) of 0 \(Mixing\): self\.mixing, of shape \(3, 3\)",
    "a_parameter_on_a_gpu": r"ValueError: prepare\(\) got weight on cuda:0, which is no device of the cluster",
    "an_optimizer_of_another_model": r"UntrainedParameters: SGD\.step\(\) .* group 0 with 4 parameters, the first of "
    r"shape \(5, 4\); no prepared module has them",
    "a_closure_of_another_model": r"UntrainedParameters: SGD\.step\(\) .*; no prepared module has them",
    "a_layer_that_overflows": r"NonFinite: step 4: the output of 0 has values that are NaN or infinite$",
    "a_gpu_without_bfloat16": r"RuntimeError: .* write torch\.autocast\(\"xla\", dtype=torch\.bfloat16\)",
}

WARNED = {
    "a_group_without_gradients": [r"NothingTrainedWarning: SGD.* group 1 with 2 parameters, .* \(3, 5\)\. They stay"],
    "an_autocast_for_another_device": [
        r"IneffectiveAutocastWarning: .*'cpu'.*float32; write torch\.autocast\(\"xla\", dtype=torch\.bfloat16\)",
        r"IneffectiveAutocastWarning: .*'cuda'.*float32; write torch\.autocast\(\"xla\", dtype=torch\.float16\)",
    ],
}


@pytest.mark.parametrize("name", [mistake.__name__ for mistake in loop_mistakes.ALL])
def test_a_mistake_is_named_and_what_is_none_is_let_be(name: str) -> None:
    said = outcome("mistakes")[name]
    assert re.match(EXPECTED.get(name, "$"), said["error"], re.DOTALL), said["error"]
    patterns = WARNED.get(name, [])
    assert len(said["warnings"]) == len(patterns), said["warnings"]
    for pattern, text in zip(patterns, said["warnings"], strict=True):
        assert re.match(pattern, text), text
