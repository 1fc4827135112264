"""A process of ``pipeline``: ``python -m ptpathways.bench._pipelining_process WHAT HOSTS``.

WHAT: ``real`` (a pipeline over worker processes), ``alone`` (the same training on one device, captured), or
``simulated``. Real ones answer ``{"steps": n, "schedule": name}`` as ``Loop.block`` does.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from ptpathways.bench._child import serve
from ptpathways.bench._data_parallel_loop import Loop
from ptpathways.bench._pipelining_work import (
    MICROBATCHES,
    Batches,
    cuts,
    loss_of,
    make_model,
    make_optimizer,
)

WAIT_S = 300.0
_SMALL_US = 1.0
_WIDTH = 8


class Real:
    """A pipeline for each schedule that was asked for, over the same hosts."""

    def __init__(self, hosts: int) -> None:
        self._cluster = pw.init(hosts=hosts, devices_per_host=1, islands=hosts)
        self._loops: dict[str, Loop] = {}

    def answer(self, request: Any) -> dict[str, float]:
        schedule = request["schedule"]
        if schedule not in self._loops:
            stages = self._cluster.device_count
            pipe = pw.pipeline(
                make_model(),
                stages=cuts(stages),
                microbatches=MICROBATCHES,
                schedule=schedule,
                slices=[self._cluster.slice((1,)) for _ in range(stages)],
                loss=loss_of,
                optimizer=make_optimizer,
            )
            self._loops[schedule] = Loop(pipe.step, Batches())  # type: ignore[arg-type]
        return self._loops[schedule].block(int(request["steps"]), lambda loss: loss.result(WAIT_S))  # type: ignore[attr-defined]


class Alone:
    """The same work on one device, as a captured step with the whole batch."""

    def __init__(self) -> None:
        pw.init(hosts=1, devices_per_host=1)
        model = make_model()
        model, optimizer, loader = pw.prepare(model, make_optimizer(model.parameters()), Batches())

        @pw.program(kind="step")
        def step(inputs: Tensor, targets: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()
            return loss.detach()

        self._loop = Loop(step, loader)

    def answer(self, request: Any) -> dict[str, float]:
        return self._loop.block(int(request["steps"]), lambda loss: loss)


class Simulated:
    """Pipelines over simulated devices: parts of stages take a fixed time, the control plane is the real one."""

    def __init__(self, hosts: int, cost_us: float) -> None:
        self._cost = cost_us
        costs = {"forward*": cost_us, "backward_*": cost_us, "backward*": 2 * cost_us, "*": _SMALL_US}
        simulated = pw.Simulated(hosts=hosts, devices_per_host=1, islands=hosts, cost_us=costs)
        self._cluster = pw.init(simulated=simulated)
        self._pipes: dict[Any, pw.Pipeline] = {}

    def answer(self, request: Any) -> dict[str, float]:
        """``{"schedule", "microbatches", "chunks", "steps"}`` to a step's seconds, bubbles and stalls."""
        count = request["microbatches"]
        pipe = self._pipe(request["schedule"], request["chunks"], count)
        batch = torch.zeros(count, _WIDTH), torch.zeros(count, _WIDTH)
        for _ in range(3):  # two programs: with and without an optimizer's state
            pipe.step(*batch).wait(WAIT_S)
        pw.trace(clear=True)
        steps = request["steps"]
        start = time.perf_counter()
        for _ in range(steps):
            loss = pipe.step(*batch)
        submitted = time.perf_counter() - start
        loss.wait(WAIT_S)
        seconds = time.perf_counter() - start
        costs = pw.pipelines.Costs(self._cost, self._cost, self._cost)
        measured = pipe.measured(costs=costs)
        return {
            "seconds": seconds / steps,
            "bubble": measured.bubble,
            "theory": measured.theory,
            "submit_seconds": submitted / steps,
            "stall_us": _stall_us(pipe.slices[0].devices[0]),
        }

    def _pipe(self, schedule: str, chunks: int, microbatches: int) -> pw.Pipeline:
        key = (schedule, chunks, microbatches)
        if key not in self._pipes:
            ranks = self._cluster.device_count
            layers = (nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.Tanh()) for _ in range(ranks * chunks))
            self._pipes[key] = pw.pipeline(
                nn.Sequential(*layers),
                stages=ranks * chunks,
                microbatches=microbatches,
                schedule=schedule,
                slices=[self._cluster.slice((1,)) for _ in range(ranks)],
                loss=F.mse_loss,
                optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            )
        return self._pipes[key]


def _stall_us(device: int) -> float:
    """How long the first slice stood still between two steps, on average: it needs nothing but the next message."""
    times: dict[int, tuple[float, float]] = {}
    for one in pw.trace().intervals():
        if one.device == device:
            start, end = times.get(one.run, (one.start_us, one.end_us))
            times[one.run] = min(start, one.start_us), max(end, one.end_us)
    spans = sorted(times.values())
    gaps = [max(0.0, after[0] - before[1]) for before, after in itertools.pairwise(spans)]
    return sum(gaps) / len(gaps) if gaps else 0.0


def main() -> None:
    what, hosts = sys.argv[1], int(sys.argv[2])
    if what == "simulated":
        serve(Simulated(hosts, float(sys.argv[3])).answer)
    else:
        serve(Real(hosts).answer if what == "real" else Alone().answer)


if __name__ == "__main__":
    main()
