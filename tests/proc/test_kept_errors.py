"""A plugin that keeps a failed transfer's error to itself, as XLA's CUDA client does.

What was enqueued on the value runs on whatever lies in its memory, and succeeds. The worker must not call that a
result.

The plugin is built for tests (``csrc/testing/plugin/far_memory_plugin.cc``, with ``PW_TEST_KEEPS_ERRORS``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ptpathways import native
from ptpathways.launch import local
from ptpathways.testing import kill, suspend
from tests.proc import far_memory_basis as basis


@pytest.fixture(scope="module")
def plugin() -> Iterator[str]:
    with basis.built_plugin("PW_TEST_KEEPS_ERRORS") as path:
        yield path


@pytest.fixture
def cluster(plugin: str) -> Iterator[local.LocalCluster]:
    with basis.two_hosts(plugin) as cluster:
        yield cluster


def _fails_naming_host0(ask: Callable[[], object]) -> None:
    with pytest.raises(native.NativeError, match="host0") as caught:
        ask()
    assert caught.value.code == "UNAVAILABLE"


def test_the_worker_finds_out_and_says_so(cluster: local.LocalCluster) -> None:
    basis.check_logs(
        cluster, "enqueued when the values have arrived that they take from transfers, because the plugin does not"
    )


def test_nothing_is_computed_out_of_what_a_lost_host_did_not_send(cluster: local.LocalCluster) -> None:
    session, add = cluster.session, basis.addition(cluster)
    here, far = (session.put(np.ones(4, np.float32), device) for device in (2, 0))
    for value in (here, far):
        value.wait(basis.TIMEOUT_S)
    suspend(cluster, "host0")
    moved = far.copy_to(2)
    (first,) = session.run(add, [moved, moved], 2)
    (second,) = session.run(add, [first, first], 2)
    copied, aside = second.copy_to(3), moved.copy_to(3)
    (third,) = session.run(add, [copied, copied], 3)
    (free,) = session.run(add, [here, here], 2)
    assert not any(value.done() for value in (moved, first, second, copied, aside, third))
    kill(cluster, "host0")
    for value in (moved, first, second, copied, aside, third):
        _fails_naming_host0(lambda value=value: value.wait(basis.TIMEOUT_S))  # type: ignore[misc]
        _fails_naming_host0(lambda value=value: value.result(basis.TIMEOUT_S))  # type: ignore[misc]
    np.testing.assert_array_equal(free.result(basis.TIMEOUT_S), [2, 2, 2, 2])
    (again,) = session.run(add, [here, free], 2)
    np.testing.assert_array_equal(again.result(basis.TIMEOUT_S), [3, 3, 3, 3])


def _on(device: int) -> dict[str, Any]:
    return {"dtype": "f32", "dims": [4], "shards": [0], "devices": [device]}


def _doubled_elsewhere(cluster: local.LocalCluster) -> native.Program:
    """A value of host0 is doubled twice on host1; results: the double, a copy of it on another device, its double."""
    add = basis.addition(cluster)
    plans: list[dict[str, Any]] = [
        {
            "slots": [_on(0)],
            "inputs": [0],
            "outputs": [-1, -1, -1],
            "steps": [{"kind": "send", "node": 0, "slot": 0, "shard": 0, "channel": 0, "host": 1}],
        },
        {
            "slots": [_on(2), _on(2), _on(3), _on(3)],
            "inputs": [-1],
            "outputs": [1, 2, 3],
            "steps": [
                {"kind": "receive", "node": 0, "slot": 0, "shard": 0, "pieces": [{"channel": 0, "host": 0}]},
                {"kind": "execute", "node": 0, "function": 0, "arguments": [0, 0], "results": [1], "donated": []},
                {"kind": "copy", "node": 0, "from_slot": 1, "from_shard": 0, "slot": 2, "shard": 0},
                {"kind": "execute", "node": 0, "function": 0, "arguments": [2, 2], "results": [3], "donated": []},
            ],
        },
    ]
    ports = [{"dtype": "f32", "dims": [4], "devices": [device]} for device in (0, 2, 3, 3)]
    return cluster.session.register_program(
        "elsewhere",
        [plan | {"host": host, "channels": 1, "nodes": ["n"]} for host, plan in enumerate(plans)],
        ports[:1],
        ports[1:],
        functions=[add],
    )


def test_no_step_of_a_program_computes_with_what_a_lost_host_did_not_send(cluster: local.LocalCluster) -> None:
    session = cluster.session
    program = _doubled_elsewhere(cluster)
    far = session.put(np.ones(4, np.float32), 0)
    for result, right in zip(session.run_program(program, [far]), (2, 2, 4), strict=True):
        np.testing.assert_array_equal(result.result(basis.TIMEOUT_S), [right] * 4)
    suspend(cluster, "host0")
    results = session.run_program(program, [far])
    assert not any(result.done() for result in results)
    kill(cluster, "host0")
    for result in results:
        _fails_naming_host0(lambda result=result: result.wait(basis.TIMEOUT_S))  # type: ignore[misc]
        _fails_naming_host0(lambda result=result: result.result(basis.TIMEOUT_S))  # type: ignore[misc]


def test_what_waits_goes_on_when_its_bytes_come(cluster: local.LocalCluster) -> None:
    basis.check_what_waits_goes_on(cluster, copied=True)


@pytest.mark.timeout(300)
def test_a_loop_and_its_weights_on_another_slice_are_as_in_eager(plugin: str) -> None:
    basis.check_loop_is_as_in_eager(plugin)
