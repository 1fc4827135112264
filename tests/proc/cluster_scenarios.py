"""What scenario programs on one cluster share: comparing with plain PyTorch, and running a group of them."""

from __future__ import annotations

import gc
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

import ptpathways as pw

Scenario = Callable[[pw.Cluster], None]
WAIT_S = 60.0


def equal(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(pw.get(got, WAIT_S), wanted, rtol=1e-5, atol=1e-6)


def refused(kind: type[BaseException], said: str | Sequence[str], attempt: Callable[[], Any]) -> str:
    """Runs ``attempt``, which must raise ``kind`` with all of ``said`` in its message."""
    try:
        attempt()
    except kind as error:
        for part in (said,) if isinstance(said, str) else said:
            assert part in str(error), f"{part!r} is not in: {error}"
        return str(error)
    raise AssertionError(f"expected {kind.__name__}")


def run(scenarios: Sequence[Scenario], *, hosts: int, islands: int) -> None:
    """Runs each on one cluster and prints one JSON object: for each scenario null, or what went wrong."""
    cluster = pw.init(hosts=hosts, devices_per_host=2, islands=islands, memory_per_device="256MiB")
    outcome: dict[str, str | None] = {}
    for scenario in scenarios:
        try:
            scenario(cluster)
            outcome[scenario.__name__] = None
        except Exception:
            outcome[scenario.__name__] = traceback.format_exc()
        gc.collect()
    json.dump(outcome, sys.stdout)
