"""The functions of program_scenarios.py, in a process of their own, on real workers."""

from __future__ import annotations

import pytest

from tests.proc import program_scenarios as scenarios
from tests.proc.scenario_process import outcome_of


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [scenario.__name__ for scenario in scenarios.SPANNING])
def test_functions_on_several_hosts(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert (failure := outcome_of("spanning", tmp_path_factory)[name]) is None, failure


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [scenario.__name__ for scenario in scenarios.FUNCTIONS])
def test_functions(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert (failure := outcome_of("functions", tmp_path_factory)[name]) is None, failure
