"""Compiles after warm-up are told of with their cause: the loops of recompile_scenarios.py, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import recompile_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]


def outcome(name: str) -> Any:
    result = outcome_of(Path(scenarios.__file__), "2")[name]
    assert not result["error"] or name == "beyond_the_limit", result["error"]
    return result


@pytest.mark.parametrize(
    "name", ["adamw_with_a_schedule", "bucketed_lengths", "reads_at_every_step", "reads_inside_the_optimizer"]
)
def test_a_plain_loop_is_told_of_nothing(name: str) -> None:
    result = outcome(name)
    assert result["recompiles"] == []
    assert not [said for said in result["warnings"] if said[0] == "RecompileWarning"]


@pytest.mark.parametrize(
    ("name", "run", "kind", "parts"),
    [
        ("last_batch_uneven", 5, "shape", ["`x` was f32[8,6] and is f32[4,6]", "drop_last=True"]),
        ("lengths_vary", 5, "shape", ["`batch['tokens']` was s64[4,16]", "dimension 1: 16 -> 24", "pw.bucketed()"]),
        ("type_changes", 6, "dtype", ["`x` was f32[8,6] and is f16[8,6]"]),
        ("number_becomes_zero", 7, "number", ["now exactly 0", "0, 1 and -1"]),
        ("number_baked_in", 5, "number", ["2.5 and are 3.25, 4.25"]),
        ("rounds_change", 5, "structure", ["operations, and the most similar one", "number of rounds"]),
        ("tensor_kept", 5, "kept", ["1 more than before", "pw.log"]),
    ],
)
def test_each_compile_is_told_of_once_with_its_cause(name: str, run: int, kind: str, parts: list[str]) -> None:
    result = outcome(name)
    (found,) = result["recompiles"]
    ((_, said, here, line),) = [warning for warning in result["warnings"] if warning[0] == "RecompileWarning"]
    assert (found["run"], found["kind"]) == (run, kind), found
    assert here and found["line"].endswith(f"recompile_scenarios.py:{line}"), "the user's line"
    assert "optimizer.step()" in Path(scenarios.__file__).read_text().splitlines()[line - 1]
    assert f"compiled again at run {run} of this line" in said
    for part in parts:
        assert part in said


def test_a_number_that_becomes_an_argument_is_listed_and_not_told_of() -> None:
    result = outcome("slice_moves")
    (found,) = result["recompiles"]
    assert (found["run"], found["kind"]) == (5, "slice")
    assert "took [0:8, 2:8] and takes [0:8, 3:9]" in found["cause"]
    assert "as an argument from now on" in found["hint"]
    assert not [said for said in result["warnings"] if said[0] == "RecompileWarning"]


def test_beyond_the_limit_it_is_raised_if_asked_for() -> None:
    assert "TooManyRecompiles" in outcome("beyond_the_limit")["error"]
    assert "recompile_limit is 7" in outcome("beyond_the_limit")["error"]


def test_a_line_that_reads_at_every_step_is_told_of_once_with_its_cost() -> None:
    ((_, said, here, line),) = [w for w in outcome("reads_at_every_step")["warnings"] if w[0] == "WaitWarning"]
    assert here and ".item()" in Path(scenarios.__file__).read_text().splitlines()[line - 1]
    assert " ms each, " in said and "pw.log(" in said
