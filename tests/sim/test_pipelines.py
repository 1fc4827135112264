"""Pipelines on simulated devices, over the real control plane: the measured schedule is the planned one."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from ptpathways import schedules
from tests.scenarios import needs_native, outcome_of

SCENARIO = Path(__file__).with_name("pipeline_scenario.py")


@needs_native
@pytest.mark.parametrize("name", schedules.known())
def test_the_measured_schedule_is_the_planned_one(name: str) -> None:
    found = outcome_of(SCENARIO)[name]
    assert found["same_order"], found
    assert found["planned"] == pytest.approx(found["theory"])
    assert found["measured"] == pytest.approx(found["theory"], rel=0.03), found["title"]
    assert f"{name}, measured: " in found["title"] and found["boxes"] >= 4 * 8 * 2
