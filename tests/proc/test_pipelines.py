"""The pipelines of pipeline_scenarios.py, in a process of their own, on real workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proc import pipeline_scenarios as scenarios
from tests.scenarios import outcome_of

CASES = [(group, scenario.__name__) for group, (members, _) in scenarios.GROUPS.items() for scenario in members]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("group", "name"), CASES)
def test_pipelines(group: str, name: str) -> None:
    assert (failure := outcome_of(Path(scenarios.__file__), group)[name]) is None, failure
