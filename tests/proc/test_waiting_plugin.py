"""A plugin whose Execute makes its caller wait for the arguments, as XLA's CUDA client can: the worker must not sleep.

The plugin is built for tests (``csrc/testing/plugin/far_memory_plugin.cc``, with ``PW_TEST_EXECUTE_WAITS``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ptpathways import core, native, platforms, testing
from ptpathways.launch import local
from ptpathways.testing import kill, resume, suspend

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
ADD = b"""module @add { func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %y : tensor<4xf32>
  return %0 : tensor<4xf32>
} }"""


@pytest.fixture(scope="module")
def plugin() -> Iterator[str]:
    if shutil.which(os.environ.get("PW_CXX", "g++")) is None:
        pytest.skip("the test plugin is compiled here, and there is no C++ compiler")
    command = [sys.executable, str(ROOT / "tools" / "native_build.py"), "test-plugin", "far_memory_plugin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    patch = pytest.MonkeyPatch()
    patch.setenv("PW_TEST_PJRT_PLUGIN", platforms.find_plugin("cpu").path)
    patch.setenv("PW_TEST_EXECUTE_WAITS", "1")
    yield done.stdout.split()[-1]
    patch.undo()


@pytest.fixture
def cluster(plugin: str) -> Iterator[local.LocalCluster]:
    with local.start(core.Options(hosts=2, devices_per_host=2, platform="far", plugin=plugin)) as cluster:
        yield cluster
    assert not testing.leftovers(cluster)


def _add(cluster: local.LocalCluster) -> native.Function:
    return cluster.session.register(ADD, "mlir", name="add", outputs=[("f32", [4])])


def test_the_worker_finds_out_and_says_so(cluster: local.LocalCluster) -> None:
    for host in ("host0", "host1"):
        log = Path(cluster.runtime_dir, f"{host}.log").read_text()
        assert "enqueued when their arguments have arrived, because the plugin makes who enqueues one wait" in log


def test_a_lost_sender_is_heard_of_while_a_computation_waits_for_its_bytes(cluster: local.LocalCluster) -> None:
    """An engine that slept in Execute would hear neither of the loss nor of anything else."""
    session, add = cluster.session, _add(cluster)
    here = session.put(np.ones(4, np.float32), 2)
    (right,) = session.run(add, [here, here], 2)
    np.testing.assert_array_equal(right.result(TIMEOUT_S), [2, 2, 2, 2])
    far = session.put(np.ones(4, np.float32), 0)
    far.wait(TIMEOUT_S)
    suspend(cluster, "host0")
    (waiting,) = session.run(add, [far.copy_to(2), here], 2)
    (behind,) = session.run(add, [here, here], 2)
    assert not waiting.done()
    kill(cluster, "host0")
    with pytest.raises(native.NativeError, match="host0") as caught:
        waiting.result(TIMEOUT_S)
    assert caught.value.code == "UNAVAILABLE"
    np.testing.assert_array_equal(behind.result(TIMEOUT_S), [2, 2, 2, 2])


def test_what_waits_goes_on_when_its_bytes_come(cluster: local.LocalCluster) -> None:
    session, add = cluster.session, _add(cluster)
    here = session.put(np.ones(4, np.float32), 2)
    far = session.put(np.full(4, 3, np.float32), 0)
    for value in (here, far):
        value.wait(TIMEOUT_S)
    suspend(cluster, "host0")
    results = []
    value = here
    for _ in range(50):  # each behind the other
        (value,) = session.run(add, [far.copy_to(2), value], 2)
        results.append(value)
    assert not any(result.done() for result in results)
    resume(cluster, "host0")
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result.result(TIMEOUT_S), np.full(4, 1 + 3 * (number + 1), np.float32))


@pytest.mark.timeout(300)
def test_a_loop_and_its_weights_on_another_slice_are_as_in_eager(plugin: str) -> None:
    pytest.importorskip("torch_xla")
    command = [sys.executable, "-m", "tests.proc.train_on_far_memory", plugin]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.split() == ["right"]
