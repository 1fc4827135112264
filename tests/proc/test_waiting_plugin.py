"""A plugin whose Execute makes its caller wait for the arguments, as XLA's CUDA client can: the worker must not sleep.

The plugin is built for tests (``csrc/testing/plugin/far_memory_plugin.cc``, with ``PW_TEST_EXECUTE_WAITS``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ptpathways import native
from ptpathways.launch import local
from ptpathways.testing import kill, suspend
from tests.proc import far_memory_basis as basis


@pytest.fixture(scope="module")
def plugin() -> Iterator[str]:
    with basis.built_plugin("PW_TEST_EXECUTE_WAITS") as path:
        yield path


@pytest.fixture
def cluster(plugin: str) -> Iterator[local.LocalCluster]:
    with basis.two_hosts(plugin) as cluster:
        yield cluster


def test_the_worker_finds_out_and_says_so(cluster: local.LocalCluster) -> None:
    basis.check_logs(
        cluster, "enqueued when their arguments have arrived, because the plugin makes who enqueues one wait"
    )


def test_a_lost_sender_is_heard_of_while_a_computation_waits_for_its_bytes(cluster: local.LocalCluster) -> None:
    """An engine that slept in Execute would hear neither of the loss nor of anything else."""
    session, add = cluster.session, basis.addition(cluster)
    here = session.put(np.ones(4, np.float32), 2)
    (right,) = session.run(add, [here, here], 2)
    np.testing.assert_array_equal(right.result(basis.TIMEOUT_S), [2, 2, 2, 2])
    far = session.put(np.ones(4, np.float32), 0)
    far.wait(basis.TIMEOUT_S)
    suspend(cluster, "host0")
    (waiting,) = session.run(add, [far.copy_to(2), here], 2)
    (behind,) = session.run(add, [here, here], 2)
    assert not waiting.done()
    kill(cluster, "host0")
    with pytest.raises(native.NativeError, match="host0") as caught:
        waiting.result(basis.TIMEOUT_S)
    assert caught.value.code == "UNAVAILABLE"
    np.testing.assert_array_equal(behind.result(basis.TIMEOUT_S), [2, 2, 2, 2])


def test_what_waits_goes_on_when_its_bytes_come(cluster: local.LocalCluster) -> None:
    basis.check_what_waits_goes_on(cluster, copied=False)


@pytest.mark.timeout(300)
def test_a_loop_and_its_weights_on_another_slice_are_as_in_eager(plugin: str) -> None:
    basis.check_loop_is_as_in_eager(plugin)
