"""Gangs over several hosts of one island: in one order on all of them, and gone together when a member is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from ptpathways import core, native, testing
from ptpathways.launch import local
from tests.proc.conftest import ADD_ONE, StartCluster
from tests.proc.gang_client import late_sum, one_gang, scalars, shard_numbers

WAIT_S = 60.0


@contextmanager
def island(policy: str, hosts: int = 2, devices_per_host: int = 1, islands: int = 1) -> Iterator[local.StandingCluster]:
    """A standing cluster whose hosts are one island, or several."""
    cluster = local.serve(
        core.Options(hosts=hosts, devices_per_host=devices_per_host, islands=islands, policy=policy, log_level="error")
    )
    try:
        yield cluster
    finally:
        cluster.close()
        assert not testing.leftovers(cluster)


def run_clients(cluster: local.StandingCluster, devices: int, gangs: int, ahead: int = 50) -> list[dict[str, Any]]:
    """Two clients at the same time; what each says."""
    command = [sys.executable, "-m", "tests.proc.gang_client", cluster.address, str(devices)]
    clients = [
        subprocess.Popen(
            [*command, str(seed), str(gangs), str(ahead)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    try:
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        outcomes = [client.communicate(timeout=120) for client in clients]
    finally:
        for client in clients:
            client.kill()
    for client, (_, error) in zip(clients, outcomes, strict=True):
        assert client.returncode == 0, error
    return [json.loads(out) for out, _ in outcomes]


@pytest.mark.timeout(180)
def test_a_thousand_gangs_of_two_clients_under_random_delays() -> None:
    with island("fifo") as cluster:
        for outcome in run_clients(cluster, devices=2, gangs=500):
            assert outcome == {"right": 500, "error": None}


@pytest.mark.timeout(180)
def test_gangs_over_two_islands_come_in_one_order() -> None:
    with island("fair", islands=2) as cluster:
        for outcome in run_clients(cluster, devices=2, gangs=200):
            assert outcome == {"right": 200, "error": None}


@pytest.mark.timeout(180)
def test_gangs_over_several_devices_of_each_host() -> None:
    with island("fair", devices_per_host=2) as cluster:
        for outcome in run_clients(cluster, devices=4, gangs=100):
            assert outcome == {"right": 100, "error": None}


@pytest.mark.timeout(120)
def test_without_a_common_order_the_deadlock_is_named() -> None:
    with island("arrival") as cluster:
        start_s = time.monotonic()
        outcomes = run_clients(cluster, devices=2, gangs=500, ahead=500)
        elapsed_s = time.monotonic() - start_s
    errors = [outcome["error"] for outcome in outcomes if outcome["error"]]
    assert any("in different orders" in error and "function 'late" in error for error in errors), outcomes
    assert elapsed_s < 30


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "silent"])
def test_a_lost_member_fails_all_and_is_named(start_cluster: StartCluster, how: signal.Signals) -> None:
    cluster = start_cluster(hosts=3, islands=1, lease_s=4.0)
    session = cluster.session
    devices = [0, 1, 2]
    program = one_gang(
        session, session.register(late_sum([200_000, 0, 0]), "mlir", name="late", devices=devices), devices
    )
    numbers = shard_numbers(session, 3)
    values = [scalars(session, [0, 0, 0])]
    for _ in range(40):  # eight seconds of gangs
        values += session.run_program(program, [values[-1], numbers])
    values[1].wait(WAIT_S)
    lost = cluster.worker_pids["host2"]
    start_s = time.monotonic()
    os.kill(lost, how)
    try:
        with pytest.raises(native.NativeError, match=r"host 'host2'.* is lost") as caught:
            values[-1].wait(WAIT_S)
        # Silence is told from slowness by the lease.
        assert time.monotonic() - start_s < 6
        assert "UNAVAILABLE" in str(caught.value) or getattr(caught.value, "code", "") == "UNAVAILABLE"
        # The others go on.
        pair = one_gang(session, session.register(late_sum([0, 0]), "mlir", name="pair", devices=[0, 1]), [0, 1])
        (result,) = session.run_program(pair, [scalars(session, [1, 3]), shard_numbers(session, 2)])
        assert [float(value) for value in result.fetch(WAIT_S)] == [3.0, 3.0]
    finally:
        if how == signal.SIGSTOP:
            os.kill(lost, signal.SIGCONT)


@pytest.mark.timeout(120)
def test_a_part_that_cannot_run_fails_the_gang_everywhere(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2, islands=1)
    session = cluster.session
    devices = [0, 1]
    numbers, held = shard_numbers(session, 2), scalars(session, [0, 0])
    gang = one_gang(session, session.register(late_sum([0, 0]), "mlir", name="gang", devices=devices), devices)
    # Host 1 cannot have its part: what should have made its argument has failed.
    add_one = session.register(ADD_ONE.encode(), "mlir", name="first_to_fail")
    (bad,) = session.run(add_one, [session.put(np.zeros(3, np.float32), 1)], 1)
    with pytest.raises(native.NativeError, match="first_to_fail"):
        session.run_program(gang, [[session.put(np.float32(0), 0), bad], numbers])[0].wait(WAIT_S)
    for _ in range(3):
        (held,) = session.run_program(gang, [held, numbers])
    assert [float(value) for value in held.fetch(WAIT_S)] == [3.0, 3.0]
