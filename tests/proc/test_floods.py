"""A client that asks for far more than its share: the others go on, and what they are told is about themselves."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import zmq

from ptpathways import native
from ptpathways.testing import stop_process, wait_until
from tests.fuzz import hostile
from tests.proc import attackers
from tests.proc.test_entry import WAIT_S, Standing, _data, _standing

PUT, FETCH = 10, 13
BYTES_INLINE = 4096
ASKED = 20_000
"""Fetches of the flood; a member that leaves 65,536 messages untaken is ended."""
UNEXPECTED = 66_000
"""Transfers without an announcement; a host keeps 65,536 of one sender."""
ANSWERS = 131_072
"""That a host keeps for one peer."""
SHARE_S = 2.0
"""Within this time a fetch of somebody else is answered, on a machine with much else to do."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with _standing(tmp_path_factory.mktemp("floods")) as standing, standing.session("first") as session:
        wait_until(lambda: session.device_count > 0, WAIT_S)
        yield standing


def _put(client: int, values: int) -> bytes:
    """Buffer 1 of the client: so many f32, with its bytes if they are few."""
    own = client << 48 | 1
    inline = bytes(4 * values) if 4 * values <= BYTES_INLINE else b""
    tensor = struct.pack("<BIq", 11, 1, values)  # f32, one dimension
    return hostile.frame(PUT, struct.pack("<QQIII", own, own, 0, 0, 1) + tensor + hostile.text(inline))


def _fetch(client: int, request: int, *, only_readiness: bool) -> bytes:
    body = struct.pack("<QQIIB", client << 48 | request, client << 48 | 1, 0, 0, only_readiness)
    return hostile.frame(FETCH, body)


