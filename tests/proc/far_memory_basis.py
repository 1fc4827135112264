"""What tests share that run on the plugin ``csrc/testing/plugin/far_memory_plugin.cc``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ptpathways import core, native, platforms, testing
from ptpathways.launch import local
from ptpathways.testing import resume, suspend

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
_ADD = b"""module @add { func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %y : tensor<4xf32>
  return %0 : tensor<4xf32>
} }"""


@contextmanager
def built_plugin(switch: str = "") -> Iterator[str]:
    """The plugin's path; the environment names the cpu plugin under it, and has ``switch`` set."""
    if shutil.which(os.environ.get("PW_CXX", "g++")) is None:
        pytest.skip("the test plugin is compiled here, and there is no C++ compiler")
    command = [sys.executable, str(ROOT / "tools" / "native_build.py"), "test-plugin", "far_memory_plugin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PW_TEST_PJRT_PLUGIN", platforms.find_plugin("cpu").path)
        if switch:
            patch.setenv(switch, "1")
        yield done.stdout.split()[-1]


@contextmanager
def two_hosts(plugin: str) -> Iterator[local.LocalCluster]:
    """Of two devices each; nothing is left of them."""
    with local.start(core.Options(hosts=2, devices_per_host=2, platform="far", plugin=plugin)) as cluster:
        yield cluster
    assert not testing.leftovers(cluster)


def addition(cluster: local.LocalCluster) -> native.Function:
    """Of two float32 vectors of length 4."""
    return cluster.session.register(_ADD, "mlir", name="add", outputs=[("f32", [4])])


def check_logs(cluster: local.LocalCluster, text: str) -> None:
    """Both workers have said it."""
    for host in ("host0", "host1"):
        assert text in Path(cluster.runtime_dir, f"{host}.log").read_text()


def check_what_waits_goes_on(cluster: local.LocalCluster, copied: bool) -> None:
    """Fifty sums on one host, each of the one before and of bytes of a host that is asleep at first, and their copies
    on another device if ``copied``."""
    session, add = cluster.session, addition(cluster)
    here = session.put(np.ones(4, np.float32), 2)
    far = session.put(np.full(4, 3, np.float32), 0)
    for value in (here, far):
        value.wait(TIMEOUT_S)
    suspend(cluster, "host0")
    results = []
    value = here
    for _ in range(50):  # each behind the other
        (value,) = session.run(add, [far.copy_to(2), value], 2)
        results.append(value.copy_to(3) if copied else value)
    assert not any(result.done() for result in results)
    resume(cluster, "host0")
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result.result(TIMEOUT_S), np.full(4, 1 + 3 * (number + 1), np.float32))


def check_loop_is_as_in_eager(plugin: str) -> None:
    """Uploads, a divided batch, and a copy from rows on one host to columns on another, put together from pieces."""
    pytest.importorskip("torch_xla")
    command = [sys.executable, "-m", "tests.proc.train_on_far_memory", plugin]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.split() == ["right"]
