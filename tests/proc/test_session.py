"""A client's session over real workers: runs, values of every type, copies between hosts, order and errors."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptpathways import native
from tests.proc.conftest import ADD_ONE, StartCluster

WAIT_S = 30.0


def test_runs_follow_one_another(start_cluster: StartCluster) -> None:
    session = start_cluster().session
    add_one = session.register(ADD_ONE.encode(), "mlir")
    value = session.put(np.float32(1), 0)
    for _ in range(500):
        (value,) = session.run(add_one, [value], 0)
    assert value.shape == () and value.dtype == "f32"
    assert value.result(WAIT_S) == 501


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (33, 17), (2, 3, 700)])
def test_values_come_back_as_they_went(start_cluster: StartCluster, dtype: str, shape: tuple[int, ...]) -> None:
    session = start_cluster(hosts=2).session
    generator = np.random.default_rng(7)
    array = np.asarray(generator.integers(0, 2, shape)).astype(dtype)
    buffer = session.put(array, 0)
    there = buffer.copy_to(1)
    for held in (buffer, there, there.copy_to(0), buffer.copy_to(0)):
        np.testing.assert_array_equal(held.result(WAIT_S), array)


def test_bulk_bytes_between_workers_pass_neither_client_nor_controller(start_cluster: StartCluster) -> None:
    session = start_cluster(hosts=2).session
    array = np.random.default_rng(0).random(3_000_001)
    buffer = session.put(array, 0)
    buffer.wait(WAIT_S)
    before = session.transfer_stats()
    there = buffer.copy_to(1)
    there.wait(WAIT_S)
    after = session.transfer_stats()
    # The copy is complete, and this process, which holds client and controller, has seen none of its bytes.
    assert after["copies"] - before["copies"] == 1
    assert after["bytes_uploaded"] == before["bytes_uploaded"]
    assert after["bytes_fetched"] == before["bytes_fetched"]
    np.testing.assert_array_equal(there.result(WAIT_S), array)


def test_a_value_freed_while_it_is_read_arrives_whole(start_cluster: StartCluster) -> None:
    session = start_cluster(hosts=2).session
    array = np.arange(2_000_000, dtype=np.float32)
    for _ in range(5):
        there = session.put(array, 0).copy_to(1)  # the upload's handle is dropped at once
        np.testing.assert_array_equal(there.result(WAIT_S), array)


def test_a_broken_module_is_an_error_with_the_compilers_words(start_cluster: StartCluster) -> None:
    session = start_cluster().session
    with pytest.raises(native.NativeError) as caught:
        session.register(b"module { func.func @main( }", "mlir", name="broken")
    assert "broken" in str(caught.value)
    # and the worker goes on
    (value,) = session.run(session.register(ADD_ONE.encode(), "mlir"), [session.put(np.float32(1), 0)], 0)
    assert value.result(WAIT_S) == 2


def test_a_wrong_argument_poisons_what_depends_on_it_and_names_the_first(start_cluster: StartCluster) -> None:
    session = start_cluster().session
    add_one = session.register(ADD_ONE.encode(), "mlir", name="first_to_fail")
    after = session.register(ADD_ONE.replace("add_one", "later").encode(), "mlir", name="later")
    (bad,) = session.run(add_one, [session.put(np.zeros(3, np.float32), 0)], 0)
    (worse,) = session.run(after, [bad], 0)
    with pytest.raises(native.NativeError) as caught:
        worse.result(WAIT_S)
    message = str(caught.value)
    assert "first_to_fail" in message and "host0" in message and "later" not in message


def test_what_does_not_fit_is_refused_with_the_sizes(start_cluster: StartCluster) -> None:
    session = start_cluster(memory_per_device="64MiB").session
    small = session.put(np.zeros(1 << 20, np.uint8), 0)
    large = session.put(np.zeros(65 << 20, np.uint8), 0)
    with pytest.raises(native.NativeError) as caught:
        large.result(WAIT_S)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert "65.00 MiB" in str(caught.value) and "64.00 MiB" in str(caught.value)
    assert small.result(WAIT_S).nbytes == 1 << 20  # nothing else is lost


def test_dropped_handles_are_freed_on_the_worker(start_cluster: StartCluster) -> None:
    cluster = start_cluster(memory_per_device="64MiB")
    array = np.zeros(20 << 20, np.uint8)
    for _ in range(20):  # would be 400 MiB
        cluster.session.put(array, 0).wait(WAIT_S)
    status = json.loads(cluster.controller.status_json())
    assert status["hosts"][0]["alive"] and len(status["clients"]) == 1


def test_a_tight_loop_is_held_back_not_refused(start_cluster: StartCluster) -> None:
    session = start_cluster().session
    add_one = session.register(ADD_ONE.encode(), "mlir")
    one = session.put(np.float32(1), 0)
    for _ in range(5000):
        session.run(add_one, [one], 0)
    session.drain(WAIT_S)
    assert session.transfer_stats()["runs"] == 5000
