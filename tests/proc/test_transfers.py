"""Transfers of values end: through lost connections with the right bytes, otherwise in time and with a reason."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import zmq

from ptpathways import core, native, platforms
from ptpathways.launch._worker_command import WorkerOptions, worker_command, worker_environment
from ptpathways.testing import Proxy
from tests.fuzz import hostile
from tests.proc.conftest import ADD_ONE, StartCluster

WAIT_S = 60.0
MIB = 1 << 20
TIMEOUT_S = 3
"""Of transfers to a peer that is silent."""
PROXY_HOST = "127.0.0.2"
"""Where peers find the workers: the proxies listen there."""

Array = np.ndarray[Any, np.dtype[np.float32]]


def value(mib: int, start: int = 0) -> Array:
    return np.arange(start, start + (mib << 18), dtype=np.float32)


class _ProxiedCluster:
    """Two workers without shared memory, and a proxy before each one's data endpoint."""

    def __enter__(self) -> _ProxiedCluster:
        self._stack = ExitStack()
        token = core.make_token()
        self._controller = native.Controller({"bind": ["tcp://127.0.0.1:*"], "embedded": False, "token": token})
        self.endpoint = self._controller.endpoints[0]
        self.proxies: list[Proxy] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        for number in range(2):
            port = _free_port()
            self.proxies.append(self._stack.enter_context(Proxy((PROXY_HOST, port), ("127.0.0.1", port))))
            options = WorkerOptions(
                controller=self.endpoint,
                name=f"host{number}",
                island="one",
                plugin=platforms.find_plugin(),
                data_endpoint=f"tcp://127.0.0.1:{port}",
                advertise=PROXY_HOST,
                token=token,
                environment={"PTPATHWAYS_MACHINE": f"machine{number}", "PTPATHWAYS_TRANSFER_TIMEOUT_S": str(TIMEOUT_S)},
            )
            self._workers.append(subprocess.Popen(worker_command(options), env=worker_environment(options)))
            self._controller.wait_for_hosts(number + 1, WAIT_S)
        self.session = native.Session.connect(self.endpoint, "client", 10.0, token=token)
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close("the test is over")
        self._controller.close("the test is over")
        for worker in self._workers:
            assert worker.wait(WAIT_S) == 0
        self._stack.close()
        native.clean_up_shared_memory(self._controller.cluster)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[_ProxiedCluster]:
    monkeypatch.setenv("PTPATHWAYS_TRANSFER_TIMEOUT_S", str(TIMEOUT_S))
    with _ProxiedCluster() as started:
        yield started


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_values_survive_resets_in_the_middle(cluster: _ProxiedCluster) -> None:
    """Up, down and from worker to worker, at other places of the stream each time."""
    for round_ in range(4):
        for proxy in cluster.proxies:
            proxy.reset_after((5 + 7 * round_) * MIB)
        sent = value(16, round_)
        here = cluster.session.put(sent, 0)
        there = here.copy_to(1)
        np.testing.assert_array_equal(there.result(WAIT_S), sent)
        np.testing.assert_array_equal(here.result(WAIT_S), sent)


@pytest.mark.parametrize("reset", [False, True], ids=["cut", "reset"])
def test_a_connection_that_is_cut_between_two_uses_is_made_again(cluster: _ProxiedCluster, *, reset: bool) -> None:
    sent = value(2)
    held = cluster.session.put(sent, 0)
    np.testing.assert_array_equal(held.copy_to(1).result(WAIT_S), sent)
    for proxy in cluster.proxies:
        assert proxy.cut(reset=reset) > 0
    np.testing.assert_array_equal(held.copy_to(1).result(WAIT_S), sent)
    np.testing.assert_array_equal(cluster.session.put(sent, 1).result(WAIT_S), sent)


def test_garbage_in_a_connection_is_noticed_and_it_is_made_again(cluster: _ProxiedCluster) -> None:
    """Each end may be the one that reads what is no message; libzmq then does not call again by itself."""
    sent = value(2)
    held = cluster.session.put(sent, 0)
    held.copy_to(1).wait(WAIT_S)
    for damaged in (cluster.proxies[:1], cluster.proxies[1:], cluster.proxies, cluster.proxies[1:]):
        assert sum(proxy.damage() for proxy in damaged) > 0
        np.testing.assert_array_equal(held.copy_to(1).result(WAIT_S), sent)
        np.testing.assert_array_equal(cluster.session.put(sent, 1).result(WAIT_S), sent)
        np.testing.assert_array_equal(held.result(WAIT_S), sent)


