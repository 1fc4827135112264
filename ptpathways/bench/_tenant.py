"""A client of ``tenancy`` and ``shares``: computations of a given duration, as fast as the cluster takes them.

``python -m ptpathways.bench._tenant ADDRESS DEVICE SECONDS_OF_A_COMPUTATION WEIGHT``. Each request says when to start
and to stop on CLOCK_MONOTONIC, which all processes of a machine share; the answer, how many computations were finished
in between, and when the last ones were.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

import numpy as np

from ptpathways import core, native
from ptpathways.bench._child import serve
from ptpathways.bench._hlo import waiting

_AHEAD = 64
"""Computations submitted and not finished; fewer than the window of a client, so that this loop never blocks."""
_KEPT = 4000
_TIMEOUT_S = 60.0


class Tenant:
    """A client with one function and one argument."""

    def __init__(self, address: str, device: int, seconds: float, weight: float) -> None:
        name = core.random_name("tenant")
        self._session = native.Session.connect(address, name, _TIMEOUT_S, weight)
        self._device = device
        self._function = self._session.register(waiting(seconds), "mlir", name="tenants_work")
        self._argument = self._session.put(np.zeros((), np.float32), device)
        self._run().wait(_TIMEOUT_S)

    def answer(self, request: dict[str, float]) -> dict[str, Any]:
        """``{"start", "stop"}`` to ``{"finished", "ends"}``; a finished one counts when its end lies between."""
        start, stop = request["start"], request["stop"]
        time.sleep(max(0.0, start - time.monotonic()))
        ends: deque[float] = deque(maxlen=_KEPT)
        finished = 0
        waiting_for: deque[native.Buffer] = deque()
        while time.monotonic() < stop:
            while len(waiting_for) < _AHEAD:
                waiting_for.append(self._run())
            waiting_for.popleft().wait(_TIMEOUT_S)
            end = time.monotonic()
            if end < stop:
                finished += 1
                ends.append(end)
        for result in waiting_for:
            result.wait(_TIMEOUT_S)
        return {"finished": finished, "ends": list(ends)}

    def _run(self) -> native.Buffer:
        return self._session.run(self._function, [self._argument], self._device)[0]


def main() -> None:
    address, device, seconds, weight = sys.argv[1:5]
    tenant = Tenant(address, int(device), float(seconds), float(weight))
    serve(tenant.answer)


if __name__ == "__main__":
    main()
