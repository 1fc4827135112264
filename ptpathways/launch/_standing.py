"""A session of a controller in another process, and what its user hears while it does not answer."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ptpathways import native

NOTICE_S = 2.0
"""A controller that has not answered for so long is told of."""


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