@contextmanager
def _flood(cluster: Standing, asks: int, *, reads: bool, only_readiness: bool = False) -> Iterator[Callable[[], int]]:
    """A client that has sent so many fetches; yields how many of them were answered so far."""
    with attackers.connect(cluster.address, cluster.token) as enemy:
        enemy.setsockopt(zmq.SNDHWM, 0)
        if reads:
            enemy.setsockopt(zmq.RCVHWM, 0)
        kind, body = attackers.ask(enemy, attackers.hello(name="flood"))
        assert kind == attackers.WELCOME
        number = struct.unpack("<I", body[:4])[0]
        enemy.send(hostile.on_line(_put(number, BYTES_INLINE // 4), 1))
        answered = 0
        for request in range(asks):
            fetch = _fetch(number, 100 + request, only_readiness=only_readiness)
            enemy.send(hostile.on_line(fetch, 2 + request))

        def count() -> int:
            nonlocal answered
            while reads and enemy.poll(0):
                answered += enemy.recv_multipart()[0][6:8] == struct.pack("<H", 14)
            return answered

        yield count


@pytest.mark.parametrize("reads", [True, False], ids=["that reads", "that does not read"])
def test_a_flood_of_fetches_delays_nobody_else(cluster: Standing, reads: bool) -> None:
    with cluster.session("honest") as session:
        small, large = session.put(np.float32(3), 0), session.put(np.zeros(1 << 20, np.float32), 0)
        waited = []
        with _flood(cluster, ASKED, reads=reads) as answered:
            for value in (small, large) * 10:
                began = time.monotonic()
                value.result(WAIT_S)
                waited.append(time.monotonic() - began)
                activity = session.activity(0, WAIT_S)
                assert all("hang" not in what for _, what, _ in activity)
            if reads:
                wait_until(lambda: answered() == ASKED, WAIT_S)
        assert max(waited) < SHARE_S, waited


def test_a_flood_that_a_host_cannot_keep_up_with_does_not_end_the_host(cluster: Standing) -> None:
    """More than a line keeps for a host (65,536): the flooder's messages wait at the controller instead."""
    with cluster.session("honest") as session:
        value = session.put(np.float32(3), 0)
        with _flood(cluster, 200_000, reads=False, only_readiness=True):
            began = time.monotonic()
            while time.monotonic() - began < 3.0:
                assert value.result(WAIT_S) == 3
        assert session.put(np.float32(4), 0).result(WAIT_S) == 4


def test_a_flood_of_bytes_that_nobody_expects_keeps_nobody_else_waiting(cluster: Standing) -> None:
    """More transfers than a host keeps of one sender, each of which is over for its sender when it was sent."""
    with cluster.session("honest") as session, attackers.connect(cluster.address, cluster.token) as control:
        kind, body = attackers.ask(control, attackers.hello(name="flood"))
        assert kind == attackers.WELCOME
        number, identity = struct.unpack("<I", body[:4])[0], attackers.identity_in(body)
        endpoint = session.hosts()[0]["data_endpoint"]
        with attackers.connect(endpoint, cluster.token, server="worker", identity=identity) as enemy:
            enemy.setsockopt(zmq.SNDHWM, 0)
            enemy.setsockopt(zmq.RCVHWM, 0)
            enemy.send(hostile.peer_hello(session.cluster, "elsewhere"))
            for message in range(1, UNEXPECTED + 1):
                enemy.send_multipart(_data(number << 48 | message, b"x", message=message))
            values = [session.put(np.full(5000, count, np.float32), 0) for count in range(200)]
            for count, value in enumerate(values):
                assert value.result(WAIT_S)[0] == count


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def test_who_does_not_read_its_data_connection_is_not_heard_beyond_a_limit(cluster: Standing) -> None:
    """A host answers each transfer and keeps so many answers; what the others send and read is not concerned."""
    with cluster.session("honest") as session, attackers.joined(cluster.address, cluster.token) as (number, identity):
        host = session.hosts()[0]
        before = peak = _resident_mib(host["pid"])
        full = f"refused a data message from c/{number}: RESOURCE_EXHAUSTED: expected it to take what it is sent here"
        with attackers.connect(host["data_endpoint"], cluster.token, server="worker", identity=identity) as enemy:
            enemy.setsockopt(zmq.SNDHWM, 0)
            enemy.setsockopt(zmq.RCVHWM, 1)
            enemy.send(hostile.peer_hello(session.cluster, "elsewhere"))
            message = after = 0
            while after < ANSWERS:
                for _ in range(4096):
                    message += 1
                    enemy.send_multipart(_data(number << 48 | 5, b"x", message=message))
                after += 4096 if after or full in cluster.log.read_text() else 0
                assert message < 8 * ANSWERS, "all of it is taken"
                value = np.full(5000, message, np.float32)
                np.testing.assert_array_equal(session.put(value, 0).result(WAIT_S), value)
                peak = max(peak, _resident_mib(host["pid"]))
        assert peak - before < 200, (before, peak)


def test_hellos_that_nobody_reads_cost_no_memory(cluster: Standing) -> None:
    with cluster.session("honest") as session, attackers.joined(cluster.address, cluster.token) as (_, identity):
        host = session.hosts()[0]
        before = _resident_mib(host["pid"])
        with attackers.connect(host["data_endpoint"], cluster.token, server="worker", identity=identity) as enemy:
            enemy.setsockopt(zmq.SNDHWM, 0)
            enemy.setsockopt(zmq.RCVHWM, 1)
            for _ in range(300_000):
                enemy.send(hostile.peer_hello(session.cluster, "elsewhere"))
            value = np.arange(5000, dtype=np.float32)
            np.testing.assert_array_equal(session.put(value, 0).result(WAIT_S), value)
            assert _resident_mib(host["pid"]) - before < 50


READER = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from ptpathways import native

address, token = sys.argv[1:]
session = native.Session.connect(address, "reader", 20.0, token=token)
large, small = np.arange(10 << 18, dtype=np.float32), np.arange(8000, dtype=np.float32)
held = [session.put(large, 0)] * 48 + [session.put(small, 0)] * 16
with ThreadPoolExecutor(len(held)) as pool:
    for _ in range(3):
        for turn, found in enumerate(pool.map(lambda value: value.result(60.0), held)):
            if turn == 0:
                print("reads", flush=True)
            assert np.array_equal(found, large if len(found) == len(large) else small)
        news = [session.put(large + turn, 0) for turn in range(48)]
        for turn, found in enumerate(pool.map(lambda value: value.result(60.0), news)):
            assert np.array_equal(found, large + turn)
print("all", flush=True)
"""


def test_a_client_that_is_stopped_while_it_reads_and_writes_loses_nothing(cluster: Standing) -> None:
    """480 MiB on the way to it, and as much from it, are more than is kept for it: the rest waits where it is."""
    pause_s = 7.0  # its data connection is given up after 5 s
    # No shared memory with the host, as if it were on another machine.
    environment = {**os.environ, "PTPATHWAYS_MACHINE": "elsewhere"}
    command = [sys.executable, "-c", READER, cluster.address, cluster.token]
    with (
        cluster.session("honest") as session,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as reader,
    ):
        try:
            assert reader.stdout is not None
            value = session.put(np.float32(3), 0)
            for _ in range(2):
                assert reader.stdout.readline() == "reads\n"
                stop_process(reader.pid)
                began = time.monotonic()
                while time.monotonic() - began < pause_s:
                    assert value.result(WAIT_S) == 3
                os.kill(reader.pid, signal.SIGCONT)
            assert reader.stdout.read() == "reads\nall\n"
            assert reader.wait(WAIT_S) == 0
        finally:
            reader.kill()


def test_who_waits_for_its_own_flood_is_told_so(cluster: Standing) -> None:
    """With the host's engine held up, the controller says what the flooder waits for, and the others nothing of it."""
    import json

    from ptpathways.testing import hold_thread

    with cluster.session("honest") as session:
        host = session.hosts()[0]
        with hold_thread(host["pid"], "pw-engine"), _flood(cluster, ASKED, reads=True):

            def waits() -> dict[str, str]:
                clients = json.loads(session.status_json(WAIT_S))["clients"]
                return {client["name"]: client["waiting_for"] for client in clients}

            wait_until(lambda: bool(waits().get("flood")), WAIT_S)
            assert waits()["flood"] == f"its 1024 latest fetches to be taken by host '{host['name']}'"
            assert waits()["honest"] == ""
        assert session.put(np.float32(3), 0).result(WAIT_S) == 3


def test_many_readers_of_one_process_are_one_client(cluster: Standing) -> None:
    """200 threads that read a large value again and again: another client reads its own in between."""
    with cluster.session("many") as many, cluster.session("honest") as honest:
        value = many.put(np.zeros(1 << 19, np.float32), 0)
        own = honest.put(np.ones(1 << 19, np.float32), 0)
        value.wait(WAIT_S)
        ends = time.monotonic() + 4.0

        def read() -> None:
            while time.monotonic() < ends:
                value.result(WAIT_S)

        threads = [threading.Thread(target=read) for _ in range(200)]
        for thread in threads:
            thread.start()
        waited = []
        while time.monotonic() < ends:
            began = time.monotonic()
            own.result(WAIT_S)
            waited.append(time.monotonic() - began)
        for thread in threads:
            thread.join(WAIT_S)
        assert len(waited) > 3 and max(waited) < SHARE_S, waited
        assert isinstance(many, native.Session)
