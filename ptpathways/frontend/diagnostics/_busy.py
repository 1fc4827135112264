"""How long the cluster's devices computed for this process."""

from __future__ import annotations

import json
import os

from ptpathways import native
from ptpathways.frontend.base import _state


def device_seconds(timeout_s: float = 5.0) -> float | None:
    """Seconds that devices computed for this process since ``init``, of all devices together; asks the controller.

    None where nobody counts: on PyTorch/XLA's own CPU client.

    Raises:
        NotInitialized: before ``init``.
        ConnectionFailed, DeadlineExceeded: the controller does not answer.
    """
    connection = _state.runtime().connection
    if connection is None:
        return None
    with native.translated("asking for the cluster's state"):
        clients = json.loads(connection.session.status_json(timeout_s))["clients"]
    mine = [client["device_seconds"] for client in clients if client["pid"] == os.getpid()]
    return float(sum(mine))
