"""The pipelines of the scenario programs, each in a process of its own, on real workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proc import pipeline_changes as changes
from tests.proc import pipeline_host_scenarios as over_hosts
from tests.proc import pipeline_mistakes as mistakes
from tests.proc import pipeline_scenarios as scenarios
from tests.proc import pipeline_updates as updates
from tests.scenarios import limited, outcome_of

GROUPS = {
    "training": (scenarios, scenarios.TRAINING),
    "handling": (scenarios, scenarios.HANDLING),
    "mistakes": (mistakes, mistakes.SCENARIOS),
    "changes": (changes, changes.SCENARIOS),
    "updates": (updates, updates.SCENARIOS),
}
CASES = [(group, scenario.__name__) for group, (_, members) in GROUPS.items() for scenario in members]


@limited
@pytest.mark.parametrize(("group", "name"), CASES)
def test_pipelines(group: str, name: str) -> None:
    assert (failure := outcome_of(Path(str(GROUPS[group][0].__file__)), group)[name]) is None, failure


@limited
@pytest.mark.parametrize(
    ("hosts", "name"), [(hosts, one.__name__) for hosts, members in over_hosts.ON_HOSTS.items() for one in members]
)
def test_pipelines_and_hosts(hosts: int, name: str) -> None:
    assert (failure := outcome_of(Path(over_hosts.__file__), str(hosts))[name]) is None, failure
