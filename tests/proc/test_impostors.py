"""A member with a worker's and a client's key, and names of its own, that speaks as another host: docs/security.md."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import zmq

from ptpathways.testing import wait_until
from tests.fuzz import hostile
from tests.proc import attackers
from tests.proc.standing import WAIT_S, Standing

DATA = 20
REFUSED = "the name that the controller gave"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standing]:
    with Standing(tmp_path) as standing:
        standing.start_workers("a", "b")
        yield standing


def _forged(key: int, message: int) -> list[bytes]:
    payload = np.full(1000, 7, np.float32).tobytes()
    body = struct.pack("<QQQQ", key, 0, len(payload), len(payload)) + hostile.text("")
    return [hostile.frame(DATA, body + struct.pack("<QQi", 0, 1, 0) + hostile.text(""), message), payload]


def _names_of_callers(listener: zmq.Socket[bytes], wanted: tuple[bytes, ...]) -> list[bytes]:
    """What those who call it call themselves there, until one of each kind has."""
    names: list[bytes] = []
    while not all(any(name.startswith(kind) for name in names) for kind in wanted):
        assert listener.poll(int(WAIT_S * 1000))
        names.append(listener.recv_multipart()[0])
    return [next(name for name in names if name.startswith(kind)) for kind in wanted]


def test_a_worker_plays_no_other_host(cluster: Standing) -> None:
    """Neither with its key, nor its own names, nor those by which others call it: copies between the others go on."""
    with ExitStack() as stack:
        listener, endpoint = stack.enter_context(attackers.listening(cluster.token))
        control = stack.enter_context(attackers.connect(cluster.address, cluster.token, "worker"))
        kind, welcome = attackers.ask(control, attackers.hello(2, "evil", endpoint))
        assert kind == attackers.WELCOME
        session = stack.enter_context(cluster.session())
        hosts = {host["name"]: host for host in session.hosts()}
        a, b, evil = (hosts[name]["first_device"] for name in ("a", "b", "evil"))
        array = np.arange(1000, dtype=np.float32)
        np.testing.assert_array_equal(session.put(array, a).copy_to(b).result(WAIT_S), array)
        to_evil = session.put(array, a).copy_to(evil)  # so that host a calls it, as the client does by itself
        of_a, of_client = _names_of_callers(listener, (b"w/a/", b"c/"))
        number = int(of_client.split(b"/")[1])
        key = attackers.data_key_in(welcome)
        # The key is what names at this host are made with.
        made = [attackers.identity_made_with(key, *_of(name)) for name in (of_a, of_client)]
        assert made == [of_a, of_client]
        names = [
            attackers.identity_made_with(key, "w/a", 1000),
            attackers.identity_made_with(key, f"c/{number}", 1000),
            attackers.identity_in(welcome, hosts["a"]["host"]),  # its own, but at a
            of_a,
            of_client,
        ]
        for count, name in enumerate(names):
            role = "client" if name.startswith(b"c/") else "worker"
            where = hosts["b"]["data_endpoint"]
            thief = stack.enter_context(attackers.connect(where, cluster.token, role, server="worker", identity=name))
            before = cluster.said().count(REFUSED)
            thief.send(hostile.peer_hello(session.cluster, "elsewhere"))
            wait_until(lambda before=before: cluster.said().count(REFUSED) > before, WAIT_S)  # type: ignore[misc]
            for message in range(1, 400):
                thief.send_multipart(_forged(number << 48 | message, message))
            for turn in range(3):
                value = session.put(array + count + turn, a).copy_to(b)
                np.testing.assert_array_equal(value.result(WAIT_S), array + count + turn)
            assert attackers.answer(thief, 0.0) == (0, b"")
        del to_evil


def _of(name: bytes) -> tuple[str, int]:
    text, session, _ = name.decode().rsplit("/", 2)
    return text, int(session)
