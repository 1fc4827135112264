"""A TCP proxy between two processes: it cuts, resets, swallows, holds back, delays, slows down and damages."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

_RESET = struct.pack("ii", 1, 0)
_READ_BYTES = 1 << 18
_KEPT_BYTES = 1 << 20
"""Of one direction; then its sender has to wait, as for a full socket."""
_GARBAGE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Way:
    """How bytes pass in one direction."""

    open: bool = True
    """False: they stay with their sender, as in a network that drops packets, which TCP sends again when it heals."""
    delay_s: float = 0.0
    bytes_per_s: float = math.inf


USUAL = Way()
SHUT = Way(open=False)


@dataclass(slots=True)
class _Stream:
    """One direction of a connection: what was read and not yet written."""

    source: socket.socket
    target: socket.socket
    forward: bool
    way: Way = USUAL
    swallow: bool = False
    damage: bool = False
    ended: bool = False
    """The source has closed; the rest is still passed on, and then that it has."""
    passed_end_on: bool = False
    kept: deque[tuple[float, memoryview]] = field(default_factory=deque)
    """With the time at which each may be written, at the earliest."""
    kept_bytes: int = 0
    free_at_s: float = 0.0

    def wants_to_read(self) -> bool:
        return self.way.open and not self.ended and self.kept_bytes < _KEPT_BYTES

    def due_s(self) -> float:
        """When the next bytes are to be written; infinity: there are none, or they are held back."""
        return max(self.kept[0][0], self.free_at_s) if self.kept and self.way.open else math.inf

    def take(self, data: bytes, now_s: float) -> None:
        if self.damage:
            self.damage = False
            data = os.urandom(_GARBAGE_BYTES) + data
        self.kept.append((now_s + self.way.delay_s, memoryview(data)))
        self.kept_bytes += len(data)

    def write(self, now_s: float) -> int:
        """Writes what is due and fits; how many bytes that were."""
        due_s, data = self.kept[0]
        # Slow means small pieces, so that it is slow for short messages, too.
        most = len(data) if self.way.bytes_per_s == math.inf else max(1, int(self.way.bytes_per_s / 20))
        try:
            sent = self.target.send(data[:most])
        except BlockingIOError:
            return 0
        self.kept_bytes -= sent
        if sent == len(data):
            self.kept.popleft()
        else:
            self.kept[0] = (due_s, data[sent:])
        self.free_at_s = now_s + sent / self.way.bytes_per_s
        return sent

    def pass_end_on(self) -> None:
        if self.ended and not self.kept and not self.passed_end_on:
            self.passed_end_on = True
            self.target.shutdown(socket.SHUT_WR)


@dataclass(slots=True)
class _Connection:
    caller: str
    streams: tuple[_Stream, _Stream]

    def concerns(self, callers: Collection[str] | None) -> bool:
        return callers is None or self.caller in callers


class Proxy:
    """Passes connections on ``listen`` on to ``target``.

    A fault concerns all connections, or those whose caller's IP address is among ``callers``.
    """

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(listen)
        self._listener.setblocking(False)
        self._lock = threading.RLock()
        self._connections: list[_Connection] = []
        self._ways: list[tuple[Collection[str] | None, Way, Way]] = []
        """Of later connections; the last that concerns one counts."""
        self._left: list[socket.socket] = []
        """Ends whose others were reset."""
        self._swallow_new = False
        self._reset_at = 0
        self._stop = False
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.passed = 0
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop = True
        self._wake()
        self._thread.join()
        self.cut()
        for each in (*self._left, self._listener, self._wake_receiver, self._wake_sender):
            each.close()

    def cut(self, *, reset: bool = False, callers: Collection[str] | None = None) -> int:
        """Ends connections, with FIN or RST; how many there were."""
        with self._lock:
            ended = [each for each in self._connections if each.concerns(callers)]
            for each in ended:
                self._end(each, reset=reset)
        self._wake()
        return len(ended)

    def reset_one_end(self, *, callers: bool) -> None:
        """Resets one end of each connection, the callers' or that of those who were called; the other hears nothing."""
        with self._lock:
            for each in self._connections:
                forward, backward = each.streams
                ended, left = (forward, backward) if callers else (backward, forward)
                ended.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                ended.source.close()
                self._left.append(left.source)
            self._connections.clear()
        self._wake()

    def reset_after(self, count: int) -> None:
        """Resets all connections once so many more bytes have passed."""
        self._reset_at = self.passed + count

    def swallow(self, *, also_new: bool) -> None:
        """Hands on no more bytes of the connections there are, nor of later ones; they stay open and seem to work."""
        with self._lock:
            for stream in self._streams(None):
                stream.swallow = True
            self._swallow_new = also_new

    def mend(self) -> None:
        """Later connections pass again."""
        self._swallow_new = False

    def pass_as(self, forward: Way, backward: Way, callers: Collection[str] | None = None) -> None:
        """How bytes pass from now on, from callers (``forward``) and to them, also on connections to come."""
        with self._lock:
            self._ways = [entry for entry in self._ways if entry[0] != callers] + [(callers, forward, backward)]
            for stream in self._streams(callers):
                stream.way = forward if stream.forward else backward
        self._wake()

    def damage(self, callers: Collection[str] | None = None) -> int:
        """Puts garbage before the next bytes of each direction; of how many connections."""
        with self._lock:
            streams = self._streams(callers)
            for stream in streams:
                stream.damage = True
            return len(streams) // 2

    def connections(self, callers: Collection[str] | None = None) -> int:
        """How many there are."""
        with self._lock:
            return len(self._streams(callers)) // 2

    def _streams(self, callers: Collection[str] | None) -> list[_Stream]:
        return [stream for each in self._connections if each.concerns(callers) for stream in each.streams]

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"w")

    def _run(self) -> None:
        while not self._stop:
            now_s = time.monotonic()
            wanted: dict[socket.socket, int] = {}
            next_s = math.inf
            with self._lock:
                for stream in self._streams(None):
                    if stream.wants_to_read():
                        wanted[stream.source] = wanted.get(stream.source, 0) | selectors.EVENT_READ
                    due_s = stream.due_s()
                    if due_s <= now_s:
                        wanted[stream.target] = wanted.get(stream.target, 0) | selectors.EVENT_WRITE
                    next_s = min(next_s, due_s if due_s > now_s else math.inf)
                selector = selectors.DefaultSelector()
                for each in (self._listener, self._wake_receiver):
                    selector.register(each, selectors.EVENT_READ)
                for each, events in wanted.items():
                    selector.register(each, events)
            with selector:  # without the lock: what is cut meanwhile is no longer in the table
                found = selector.select(None if next_s == math.inf else next_s - now_s)
                ready = {key.fileobj: events for key, events in found}
            with self._lock:
                self._handle(ready)

    def _handle(self, ready: Mapping[Any, int]) -> None:
        if self._wake_receiver in ready:
            with contextlib.suppress(BlockingIOError):
                self._wake_receiver.recv(1 << 12)
        if self._listener in ready:
            self._accept()
        now_s = time.monotonic()
        for each in list(self._connections):
            try:
                for stream in each.streams:
                    if ready.get(stream.source, 0) & selectors.EVENT_READ:
                        self._read(stream, now_s)
                    if ready.get(stream.target, 0) & selectors.EVENT_WRITE and stream.due_s() <= now_s:
                        self.passed += stream.write(now_s)
                    stream.pass_end_on()
                if all(stream.passed_end_on for stream in each.streams):
                    self._end(each)
            except OSError:
                self._end(each)
        if self._reset_at and self.passed >= self._reset_at:
            self._reset_at = 0
            self.cut(reset=True)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            caller, address = self._listener.accept()
            try:
                callee = socket.create_connection(self._target, timeout=5)
            except OSError:
                caller.close()
                return
            streams = (_Stream(caller, callee, True), _Stream(callee, caller, False))
            made = _Connection(address[0], streams)
            for stream in streams:
                stream.source.setblocking(False)
                stream.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                stream.swallow = self._swallow_new
                for callers, forward, backward in self._ways:
                    if made.concerns(callers):
                        stream.way = forward if stream.forward else backward
            self._connections.append(made)

    def _read(self, stream: _Stream, now_s: float) -> None:
        try:
            data = stream.source.recv(_READ_BYTES)
        except BlockingIOError:
            return
        stream.ended = not data
        if data and not stream.swallow:
            stream.take(data, now_s)
            if stream.due_s() <= now_s:
                self.passed += stream.write(now_s)

    def _end(self, connection: _Connection, *, reset: bool = False) -> None:
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        for stream in connection.streams:
            with contextlib.suppress(OSError):
                if reset:
                    stream.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                stream.source.close()
