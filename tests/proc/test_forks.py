"""A program that forks: the child's end is not the cluster's."""

from __future__ import annotations

import os

import numpy as np

from tests.proc.conftest import StartCluster

WAIT_S = 30.0


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
