"""Slices as torch devices, on one cluster of four hosts with two devices each."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.proc import slice_device_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]


@pytest.mark.parametrize("scenario", [scenario.__name__ for scenario in scenarios.SCENARIOS])
def test_a_slice_is_a_device(scenario: str) -> None:
    problem = outcome_of(Path(scenarios.__file__))[scenario]
    assert problem is None, problem
