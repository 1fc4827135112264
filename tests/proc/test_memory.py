"""Memory back-pressure on real workers: what does not fit waits, what never fits is refused, nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from ptpathways import native
from ptpathways.launch import local
from ptpathways.testing import wait_until
from tests.proc.conftest import ADD_ONE, StartCluster
from tests.proc.memory_client import add_module

WAIT_S = 60.0
MIB = 1 << 20
LIMIT = 64 * MIB


def status(cluster: local.LocalCluster) -> dict[str, Any]:
    return dict(json.loads(cluster.controller.status_json()))


def vector(mib: int, start: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(start, start + (mib << 18), dtype=np.float32)


def test_ten_clients_that_need_many_times_the_memory_all_finish(start_cluster: StartCluster) -> None:
    cluster = start_cluster(memory_per_device="64MiB")
    command = [sys.executable, "-m", "tests.proc.memory_client", cluster.address, "20", "6"]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(10)]
    try:
        outcomes = [client.communicate(timeout=180) for client in clients]
    finally:
        for client in clients:
            client.kill()
    for client, (out, error) in zip(clients, outcomes, strict=True):
        assert client.returncode == 0, error
        assert json.loads(out)["correct"]
    # All were collected, and the books say so.
    (device,) = status(cluster)["hosts"][0]["memory"]
    assert device["used"] == 0 and device["running"] == 0
    assert status(cluster)["hosts"][0]["staged_bytes"] == 0


def test_more_than_fits_can_be_held_and_used(start_cluster: StartCluster) -> None:
    cluster = start_cluster(memory_per_device="64MiB")
    session = cluster.session
    add = session.register(add_module(20 << 18), "mlir")
    held = [session.put(vector(20, start), 0) for start in range(6)]  # 120 MiB
    results = [session.run(add, [buffer], 0)[0] for buffer in held]  # and as much again
    for start, (buffer, result) in enumerate(zip(held, results, strict=True)):
        np.testing.assert_array_equal(result.result(WAIT_S), vector(20, start) + 1)
        np.testing.assert_array_equal(buffer.result(WAIT_S), vector(20, start))
    host = status(cluster)["hosts"][0]
    assert host["memory"][0]["used"] <= LIMIT
    assert host["memory"][0]["used"] + host["staged_bytes"] == 240 * MIB
    del held, results, buffer, result
    session.drain(WAIT_S)
    wait_until(lambda: status(cluster)["hosts"][0]["staged_bytes"] == 0, WAIT_S)


def test_what_is_in_host_memory_can_be_read_copied_and_freed(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2, memory_per_device="64MiB")
    session = cluster.session
    small = session.put(np.float32(7), 0)
    old = session.put(vector(40), 0)
    new = session.put(vector(60, 5), 0)  # pushes the old one out
    new.wait(WAIT_S)
    assert status(cluster)["hosts"][0]["staged_bytes"] >= 40 * MIB
    np.testing.assert_array_equal(old.result(WAIT_S), vector(40))
    there = old.copy_to(1)
    np.testing.assert_array_equal(there.result(WAIT_S), vector(40))
    assert small.result(WAIT_S) == 7
    del new
    here = old.copy_to(0)
    np.testing.assert_array_equal(here.result(WAIT_S), vector(40))


def test_frees_behind_what_waits_make_room_for_it(start_cluster: StartCluster) -> None:
    cluster = start_cluster(memory_per_device="64MiB")
    session = cluster.session
    for start in range(20):  # each waits for the one before to be dropped, none is moved to host memory
        value = session.put(vector(40, start), 0)
        del value
    last = session.put(vector(60), 0)
    last.wait(WAIT_S)
    assert status(cluster)["hosts"][0]["staged_bytes"] == 0


def test_a_run_that_can_never_fit_is_refused_at_once_with_the_sizes(start_cluster: StartCluster) -> None:
    session = start_cluster(memory_per_device="64MiB").session
    too_large = session.register(add_module(40 << 18), "mlir", name="too_large", source="train.py:7")
    argument = session.put(vector(40), 0)
    (result,) = session.run(too_large, [argument], 0)
    with pytest.raises(native.NativeError) as caught:
        result.result(5.0)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    for part in ("too_large", "train.py:7", "40.00 MiB", "64.00 MiB", "never fit"):
        assert part in str(caught.value)
    # It took nothing, and what depends on it hears the same.
    (after,) = session.run(too_large, [result], 0)
    with pytest.raises(native.NativeError, match="never fit"):
        after.result(5.0)
    small = session.register(ADD_ONE.encode(), "mlir")
    (value,) = session.run(small, [session.put(np.float32(1), 0)], 0)
    assert value.result(WAIT_S) == 2


def test_buffers_of_many_shards_move_and_come_back_whole(start_cluster: StartCluster) -> None:
    cluster = start_cluster(devices_per_host=2, memory_per_device="64MiB")
    session = cluster.session
    add = session.register(add_module(20 << 18), "mlir")
    wide = [session.put_sharded([vector(40, start), vector(40, start + 1)], [0, 1]) for start in (0, 100)]
    for start, buffer in zip((0, 100), wide, strict=True):
        for got, expected in zip(buffer.fetch(WAIT_S), (vector(40, start), vector(40, start + 1)), strict=True):
            np.testing.assert_array_equal(got, expected)
    assert status(cluster)["hosts"][0]["staged_bytes"] == 80 * MIB  # one of them, with both its shards
    other = session.put(vector(20), 1)  # beside them, a run on one of the two devices
    (result,) = session.run(add, [other], 1)
    np.testing.assert_array_equal(result.result(WAIT_S), vector(20) + 1)


def program_of_one(session: native.Session, mib: int, name: str) -> native.Program:
    """One step that adds one to its argument; the argument may be given up."""
    dims = [mib << 18]
    one = {"dtype": "f32", "dims": dims, "shards": [0], "devices": [0]}
    step = {"kind": "execute", "node": 0, "function": 0, "arguments": [0], "results": [1], "donated": [0]}
    port: Any = {"dtype": "f32", "dims": dims, "devices": [0]}
    plan: Any = {
        "host": 0,
        "channels": 0,
        "nodes": ["add"],
        "slots": [one, one],
        "inputs": [0],
        "outputs": [1],
        "steps": [step],
    }
    add = session.register(add_module(dims[0]), "mlir", name="add", outputs=[("f32", dims)])
    return session.register_program(name, [plan], [port], [port], functions=[add])


def test_programs_wait_and_get_their_arguments_back(start_cluster: StartCluster) -> None:
    cluster = start_cluster(memory_per_device="64MiB")
    session = cluster.session
    program = program_of_one(session, 20, "step")
    held = [session.put(vector(20, start), 0) for start in range(5)]
    results = [session.run_program(program, [buffer])[0] for buffer in held]
    for start, (buffer, result) in enumerate(zip(held, results, strict=True)):
        np.testing.assert_array_equal(result.result(WAIT_S), vector(20, start) + 1)
        np.testing.assert_array_equal(buffer.result(WAIT_S), vector(20, start))


def test_a_program_that_gives_its_argument_up_works_in_its_place(start_cluster: StartCluster) -> None:
    cluster = start_cluster(memory_per_device="64MiB")
    session = cluster.session
    program = program_of_one(session, 40, "in_place")  # 80 MiB if nothing were given up
    value = session.put(vector(40), 0)
    for _ in range(5):
        (value,) = session.run_program(program, [value], donated=[0])
    np.testing.assert_array_equal(value.result(WAIT_S), vector(40) + 5)
    (refused,) = session.run_program(program, [value])
    with pytest.raises(native.NativeError) as caught:
        refused.result(WAIT_S)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert "in_place" in str(caught.value) and "64.00 MiB" in str(caught.value)


def resident_kib(pid: int | str) -> int:
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_a_hundred_thousand_runs_cost_what_their_kept_handles_cost(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    session = cluster.session
    add = session.register(ADD_ONE.encode(), "mlir")
    one = session.put(np.float32(1), 0)
    for _ in range(2000):  # warm
        session.run(add, [one], 0)
    session.drain(WAIT_S)
    before = resident_kib("self")
    for _ in range(100_000):
        session.run(add, [one], 0)  # handles dropped, results never fetched
    session.drain(WAIT_S)
    dropped = resident_kib("self") - before
    kept = [session.run(add, [one], 0)[0] for _ in range(100_000)]
    session.drain(WAIT_S)
    per_handle = (resident_kib("self") - before - dropped) * 1024 / len(kept)
    print(f"dropped: {dropped} KiB; a kept handle: {per_handle:.0f} bytes in client and embedded controller")
    assert dropped < 8 * 1024
    assert per_handle < 2048
    assert kept[-1].result(WAIT_S) == 2
