"""Captured training steps, in processes of their own: the numbers of eager PyTorch, without tracing."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.proc import capture_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = needs_native

CASES = [(mode, scenario.__name__) for mode, group in scenarios.SCENARIOS.items() for scenario in group]


@limited
@pytest.mark.parametrize(("mode", "scenario"), CASES)
def test_a_captured_step_gives_the_numbers_of_eager_pytorch(mode: str, scenario: str) -> None:
    found = outcome_of(Path(scenarios.__file__), mode)[scenario]
    assert "error" not in found, found["error"]
    assert found["captured"] == pytest.approx(found["eager"], rel=1e-4, abs=1e-5)
