"""Devices whose memory the host cannot read and whose arrays lie in another order than the host's, as TPUs' do.

The plugin is built for tests (``csrc/testing/plugin/far_memory_plugin.cc``). It takes streamed bytes as they lie on the
device, so that values come out wrong unless the worker has them converted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ptpathways.launch import local
from tests.proc import far_memory_basis as basis

# Some in one message, some in several pieces: of odd sizes, and with dimensions of 0 and 1.
SHAPES: list[tuple[int, ...]] = [(), (7,), (300_001,), (5, 3), (1, 4), (4, 0), (640, 1023), (3, 5, 7), (1, 129, 2, 65)]


@pytest.fixture(scope="module")
def plugin() -> Iterator[str]:
    with basis.built_plugin() as path:
        yield path


@pytest.fixture(scope="module")
def cluster(plugin: str) -> Iterator[local.LocalCluster]:
    with basis.two_hosts(plugin) as cluster:
        yield cluster


def values_of(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_], ids=lambda dtype: dtype.__name__)
def test_values_come_back_as_they_were_sent(cluster: local.LocalCluster, shape: tuple[int, ...], dtype: Any) -> None:
    sent = values_of(shape, dtype)
    for device in (0, 3):
        got = cluster.session.put(sent, device).result(basis.TIMEOUT_S)
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
        np.testing.assert_array_equal(result.result(basis.TIMEOUT_S), [10, 20, 30])


@pytest.mark.parametrize("shape", [(640, 1023), (9, 5)], ids=str)
@pytest.mark.parametrize("device", [1, 2], ids=["same host", "other host"])
def test_copies_hold_what_was_copied(cluster: local.LocalCluster, shape: tuple[int, ...], device: int) -> None:
    value = cluster.session.put(values_of(shape), 0)
    np.testing.assert_array_equal(value.copy_to(device).copy_to(3).result(basis.TIMEOUT_S), values_of(shape))


@pytest.mark.timeout(300)
def test_a_loop_on_one_slice_and_its_weights_on_another_are_as_in_eager(plugin: str) -> None:
    basis.check_loop_is_as_in_eager(plugin)
