"""Captured steps on devices used all together, a process per shape of hosts x devices: the numbers of eager PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.proc import captured_mesh_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]

CASES = [(shape, scenario.__name__) for shape, group in scenarios.SCENARIOS.items() for scenario in group]


@pytest.mark.parametrize(("shape", "scenario"), CASES)
def test_a_captured_step_gives_the_numbers_of_eager_pytorch(shape: tuple[int, int], scenario: str) -> None:
    found = outcome_of(Path(scenarios.__file__), *map(str, shape))[scenario]
    assert "error" not in found, found["error"]
    assert len(found["expected"]) > 3
    assert found["captured"] == pytest.approx(found["expected"], rel=1e-4, abs=1e-5)
