"""Simulated clusters for tests, one after the other: a process has one embedded controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ptpathways import core
from ptpathways.launch import simulated

StartSimulated = Callable[..., simulated.SimulatedCluster]


@pytest.fixture
def start_simulated() -> Iterator[StartSimulated]:
    """Starts simulated clusters from the fields of ``core.Simulated``."""
    started: list[simulated.SimulatedCluster] = []

    def start(**fields: object) -> simulated.SimulatedCluster:
        started.append(simulated.start(core.Options(simulated=core.Simulated(**fields))))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()
