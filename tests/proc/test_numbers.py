"""Loops whose Python numbers move (number_scenarios.py): right, and compiled once for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import number_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]

SIZES = [("1", "1"), ("2", "2")]
MOVED = "the computation takes it as an argument from now on"


def outcome(size: tuple[str, str], name: str) -> Any:
    result = outcome_of(Path(scenarios.__file__), *size)[name]
    assert not result["error"], result["error"]
    return result


@pytest.mark.parametrize("size", SIZES, ids="x".join)
@pytest.mark.parametrize("name", [scenario.__name__ for scenario in scenarios.SCENARIOS])
def test_every_number_gives_what_the_cpu_gives(size: tuple[str, str], name: str) -> None:
    assert outcome(size, name)["off"] < 1e-5


@pytest.mark.parametrize("size", SIZES, ids="x".join)
@pytest.mark.parametrize(
    "name",
    [
        "rows_are_written_and_read",
        "several_rows_are_written_at_moving_places",
        "advantages_from_the_end",
        "actions_are_drawn_and_copied",
    ],
)
def test_what_was_compiled_once_serves_all_numbers(size: tuple[str, str], name: str) -> None:
    assert all(hint.startswith(MOVED) for _, hint in outcome(size, name)["again"])
    assert len(outcome(size, name)["again"]) <= 2


@pytest.mark.parametrize("size", SIZES, ids="x".join)
def test_where_one_computation_costs_more_each_number_keeps_its_own(size: tuple[str, str]) -> None:
    again = outcome(size, "one_of_many_products")["again"]
    assert len(again) >= 4 and not any(hint.startswith(MOVED) for run, hint in again if run > 4)


def test_the_numbers_go_where_a_slice_goes() -> None:
    assert outcome(("2", "2"), "a_slice_moves_between_two_numbers")["off"] == 0
