"""Devices whose memory the host cannot read and whose arrays lie in another order than the host's, as TPUs' do.

The plugin is built for tests (``csrc/testing/plugin/far_memory_plugin.cc``). It takes streamed bytes as they lie on the
device, so that values come out wrong unless the worker has them converted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptpathways import core, platforms, testing
from ptpathways.launch import local

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
# Some in one message, some in several pieces: of odd sizes, and with dimensions of 0 and 1.
SHAPES: list[tuple[int, ...]] = [(), (7,), (300_001,), (5, 3), (1, 4), (4, 0), (640, 1023), (3, 5, 7), (1, 129, 2, 65)]


@pytest.fixture(scope="module")
def plugin() -> Iterator[str]:
    """The plugin's path; the environment names the cpu plugin under it."""
    if shutil.which(os.environ.get("PW_CXX", "g++")) is None:
        pytest.skip("the test plugin is compiled here, and there is no C++ compiler")
    command = [sys.executable, str(ROOT / "tools" / "native_build.py"), "test-plugin", "far_memory_plugin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    patch = pytest.MonkeyPatch()
    patch.setenv("PW_TEST_PJRT_PLUGIN", platforms.find_plugin("cpu").path)
    yield done.stdout.split()[-1]
    patch.undo()


@pytest.fixture(scope="module")
def cluster(plugin: str) -> Iterator[local.LocalCluster]:
    with local.start(core.Options(hosts=2, devices_per_host=2, platform="far", plugin=plugin)) as cluster:
        yield cluster
    assert not testing.leftovers(cluster)


def values_of(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_], ids=lambda dtype: dtype.__name__)
def test_values_come_back_as_they_were_sent(cluster: local.LocalCluster, shape: tuple[int, ...], dtype: Any) -> None:
    sent = values_of(shape, dtype)
    for device in (0, 3):
        got = cluster.session.put(sent, device).result(TIMEOUT_S)
        np.testing.assert_array_equal(np.asarray(got).reshape(shape), sent)


def test_computations_see_the_values_that_were_sent(cluster: local.LocalCluster) -> None:
    """The second row less the first: wrong as soon as one element lies elsewhere."""
    session = cluster.session
    module = """module @m { func.func public @main(%a: tensor<2x3xf32>) -> tensor<3xf32> {
      %0 = stablehlo.slice %a [0:1, 0:3] : (tensor<2x3xf32>) -> tensor<1x3xf32>
      %1 = stablehlo.slice %a [1:2, 0:3] : (tensor<2x3xf32>) -> tensor<1x3xf32>
      %2 = stablehlo.subtract %1, %0 : tensor<1x3xf32>
      %3 = stablehlo.reshape %2 : (tensor<1x3xf32>) -> tensor<3xf32>
      return %3 : tensor<3xf32>
    } }"""
    function = session.register(module.encode(), "mlir", name="rows", outputs=[("f32", [3])])
    for device in range(4):
        value = session.put(np.array([[1, 2, 3], [11, 22, 33]], np.float32), device)
        (result,) = session.run(function, [value], device)
        np.testing.assert_array_equal(result.result(TIMEOUT_S), [10, 20, 30])


@pytest.mark.parametrize("shape", [(640, 1023), (9, 5)], ids=str)
@pytest.mark.parametrize("device", [1, 2], ids=["same host", "other host"])
def test_copies_hold_what_was_copied(cluster: local.LocalCluster, shape: tuple[int, ...], device: int) -> None:
    value = cluster.session.put(values_of(shape), 0)
    np.testing.assert_array_equal(value.copy_to(device).copy_to(3).result(TIMEOUT_S), values_of(shape))


@pytest.mark.timeout(300)
def test_a_loop_on_one_slice_and_its_weights_on_another_are_as_in_eager(plugin: str) -> None:
    """Uploads, a divided batch, and a copy from rows on one host to columns on another, put together from pieces."""
    pytest.importorskip("torch_xla")
    command = [sys.executable, "-m", "tests.proc.train_on_far_memory", plugin]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.split() == ["right"]
