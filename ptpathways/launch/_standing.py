"""A session of a controller in another process, and what its user hears while it does not answer."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ptpathways import native
from ptpathways.launch import _addresses, _tokens

NOTICE_S = 2.0
"""A controller that has not answered for so long is told of."""
TOKEN_S = 30.0
"""How long the token of a controller that begins, or changes it, is waited for unless the caller says."""
_LOOKS_S = 0.1
_WRITES_S = 1.0
"""A controller has written its token so long after it began to listen."""


def await_token(address: str, timeout_s: float = TOKEN_S) -> str:
    """The token of the controller that this user runs at ``address`` on this machine, or empty.

    Waits for one that is about to begin there, or that changes its token; standard error has a line when that takes
    long.

    Raises:
        InvalidOption: as ``find``.
    """
    ends = time.monotonic() + timeout_s
    told_at, listens_since = time.monotonic() + NOTICE_S, 0.0
    while True:
        token, changing = _tokens.find(address), _tokens.is_changing(address)
        now = time.monotonic()
        if (token and not changing) or now >= ends or not (token or _addresses.stays_here(address)):
            return token
        if not token and _listens(address):
            listens_since = listens_since or now
            if now > listens_since + _WRITES_S:  # another user's, or one that needs no token
                return ""
        if now >= told_at:
            told_at = float("inf")
            until = time.strftime("%H:%M:%S", time.localtime(time.time() + ends - now))
            what = "changes its join token" if changing else "that this user runs has begun yet"
            whose = "the controller" if changing else "no controller"
            print(f"ptpathways: {whose} at {address} {what}; waiting until {until}", file=sys.stderr, flush=True)
        time.sleep(_LOOKS_S)


def _listens(address: str) -> bool:
    if address.startswith("ipc://"):
        return os.path.exists(address.removeprefix("ipc://"))  # never so for an abstract socket, which is waited for
    try:
        host = _addresses.host_of(address)
        socket.create_connection((host, int(_addresses.port_of(address))), timeout=1.0).close()
    except (OSError, UnicodeError):
        return False
    return True


def connect(
    address: str, name: str, timeout_s: float, *, token: str, weight: float = 1.0, priority: int = 0
) -> native.Session:
    """Joins the controller at an endpoint as a client; standard error has a line when that takes long.

    Raises:
        ConnectionFailed: nobody answers there in time, or the token is not the cluster's.
        VersionMismatch: controller and client are of two versions.
        InvalidOption: the address or token cannot be used.
    """
    with native.translated("connecting"), _said_when_slow(address, timeout_s):
        return native.Session.connect(address, name, timeout_s, weight, priority, token)


@contextmanager
def _said_when_slow(address: str, timeout_s: float) -> Iterator[None]:
    ends = time.time() + timeout_s
    answered = threading.Event()

    def say() -> None:
        if answered.wait(NOTICE_S):
            return
        until = time.strftime("%H:%M:%S", time.localtime(ends))
        print(
            f"ptpathways: no controller has answered at {address} for {NOTICE_S:.0f} s; waiting for one until {until} "
            f"({timeout_s:g} s in all)",
            file=sys.stderr,
            flush=True,
        )

    if timeout_s <= NOTICE_S:
        yield
        return
    teller = threading.Thread(target=say, name="ptpathways-connects", daemon=True)
    teller.start()
    try:
        yield
    finally:
        answered.set()
        teller.join()
