"""Process of ``startup``: starts a local cluster once and tells how long each part took.

Arguments: ``native`` or ``pytorch``; hosts; devices per host. ``native`` imports no torch and tells what an idle
worker's memory is made of; ``pytorch`` is what a user's program does after importing torch_xla.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Any

from ptpathways import core, native, platforms
from ptpathways.bench._child import serve

_TIMEOUT_S = 60.0


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now


def native_cluster(options: core.Options) -> dict[str, Any]:
    """Cluster up, then a result of every host; by the native session."""
    import numpy as np

    from ptpathways.bench._dispatch import ADD_ONE
    from ptpathways.bench._memory import memory_of
    from ptpathways.launch import local

    clock = _Clock()
    with local.start(options) as cluster:
        clock.lap("cluster")
        with native.Session.connect("", "second", _TIMEOUT_S):
            clock.lap("another session")
        session = cluster.session
        idle = [memory_of(host["pid"], platforms.find_plugin().path) for host in session.hosts()]
        clock.lap("reading memory")
        function = session.register(ADD_ONE, "mlir", name="add_one")
        firsts = [host["first_device"] for host in session.hosts()]
        results = [session.run(function, [session.put(np.float32(1.0), first)], first)[0] for first in firsts]
        values = [float(result.result(_TIMEOUT_S)) for result in results]
        clock.lap("first results")
    _check(values)
    return {"laps": clock.laps, "memory": [asdict(memory) for memory in idle]}


def pytorch_cluster(options: core.Options) -> dict[str, Any]:
    """``init``, then a result of every host; by PyTorch."""
    import torch
    import torch_xla  # noqa: F401  (its seconds are not ours)

    import ptpathways as pw

    clock = _Clock()
    pw.init(hosts=options.hosts, devices_per_host=options.devices_per_host)
    clock.lap("init")
    devices = [pw.device(number) for number in range(0, options.device_count, options.devices_per_host)]
    sums = [torch.ones((), device=device) + 1.0 for device in devices]
    pw.step()
    values = [total.item() for total in sums]
    clock.lap("first results")
    pw.shutdown()
    _check(values)
    return {"laps": clock.laps}


def _check(values: list[float]) -> None:
    if any(value != 2.0 for value in values):
        raise RuntimeError(f"1 + 1 must be 2 on every host, got {values}")


def main() -> None:
    kind, hosts, devices_per_host = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    measure = {"native": native_cluster, "pytorch": pytorch_cluster}[kind]
    serve(lambda _: measure(core.Options(hosts=hosts, devices_per_host=devices_per_host)))


if __name__ == "__main__":
    main()
