"""``transfer``: 64 MiB between client and worker, and from worker to worker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ptpathways import core
from ptpathways.bench._harness import interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import BenchOptions, Goal, Workload

if TYPE_CHECKING:
    from ptpathways.native import Session

SIZE = 64 << 20
"""Bytes of one transfer."""

_TIMEOUT_S = 60.0
_HERE = 0


class _Transfers:
    """One value on the client, on a device, and copied to a device of another host. Values: GB/s, 1 GB = 10^9 bytes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.there = session.hosts()[1]["first_device"]
        self.array = np.random.default_rng(0).random(SIZE // 4, dtype=np.float32)
        self.buffer = session.put(self.array, _HERE)
        for name, value in (("uploaded", self.buffer), ("copied", self.buffer.copy_to(self.there))):
            if not np.array_equal(value.result(_TIMEOUT_S), self.array):
                raise RuntimeError(f"the {name} value differs from what was sent")

    def upload(self) -> float:
        """Until the value exists on the device."""
        start = time.perf_counter()
        self.session.put(self.array, _HERE).wait(_TIMEOUT_S)
        return self._rate(start)

    def fetch(self) -> float:
        """Until the value is in an array of the client's."""
        start = time.perf_counter()
        self.buffer.result(_TIMEOUT_S)
        return self._rate(start)

    def copy(self) -> float:
        """Until the copy exists on the other host's device."""
        start = time.perf_counter()
        self.buffer.copy_to(self.there).wait(_TIMEOUT_S)
        return self._rate(start)

    @staticmethod
    def _rate(start: float) -> float:
        return SIZE / (time.perf_counter() - start) / 1e9


def _run(options: BenchOptions) -> list[Record]:
    from ptpathways.launch import local

    size = options.cluster(hosts=2)
    if size.hosts < 2:
        raise core.InvalidOption(f"workload transfer needs at least 2 hosts, got {size.hosts}")
    with local.start(size) as cluster:
        transfers = _Transfers(cluster.session)
        variants = {
            "client to worker": transfers.upload,
            "worker to client": transfers.fetch,
            "worker to worker": transfers.copy,
        }
        values = interleave(variants, repeats=options.repeats_or(15, 3), warm_up=2)
    setting = Setting("transfer", size.hosts, size.device_count)
    return [setting.record("ptpathways", name, "GB/s", values[name]) for name in variants]


TRANSFER = Workload(
    "transfer",
    "64 MiB from client to worker, worker to client and worker to worker, in GB/s; the bytes are checked",
    _run,
    {"worker to worker": Goal(3, at_least=True)},
    any_platform=True,
)