def test_a_blackholed_connection_is_noticed_and_made_again(cluster: _ProxiedCluster) -> None:
    sent = value(2)
    held = cluster.session.put(sent, 0)
    held.copy_to(1).wait(WAIT_S)
    for proxy in cluster.proxies:
        proxy.swallow(also_new=False)
    copy = held.copy_to(1)
    np.testing.assert_array_equal(copy.result(WAIT_S), sent)
    np.testing.assert_array_equal(cluster.session.put(sent, 1).result(WAIT_S), sent)


def test_transfers_over_a_dead_network_fail_in_time_and_say_why(cluster: _ProxiedCluster) -> None:
    """Nobody waits for ever; when the network is back, so are transfers."""
    sent = value(2)
    held = cluster.session.put(sent, 0)
    held.copy_to(1).wait(WAIT_S)
    for proxy in cluster.proxies:
        proxy.swallow(also_new=True)
    start = time.monotonic()
    copy, upload = held.copy_to(1), cluster.session.put(sent, 0)
    for what in (lambda: held.result(WAIT_S), lambda: copy.wait(WAIT_S), lambda: upload.wait(WAIT_S)):
        with pytest.raises(native.NativeError, match=r"2097152 bytes.* s of silence .*limit 3\.0 s"):
            what()
    assert time.monotonic() - start < 4 * TIMEOUT_S
    for proxy in cluster.proxies:
        proxy.mend()
    np.testing.assert_array_equal(held.copy_to(1).result(WAIT_S), sent)
    np.testing.assert_array_equal(cluster.session.put(sent, 0).result(WAIT_S), sent)


def test_refused_uploads_leave_the_session_as_it_was(start_cluster: StartCluster) -> None:
    """What a search for the largest batch does: asks for too much, again and again."""
    cluster = start_cluster(memory_per_device="16MiB")
    session = cluster.session
    for attempt in range(40):
        with pytest.raises(native.NativeError, match="memory"):
            session.put(value(24, attempt), 0).wait(WAIT_S)
    sent = value(8)
    kept = session.put(sent, 0)
    np.testing.assert_array_equal(kept.result(WAIT_S), sent)
    add_one = session.register(ADD_ONE.encode(), "mlir")
    (result,) = session.run(add_one, [session.put(np.float32(1), 0)], 0)
    assert result.result(WAIT_S) == 2


def test_a_partly_refused_value_of_many_shards_has_no_value_at_all(start_cluster: StartCluster) -> None:
    """Of two shards one is too large, in either order; fetches of both say so, and the worker lives."""
    cluster = start_cluster(devices_per_host=2, memory_per_device="16MiB")
    small, large = _f32(2), _f32(24 << 18)
    client: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    with client:
        client.linger = 0
        client.connect(cluster.controller.endpoints[0])
        client.send(hostile.hello(core.__version__, "partly"))
        number = struct.unpack("<I", _receive(client, hostile.WELCOME)[24:28])[0]
        said = 0
        for attempt, first_is_small in enumerate((True, False)):
            buffer = (number << 48) + 100 * (attempt + 1)
            types = (small, large) if first_is_small else (large, small)
            for shard, type_ in enumerate(types):
                inline = hostile.text(bytes(8) if type_ is small else b"")
                body = struct.pack("<QQIII", buffer, buffer + shard, shard, 2, shard) + type_ + inline
                client.send(hostile.on_line(hostile.frame(_PUT, body), said := said + 1))
            for shard in (0, 1):
                fetch = struct.pack("<QQIIB", buffer + 10 + shard, buffer, shard, shard, 0)
                client.send(hostile.on_line(hostile.frame(_FETCH, fetch), said := said + 1))
            for _ in (0, 1):
                assert b"out of device memory" in _receive(client, _FETCHED)
    np.testing.assert_array_equal(cluster.session.put(value(1), 0).result(WAIT_S), value(1))


_PUT, _FETCH, _FETCHED = 10, 13, 14


def _f32(elements: int) -> bytes:
    return struct.pack("<BIq", 11, 1, elements)


def _receive(client: zmq.Socket[bytes], kind: int) -> bytes:
    """The next message of this kind."""
    while client.poll(int(WAIT_S * 1000)):
        head = client.recv_multipart()[0]
        if int.from_bytes(head[6:8], "little") == kind:
            return head
    raise AssertionError(f"no message of type {kind} came")
