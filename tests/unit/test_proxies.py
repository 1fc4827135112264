"""The proxy of the test kit does to bytes what it says, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ptpathways.testing import SHUT, USUAL, Proxy, Way, wait_until

WAIT_S = 20.0


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """Sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(peer: socket.socket) -> None:
            with suppress(OSError), peer:
                while data := peer.recv(1 << 16):
                    peer.sendall(data)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", 0), echo) as made:
        yield made


@pytest.fixture
def peer(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(proxy.address, timeout=WAIT_S) as made:
        assert _echoed(made, b"here") == b"here"
        yield made


def _read(peer: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = peer.recv(count - len(found))
        assert data, f"the connection ended after {len(found)} of {count} bytes"
        found += data
    return found


def _echoed(peer: socket.socket, data: bytes) -> bytes:
    threading.Thread(target=peer.sendall, args=(data,), daemon=True).start()
    return _read(peer, len(data))


def test_bytes_pass_unchanged_and_are_counted(proxy: Proxy, peer: socket.socket) -> None:
    data = bytes(range(256)) * 40_000
    assert _echoed(peer, data) == data
    wait_until(lambda: proxy.passed == 2 * len(b"here" + data))  # counted a moment after they are sent
    assert proxy.connections() == 1


@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_is_seen_by_both_ends(proxy: Proxy, peer: socket.socket, *, reset: bool) -> None:
    assert proxy.cut(reset=reset, callers={"10.0.0.1"}) == 0
    assert _echoed(peer, b"still") == b"still"
    assert proxy.cut(reset=reset) == 1
    if reset:
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    else:
        assert peer.recv(1) == b""


@pytest.mark.parametrize("forward", [True, False])
def test_what_is_held_back_comes_when_the_way_is_open_again(
    proxy: Proxy, peer: socket.socket, *, forward: bool
) -> None:
    proxy.pass_as(SHUT if forward else USUAL, USUAL if forward else SHUT)
    data = bytes(range(256)) * 40_000
    threading.Thread(target=peer.sendall, args=(data,), daemon=True).start()
    peer.settimeout(0.3)
    with pytest.raises(TimeoutError):
        peer.recv(1)
    peer.settimeout(WAIT_S)
    proxy.pass_as(USUAL, USUAL)
    assert _read(peer, len(data)) == data


def test_later_connections_pass_in_the_same_way(proxy: Proxy) -> None:
    proxy.pass_as(Way(delay_s=0.2), USUAL)
    with socket.create_connection(proxy.address, timeout=WAIT_S) as late:
        began_s = time.monotonic()
        assert _echoed(late, b"late") == b"late"
        assert time.monotonic() - began_s >= 0.2


def test_a_slow_way_is_slow_and_loses_nothing(proxy: Proxy, peer: socket.socket) -> None:
    proxy.pass_as(Way(bytes_per_s=100_000), USUAL)
    data = bytes(range(200)) * 100
    began_s = time.monotonic()
    assert _echoed(peer, data) == data
    assert time.monotonic() - began_s >= 0.1


def test_garbage_comes_before_the_next_bytes(proxy: Proxy, peer: socket.socket) -> None:
    assert proxy.damage(callers={"10.0.0.1"}) == 0 and proxy.damage() == 1
    peer.sendall(b"after")
    found = _read(peer, 2 * 64 + 5)
    assert found.endswith(b"after") and found != bytes(2 * 64) + b"after"
    assert _echoed(peer, b"clean") == b"clean"


def test_what_came_before_the_end_is_still_passed_on(proxy: Proxy, peer: socket.socket) -> None:
    proxy.pass_as(Way(delay_s=0.2), Way(delay_s=0.2))
    peer.sendall(b"the last words")
    peer.shutdown(socket.SHUT_WR)
    assert _read(peer, 14) == b"the last words" and peer.recv(1) == b""
