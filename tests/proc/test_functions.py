"""The functions of function_scenarios.py, in processes of their own, on real workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proc import function_scenarios as scenarios
from tests.scenarios import limited, outcome_of

PROGRAM = Path(scenarios.__file__)


@limited
@pytest.mark.parametrize("name", [scenario.__name__ for scenario in scenarios.SPANNING])
def test_functions_on_several_hosts(name: str) -> None:
    assert (failure := outcome_of(PROGRAM, "spanning")[name]) is None, failure


@limited
@pytest.mark.parametrize("name", [scenario.__name__ for scenario in scenarios.FUNCTIONS])
def test_functions(name: str) -> None:
    assert (failure := outcome_of(PROGRAM, "functions")[name]) is None, failure
