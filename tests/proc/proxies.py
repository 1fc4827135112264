"""A TCP proxy between two processes, for tests: it cuts, resets and swallows."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from types import TracebackType

_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Passes connections on ``listen`` on to ``target``."""

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(listen)
        self._lock = threading.RLock()
        self._peer: dict[socket.socket, socket.socket] = {}
        self._swallowed: set[socket.socket] = set()
        self._swallow_all = False
        self._reset_after = 0
        self._stop = False
        self.passed = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop = True
        self._thread.join()
        self.cut()
        self._listener.close()

    def cut(self, *, reset: bool = False) -> int:
        """Ends all connections, with FIN or RST; how many there were."""
        with self._lock:
            ended = list(self._peer)
            self._peer.clear()
            self._swallowed.clear()
            for each in ended:
                with contextlib.suppress(OSError):
                    if reset:
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    each.close()
            return len(ended) // 2

    def reset_after(self, count: int) -> None:
        """Resets all connections once so many more bytes have passed."""
        self._reset_after = self.passed + count

    def swallow(self, *, also_new: bool) -> None:
        """Hands on no more bytes of the connections there are, nor of later ones; they stay open."""
        with self._lock:
            self._swallowed.update(self._peer)
            self._swallow_all = also_new

    def mend(self) -> None:
        """Later connections pass again."""
        self._swallow_all = False

    def _run(self) -> None:
        while not self._stop:
            with self._lock:
                watched = (self._listener, *self._peer)
                selector = selectors.DefaultSelector()
                for each in watched:
                    selector.register(each, selectors.EVENT_READ)
            with selector:  # without the lock: a connection that is cut meanwhile is no longer in the table
                ready = [key.fileobj for key, _ in selector.select(0.01)]
            with self._lock:
                for source in ready:
                    if source is self._listener:
                        self._accept()
                    elif isinstance(source, socket.socket) and source in self._peer:
                        self._pass_on(source)
                if self._reset_after and self.passed >= self._reset_after:
                    self._reset_after = 0
                    self.cut(reset=True)

    def _accept(self) -> None:
        caller, _ = self._listener.accept()
        try:
            callee = socket.create_connection(self._target, timeout=5)
        except OSError:
            caller.close()
            return
        self._peer[caller] = callee
        self._peer[callee] = caller
        if self._swallow_all:
            self._swallowed.update((caller, callee))

    def _pass_on(self, source: socket.socket) -> None:
        target = self._peer[source]
        try:
            data = source.recv(1 << 18)
            if data and source not in self._swallowed:
                target.sendall(data)
                self.passed += len(data)
        except OSError:
            data = b""
        if not data:
            for each in (source, target):
                self._peer.pop(each, None)
                self._swallowed.discard(each)
                each.close()
