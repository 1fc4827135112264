"""A loop compiles its step once: the loops of first_step_scenarios.py, for each optimizer of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import first_step_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]

ONCE = [[1, 0]] + [[0, 0]] * (scenarios.STEPS - 1)
TWICE = {"SGD, dampening", "a subclass of Adam", "Adafactor", "Rprop"}
"""State that only the first step knows; code of its own; numbers that are 0 or 1 in the first steps only; state that
the first step replaces by its gradients."""


def outcome(what: str, devices: str, *more: str) -> Any:
    return outcome_of(Path(scenarios.__file__), what, devices, *more)


def steps_of(compiled: list[list[int]]) -> list[int]:
    """Step programs, per step."""
    return [steps for steps, _ in compiled]


@pytest.mark.parametrize("name", sorted(scenarios.OPTIMIZERS.keys() - TWICE))
def test_every_optimizer_of_torch_compiles_its_step_once_and_computes_the_same(name: str) -> None:
    result = outcome("optimizers", "1")[name]
    assert steps_of(result["compiled"]) == steps_of(ONCE)
    assert not any(others for _, others in result["compiled"][1:]), "what makes the state belongs to the first step"
    assert result["equal"], "bit for bit what an optimizer computes that makes its state in its first step"
    assert result["from eager"] < 1e-6


@pytest.mark.parametrize("name", sorted(TWICE))
def test_what_cannot_be_proven_equal_is_left_alone(name: str) -> None:
    result = outcome("optimizers", "1")[name]
    assert result["equal"] and not any(map(any, result["compiled"][2:]))
    assert sum(steps_of(result["compiled"])) > 1


@pytest.mark.parametrize("name", ["moved", "made_on_the_devices", "captured", "with_a_closure", "divided"])
def test_loops_of_every_kind_compile_once(name: str) -> None:
    result = outcome("loops", "2")[name]
    assert steps_of(result) == steps_of(ONCE)
    assert not any(others for _, others in result[1:])


def test_the_first_momentum_is_the_first_gradient_to_the_bit() -> None:
    assert outcome("loops", "2")["zeros_and_nan"]


def test_a_value_that_is_read_in_the_middle_cuts_the_step_in_two_that_compile_once_each() -> None:
    assert steps_of(outcome("loops", "2")["read_in_the_middle"]) == [2] + [0] * (scenarios.STEPS - 1)


def test_a_thawed_layer_gets_its_state_before_the_step_that_uses_it() -> None:
    assert steps_of(outcome("loops", "2")["frozen_then_thawed"]) == steps_of(ONCE) * 2


@pytest.mark.parametrize(("key", "programs"), [("llama", 1), ("vision-transformer", 1), ("gpt2", 2)])
def test_models_of_libraries_compile_at_their_first_step_only(key: str, programs: int) -> None:
    """transformers' GPT-2 reads a value in its forward pass, which cuts the step in two."""
    pytest.importorskip("transformers")
    pytest.importorskip("torchvision")
    compiled = outcome("models", "1", "gpt2", "llama", "vision-transformer")[key]
    assert steps_of(compiled) == [programs] + [0] * (scenarios.STEPS - 1)
