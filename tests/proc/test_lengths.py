"""Loops whose arrays grow (length_scenarios.py): right, and compiled once for all lengths up to a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import length_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]

SIZES = [("1", "1"), ("2", "2")]


def outcome(size: tuple[str, str], name: str) -> Any:
    result = outcome_of(Path(scenarios.__file__), *size)[name]
    assert not result["error"], result["error"]
    return result


@pytest.mark.parametrize("size", SIZES, ids="x".join)
@pytest.mark.parametrize("name", [scenario.__name__ for scenario in scenarios.SCENARIOS])
def test_every_length_gives_what_the_cpu_gives(size: tuple[str, str], name: str) -> None:
    assert outcome(size, name)["off"] < 1e-5


@pytest.mark.parametrize(
    "name",
    ["a_cache_grows", "heads_attend_with_a_mask", "numbers_are_chosen_and_appended"],
)
def test_what_was_compiled_once_serves_all_lengths(name: str) -> None:
    assert not outcome(SIZES[0], name)["again"]


def test_a_model_generates_what_it_generates_on_the_cpu() -> None:
    result = outcome(SIZES[0], "generated")
    assert result["same"]
    assert len(result["again"]) <= 2
