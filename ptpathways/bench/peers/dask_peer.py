"""Dask: one single-threaded worker process for each host; a future on each stands for the scalar it holds.

"OpByOp" submits one task for each host and computation, each on the future before it; "Chained" submits one graph of
128 tasks for each host; "Fused" is one task that adds 128 times.
"""

from __future__ import annotations

import logging
from typing import Any

import dask
import distributed
from runner import CHAIN, ITEMS, Batch, Setting, ideal_seconds, stage_places, wait_for_stage

_CALLS = 32


def add(value: float) -> float:
    return value + 1.0


def add_many(value: float) -> float:
    for _ in range(CHAIN):
        value += 1.0
    return value


def wait(item: Any) -> Any:
    wait_for_stage()
    return item


class Dask:
    """A local Dask cluster of processes."""

    def __init__(self, setting: Setting) -> None:
        self.versions = {"dask": dask.__version__, "distributed": distributed.__version__}
        self._work = setting["work"]
        dask.config.set({"optimization.fuse.active": False})
        self._cluster = distributed.LocalCluster(
            n_workers=setting["hosts"],
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.ERROR,
        )
        self._client = distributed.Client(self._cluster)
        self._workers = list(self._client.scheduler_info(n_workers=-1)["workers"])
        self._held = [self._client.submit(float, 0, workers=[name], pure=False) for name in self._workers]
        distributed.wait(self._held)

    def figures(self) -> dict[str, Batch]:
        if self._work == "pipeline":
            return {"pipeline": self._pipeline}
        return {
            "OpByOp": lambda: self._adds(add, _CALLS),
            "Chained": self._chain,
            "Fused": lambda: self._adds(add_many, _CALLS) * CHAIN,
            "round trip": lambda: self._adds(add, 1),
        }

    def close(self) -> None:
        self._client.close()
        self._cluster.close()

    def _adds(self, what: Any, count: int) -> float:
        for _ in range(count):
            self._held = [
                self._client.submit(what, held, workers=[name], pure=False)
                for held, name in zip(self._held, self._workers, strict=True)
            ]
        distributed.wait(self._held)
        return float(count)

    def _chain(self) -> float:
        lasts = []
        for name in self._workers:
            with dask.annotate(workers=[name]):
                value = dask.delayed(0.0)
                for _ in range(CHAIN):
                    value = dask.delayed(add)(value)
            lasts.append(value)
        distributed.wait(self._client.compute(lasts, optimize_graph=False))
        return float(CHAIN)

    def _pipeline(self) -> float:
        items: list[Any] = []
        for item in range(ITEMS):
            value: Any = item
            for host in stage_places(len(self._workers)):
                value = self._client.submit(wait, value, workers=[self._workers[host]], pure=False)
            items.append(value)
        distributed.wait(items)
        return float(ideal_seconds(len(self._workers)))


open_system = Dask
