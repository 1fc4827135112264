"""Loops out of a grammar, captured: whatever they leave is what eager PyTorch leaves. More: ``make fuzz-capture``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch_xla")

from tests.fuzz.capture_steps import FOUND
from tests.fuzz.given_pieces import GIVEN
from tests.fuzz.reach_pieces import REACH
from tests.fuzz.sharing_pieces import SHARED
from tests.scenarios import ROOT, needs_native

pytestmark = needs_native


@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", [1000, 2000])
def test_loops_from_a_grammar_leave_what_eager_pytorch_leaves(first: int) -> None:
    totals = run(str(first), "8")
    assert totals["wrong"] == 0 and totals["loops"] >= 6 and totals["replayed"] >= 1


@pytest.mark.timeout(400)
def test_loops_that_were_wrong_once_are_right() -> None:
    totals = run("found")
    assert totals["wrong"] == totals["mismatch"] == 0
    assert totals["loops"] == totals["replayed"] == len(FOUND)


@pytest.mark.timeout(400)
def test_what_a_step_reaches_in_other_ways_is_compared_or_it_is_traced() -> None:
    totals = run("reach")
    assert totals["wrong"] == totals["mismatch"] == 0
    assert totals["loops"] == totals["told"] == len(REACH)


@pytest.mark.timeout(400)
def test_what_a_step_is_given_is_compared_fed_or_traced() -> None:
    totals = run("given")
    assert totals["wrong"] == totals["mismatch"] == 0
    assert totals["loops"] == len(GIVEN) and totals["replayed"] >= 17


@pytest.mark.timeout(400)
def test_tensors_on_one_memory_are_so_in_replays() -> None:
    totals = run("shared")
    assert totals["wrong"] == totals["mismatch"] == 0
    assert totals["loops"] == len(SHARED) and totals["replayed"] >= 12


def run(*arguments: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.capture_steps", *arguments],
        capture_output=True,
        text=True,
        timeout=380,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    totals: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return totals
