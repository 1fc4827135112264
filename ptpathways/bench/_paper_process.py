"""A process of ``paper``: ``python -m ptpathways.bench._paper_process HOSTS DEVICES_PER_HOST ISLANDS COSTS``.

A simulated cluster; COSTS: a JSON object with ``cost_us`` by function and ``bandwidth_gbs``. Requests:

    {"do": "times", "model": {...}, "layout": {...}, "batch": n}   of the model's functions, compiled
    {"do": "spmd", "steps": n}                 as ``spmd`` says
    {"do": "pipeline", "steps": n, ...}        as ``pipeline`` does
    {"do": "islands", "steps": n, ...}         as ``islands`` does

Answers to all but the first: ``{"seconds": of a step}``. A process makes what it is asked for once.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import ptpathways as pw
from ptpathways.bench._child import serve
from ptpathways.bench._paper_models import Layout, Model

WAIT_S = 300.0
_WARM_UP = 3
"""Steps: a pipeline has two programs, with and without an optimizer's state."""


class Spread(nn.Module):
    """(n, 1) to (n, length, width): an activation of that size without a batch of that size."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.length, self.width = length, width

    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1).expand(-1, self.length, self.width)


class Scale(nn.Module):
    """Stands for a stage: one parameter, and an activation of bfloat16 that goes to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() * self.by).bfloat16()


def _mean(y: Tensor, _: Tensor) -> Tensor:
    return y.float().mean()


def pipeline(request: Any) -> Callable[[], Any]:
    """``stages``, ``microbatches``, ``batch``, ``length``, ``width``, ``schedule``; slices are the hosts in order."""
    stages, batch = request["stages"], request["batch"]
    first = nn.Sequential(Spread(request["length"], request["width"]), Scale())
    model = nn.Sequential(first, *(Scale() for _ in range(stages - 1)))
    cluster = pw.cluster()
    size = cluster.device_count // stages
    pipe = pw.pipeline(
        model,
        stages=stages,
        microbatches=request["microbatches"],
        schedule=request["schedule"],
        slices=[cluster.slice((size,)) for _ in range(stages)],
        loss=_mean,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    given = torch.zeros(batch, 1), torch.zeros(batch, 1)
    return lambda: pipe.step(*given)


def spmd(_: Any) -> Callable[[], Any]:
    """A computation over all devices, whose result the next one needs."""
    cluster = pw.cluster()
    everything = cluster.slice((cluster.device_count,), axis_names=("x",))

    @pw.function(slice=everything, in_placements=[("x",)], out_placements=("x",), donate=(0,))
    def step(state: Tensor) -> Tensor:
        return state + 1.0

    state = [torch.zeros(cluster.device_count)]

    def run() -> Any:
        state[0] = step(state[0])
        return state[0]

    return run


def islands(request: Any) -> Callable[[], Any]:
    """Data parallel over ``islands`` (1 or 2) islands: ``parameters``, whose gradients go in ``chunks`` to the other.

    The backward pass makes the gradients chunk by chunk; each is sent, as float32, while the next is computed.
    """
    cluster, chunks = pw.cluster(), request["chunks"]
    size = cluster.device_count // request["islands"]
    length = request["parameters"] // chunks // size * size
    parts = [cluster.slice((size,), axis_names=("x",)) for _ in range(request["islands"])]
    makes, forwards, backwards, updates = [], [], [], []

    def make(zeros: Tensor) -> list[Tensor]:
        return [torch.zeros(length, device=zeros.device) + zeros[:1] for _ in range(chunks)]

    def forward(*weights: Tensor) -> Tensor:
        return torch.stack([weight[:1] for weight in weights]).sum(0).expand(size).clone()

    def backward(state: Tensor) -> tuple[Tensor, Tensor]:
        return state + 1.0, torch.zeros(length, device=state.device) + state[:1]

    def update(weight: Tensor, *gradients: Tensor) -> Tensor:
        return weight - sum(gradients)

    line = ("x",)
    for part in parts:
        makes.append(pw.function(make, slice=part, in_placements=[line], out_placements=[line] * chunks))
        forwards.append(pw.function(forward, slice=part, in_placements=[line] * chunks, out_placements=line))
        backwards.append(pw.function(backward, slice=part, in_placements=[line], out_placements=[line, line]))
        updates.append(
            pw.function(update, slice=part, in_placements=[line] * (1 + len(parts)), out_placements=line, donate=(0,))
        )

    @pw.program(donate=tuple(range(len(parts) * chunks)))
    def step(*weights: Any) -> list[Any]:
        found: list[list[Any]] = []
        for number in range(len(parts)):
            state, made = forwards[number](*weights[number * chunks : (number + 1) * chunks]), []
            for _ in range(chunks):
                state, gradient = backwards[number](state)
                made.append(gradient)
            found.append(made)
        results = []
        for number in range(len(parts)):
            for chunk in range(chunks):
                gradients = [made[chunk] for made in found]  # the other island's go over the network
                results.append(updates[number](weights[number * chunks + chunk], *gradients))
        return results

    weights = [value for make in makes for value in make(torch.zeros(size))]

    def run() -> Any:
        weights[:] = step(*weights)
        return weights

    return run


_MAKE = {"spmd": spmd, "pipeline": pipeline, "islands": islands}


def _wait(value: Any) -> None:
    for one in value if isinstance(value, list | tuple) else [value]:
        one.wait(WAIT_S)


_made: dict[str, Callable[[], Any]] = {}


def answer(request: Any) -> Any:
    """As the module says."""
    if request["do"] == "times":
        from ptpathways.bench._paper_blocks import times  # here: only one process compiles

        return times(Model(**request["model"]), Layout(**request["layout"]), request["batch"])
    what = request["do"]
    if what not in _made:
        _made[what] = _MAKE[what](request)
        for _ in range(_WARM_UP):
            _wait(_made[what]())
    run = _made[what]
    start = time.perf_counter()
    for _ in range(request["steps"]):
        value = run()
    _wait(value)
    return {"seconds": (time.perf_counter() - start) / request["steps"]}


def main() -> None:
    hosts, devices, islands_, costs = sys.argv[1:]
    pw.init(
        simulated=pw.Simulated(
            hosts=int(hosts), devices_per_host=int(devices), islands=int(islands_), memory="64GiB", **json.loads(costs)
        )
    )
    serve(answer)


if __name__ == "__main__":
    main()
