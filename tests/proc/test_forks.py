"""A process that was forked from a client's: it hears that it cannot use the devices, and ends as it wants to."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch_xla")

from tests.proc import fork_scenarios as scenarios
from tests.proc.conftest import StartCluster
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]
WAIT_S = 30.0
SAID = "this process was forked from process"


@pytest.mark.parametrize("name", ["cpu", "item", "tolist", "print", "upload", "scalar", "init", "step"])
def test_a_child_that_uses_the_devices_hears_why_it_cannot(name: str) -> None:
    code, said = outcome_of(Path(scenarios.__file__))[name]
    assert SAID in said and 'method "spawn"' in said
    assert code == 7


@pytest.mark.parametrize("name", ["nothing", "drop", "shutdown"])
def test_a_child_that_does_not_use_them_ends_in_order(name: str) -> None:
    assert outcome_of(Path(scenarios.__file__))[name] == [7, ""]


def test_a_loaders_worker_that_was_given_tensors_of_devices_is_told_of_in_the_loop() -> None:
    found = outcome_of(Path(scenarios.__file__))
    assert SAID in found["loader"]
    assert found["plain loader"] == [45.0, 145.0]


def test_the_parent_goes_on() -> None:
    assert outcome_of(Path(scenarios.__file__))["parent"] == [190.0, 12.0]


def test_a_forked_child_that_closes_harms_nothing(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2)
    here = cluster.session.put(np.float32(5), 1)
    pid = os.fork()
    if pid == 0:
        try:
            cluster.close("the child ends")
        finally:
            os._exit(7)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert here.result(WAIT_S) == 5
    assert cluster.session.put(np.float32(6), 0).copy_to(1).result(WAIT_S) == 6
    assert cluster.runtime_dir.exists()
