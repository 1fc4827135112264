"""A cluster under a client that means harm: nobody dies, and honest clients get right answers all the while.

A failure names its seed; ``PW_FUZZ_SEEDS=10000:10100`` runs other seeds than the few of every day.
"""

from __future__ import annotations

import os
import random
import re
import struct
from collections.abc import Iterator

import numpy as np
import pytest
import zmq

from ptpathways import core, native, testing
from ptpathways.launch import local
from tests.fuzz import hostile

WAIT_S = 30.0
MESSAGES = 400


def _seeds() -> range:
    first, _, last = os.environ.get("PW_FUZZ_SEEDS", "0:6").partition(":")
    return range(int(first), int(last))


@pytest.fixture(scope="module")
def cluster() -> Iterator[local.LocalCluster]:
    with local.start(core.Options(hosts=2)) as started:
        yield started
    assert testing.leftovers(started) == []


def _connect(endpoint: str, identity: bytes = b"") -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    if identity:
        socket.routing_id = identity
    socket.connect(endpoint)
    return socket


def _join(endpoint: str) -> tuple[zmq.Socket[bytes], int, bytes]:
    """A client's control connection, its number and its name on data connections."""
    socket = _connect(endpoint)
    socket.send(hostile.hello(core.__version__, "hostile"))
    assert socket.poll(int(WAIT_S * 1000)), "the controller answers"
    head = socket.recv_multipart()[0]
    assert int.from_bytes(head[6:8], "little") == hostile.WELCOME
    identity = re.search(rb"c/\d+/\d+/[0-9a-f]{32}", head)
    assert identity is not None
    return socket, struct.unpack("<I", head[24:28])[0], identity[0]


def _is_well_formed(head: bytes) -> bool:
    """Whether the controller can read the header, and so counts the message."""
    magic, version, kind, _, size, _ = struct.unpack("<4sHHQII", head[:24])
    known = kind in hostile.FIELDS or kind in hostile.OTHERS
    return bool(magic == b"PWY1" and version == hostile.PROTOCOL and known and size == len(head) - 24)


def _swallow(socket: zmq.Socket[bytes]) -> None:
    while socket.poll(0):
        socket.recv_multipart()


def _check_unharmed(cluster: local.LocalCluster) -> None:
    assert all(testing.is_running(pid) for pid in cluster.worker_pids.values()), "a worker died"
    assert all(host["alive"] for host in cluster.session.hosts())
    function = cluster.session.register(hostile.ADD_ONE, "mlir", name="honest")
    for device in range(2):
        (value,) = cluster.session.run(function, [cluster.session.put(np.float32(device), device)], device)
        assert value.result(WAIT_S) == device + 1


@pytest.mark.parametrize("seed", _seeds())
def test_a_client_that_joined(cluster: local.LocalCluster, seed: int) -> None:
    socket, client, _ = _join(cluster.controller.endpoints[0])
    with socket:
        source = random.Random(seed)
        attacker = hostile.Hostile(source, client)
        number = 0
        for _ in range(MESSAGES):
            head, *payloads = attacker.message()
            # Most take their place on the line, so that they are looked at; others claim any, or none.
            if len(head) >= 24 and source.random() < 0.95:
                taken = _is_well_formed(head)
                head = hostile.on_line(head, number + 1)
                number += taken
            socket.send_multipart([head, *payloads])
            _swallow(socket)
        _check_unharmed(cluster)


@pytest.mark.parametrize("seed", _seeds())
def test_a_stranger_at_a_workers_data_endpoint(cluster: local.LocalCluster, seed: int) -> None:
    source = random.Random(seed)
    control, client, identity = _join(cluster.controller.endpoints[0])
    attacker = hostile.Hostile(source, client)
    with control, _connect(cluster.session.hosts()[seed % 2]["data_endpoint"], identity) as socket:
        if seed % 3:
            machine = native.machine_token() if seed % 3 == 1 else "elsewhere"
            socket.send(hostile.peer_hello(cluster.session.cluster, machine))
        number = 0
        for _ in range(MESSAGES):
            head, *payloads = attacker.message()
            if int.from_bytes(head[6:8], "little") in hostile.NUMBERED:
                number += 1
                head = head[:8] + struct.pack("<Q", number) + head[16:]
            socket.send_multipart([head, *payloads])
            _swallow(socket)
        _check_unharmed(cluster)
