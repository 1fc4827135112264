"""Captured steps on a mesh of all devices, against eager PyTorch on the CPU. A program of its own: one process.

    python captured_mesh_scenarios.py HOSTS DEVICES_PER_HOST

Prints one JSON object: for each scenario its numbers here and on the cluster, replays and what was said; or the error.
"""

from __future__ import annotations

import copy
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw

STEPS, ROWS, WIDTH = 8, 8, 16
SAID: list[str] = []
_shape = (1, 1)
_clusters: list[Any] = []


class World:
    """Where a scenario runs: the CPU, eagerly, or the cluster."""

    def __init__(self, model: nn.Module, capture: bool, on_cluster: bool = True) -> None:
        self.model = model
        self.capture = capture
        self.on_cluster = on_cluster

    def prepare(self, *objects: Any, **options: Any) -> Any:
        if not self.on_cluster:
            return objects
        return pw.prepare(*objects, capture=self.capture, **options)

    def placed(self) -> Any:
        """The model, with its parameters where they can be marked."""
        return self.model.to(pw.device()) if self.on_cluster else self.model

    def slice(self, count: int) -> Any:
        return _clusters[0].slice((count,))

    def mesh(self, *shape: int, names: tuple[str, ...]) -> Any:
        from torch_xla.distributed import spmd

        return spmd.Mesh(np.arange(int(np.prod(shape))), shape, names) if self.on_cluster else None

    def mark(self, tensor: Tensor, mesh: Any, spec: tuple[str | None, ...]) -> None:
        from torch_xla.distributed import spmd

        if self.on_cluster:
            spmd.mark_sharding(tensor, mesh, spec)


Scenario = Callable[[World], list[float]]


def network(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, WIDTH), nn.Tanh(), *between, nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)
    )


def batches(count: int = STEPS, rows: int = ROWS) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(rows, 4, generator=generator), torch.randn(rows, 1, generator=generator)) for _ in range(count)
    ]


def numbers(values: list[Tensor]) -> list[float]:
    return [float(value) for value in torch.stack([value.detach() for value in values]).cpu()]


def devices() -> int:
    return _shape[0] * _shape[1]


def data_parallel(world: World) -> list[float]:
    """AdamW under a schedule, clipping, uneven last batches, and a captured evaluation between the epochs whose result
    is divided over the devices."""
    model = world.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=5 * STEPS, cycle_momentum=False)

    def train_step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss, norm

    def evaluate(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            errors: Tensor = (model(x) - y).abs()
            return errors

    data = [*batches(STEPS - 1), *batches(1, ROWS - 1)]
    schedule, train_step, evaluate = world.prepare(schedule, train_step, evaluate)
    model, optimizer, loader, _ = world.prepare(model, optimizer, data, train_step)
    found: list[Tensor] = []
    errors: list[Tensor] = []
    for _ in range(4):
        for x, y in loader:
            found += train_step(x, y)
            schedule.step()
        errors += [evaluate(x, y) for x, y in loader]
    _expect(world, train_step, replays=4 * STEPS - 5)
    _expect(world, evaluate, replays=4 * STEPS - 4)
    return [*numbers(found), *numbers([error.sum() for error in errors]), float(errors[-2][3])]


def tensor_parallel(world: World) -> list[float]:
    """Columns and rows along one axis; SGD with momentum, gradients over two batches by a flag."""
    model = world.placed()
    over = world.mesh(devices(), names=("model",))
    world.mark(model[0].weight, over, ("model", None))
    world.mark(model[2].weight, over, (None, "model"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)

    def train_step(x: Tensor, y: Tensor, update: bool) -> Tensor:
        loss = F.mse_loss(model(x), y) / 2
        loss.backward()
        if update:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    model, optimizer, train_step = world.prepare(model, optimizer, train_step)
    (loader, _) = world.prepare(batches(2 * STEPS), lambda: None, mesh=over, batch_axis=())
    losses = [train_step(x, y, number % 2 == 1) for number, (x, y) in enumerate(loader)]
    _expect(world, train_step, replays=2 * STEPS - 6)
    return [*numbers(losses), float(model[0].weight.detach().cpu().sum())]


def fully_sharded(world: World) -> list[float]:
    model, over = world.model, world.mesh(devices(), 1, names=("fsdp", "model"))
    wrapped: nn.Module = model
    if world.on_cluster:
        from torch_xla.experimental import spmd_fully_sharded_data_parallel as fsdp

        wrapped = fsdp.SpmdFullyShardedDataParallel(model, mesh=over)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        return loss

    wrapped, optimizer, loader, train_step = world.prepare(wrapped, optimizer, batches(), train_step, mesh=over)
    losses = [train_step(x, y) for x, y in loader]
    _expect(world, train_step, replays=STEPS - 3)
    return [*numbers(losses), float(next(model.parameters()).detach().cpu().sum())]


def data_and_tensor(world: World) -> list[float]:
    """Partly replicated parameters, batches of the CPU that the step itself uploads and divides, and state changed from
    outside between the calls."""
    model = world.placed()
    over = world.mesh(2, devices() // 2, names=("data", "model"))
    world.mark(model[0].weight, over, ("model", None))
    world.mark(model[2].weight, over, (None, "model"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    place = pw.device() if world.on_cluster else torch.device("cpu")

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        x, y = x.to(place), y.to(place)  # y is copied to every device
        world.mark(x, over, ("data", None))
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    model, optimizer, train_step = world.prepare(model, optimizer, train_step)
    losses = []
    for number, (x, y) in enumerate(batches()):
        if number == STEPS - 2:
            with torch.no_grad():
                model[-1].bias.add_(1.0)
        losses.append(train_step(x, y))
    _expect(world, train_step, replays=STEPS - 3)
    return numbers(losses)


def dropout(world: World) -> list[float]:
    """The same random numbers as a lazy run."""
    model = world.model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    pw.manual_seed(5)
    model, optimizer, loader, train_step = world.prepare(model, optimizer, batches(), train_step)
    losses = [train_step(x, y) for x, y in loader]
    _expect(world, train_step, replays=STEPS - 3)
    return numbers(losses)


def two_slices(world: World) -> list[float]:
    """A model cut in two, a slice for each half: one program over both, with copies between them inside. One slice is
    laid over more devices than the other, so that what crosses is laid another way."""
    model: Any = world.model
    places = [torch.device("cpu")] * 2
    if world.on_cluster:
        places = [world.slice(2).device, world.slice(1).device]
    first, second = model[:2].to(places[0]), model[2:].to(places[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        hidden = first(x.to(places[0])).to(places[1])
        loss = F.mse_loss(second(hidden), y.to(places[1]))
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = pw.program(train_step) if world.on_cluster else train_step
    losses = [step(x, y) for x, y in batches()]
    _expect(world, step, replays=STEPS - 3)
    return [*numbers(losses), float(model[0].weight.detach().cpu().sum())]


def moved_between(world: World) -> list[float]:
    """The slice of a step goes to other devices between two calls: the step is traced again, and replayed again."""
    model, place = world.model, torch.device("cpu")
    if world.on_cluster:
        part = world.slice(2)
        place = part.device
    model = model.to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(place)), y.to(place))
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = pw.program(train_step) if world.on_cluster else train_step
    losses = []
    for number, (x, y) in enumerate(batches(2 * STEPS)):
        if number == STEPS and world.on_cluster:
            part.move(hosts=["host1"] if part.devices[0] < 2 else ["host0"])
        losses.append(step(x, y))
    _expect(world, step, replays=2 * STEPS - 3 - 2)
    return numbers(losses)


def a_replaced_buffer(world: World) -> list[float]:
    """A buffer that the forward pass replaces is reset by the user, to one that lies another way."""

    class Recurrent(nn.Module):
        state: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, WIDTH)
            self.register_buffer("state", torch.zeros(ROWS, WIDTH))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x) + self.state * 0.1
            self.state = out.detach()
            return out

    torch.manual_seed(0)
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scale = torch.tensor(0.5, dtype=torch.float64)
    if world.on_cluster:
        scale = scale.to(pw.device())

    def train_step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        shifted: Tensor = loss.detach() + scale
        return shifted

    model, optimizer, loader, train_step = world.prepare(model, optimizer, batches(2 * STEPS), train_step)
    losses = []
    for number, (x, _) in enumerate(loader):
        if number in (3, 7):
            model.state = torch.zeros_like(model.state)
        losses.append(train_step(x))
    return numbers(losses)


def waits_in_the_step(world: World) -> list[float]:
    """A step that reads its loss is not captured, says why, and goes on."""
    model = world.model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x: Tensor, y: Tensor) -> float:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    model, optimizer, loader, train_step = world.prepare(model, optimizer, batches(4), train_step)
    losses = [train_step(x, y) for x, y in loader]
    _expect(world, train_step, replays=0, said="waits for a value")
    return losses


def _expect(world: World, step: Any, replays: int, said: str = "") -> None:
    """Checks how often a captured step was replayed, and that it said nothing, or what."""
    if not (world.on_cluster and world.capture):
        return
    mine = [text for text in SAID if f"'{step.name}'" in text and "is traced again" not in text]
    assert step.replays + step.audits == replays, (step.name, step.replays, step.audits, replays, SAID)
    assert (said in mine[0]) if said else not mine, mine


SCENARIOS: dict[tuple[int, int], tuple[Scenario, ...]] = {
    (1, 1): (data_parallel,),
    (1, 2): (a_replaced_buffer,),
    (1, 4): (data_parallel, tensor_parallel, fully_sharded, data_and_tensor, dropout, waits_in_the_step),
    (2, 2): (data_parallel, tensor_parallel, fully_sharded, data_and_tensor, two_slices, moved_between),
}
LAZY = (dropout,)
"""Compared with a lazy run on the devices, which draw other numbers than the CPU."""


def main() -> None:
    global _shape
    _shape = (int(sys.argv[1]), int(sys.argv[2]))
    _clusters.append(pw.init(hosts=_shape[0], devices_per_host=_shape[1]))
    warnings.showwarning = lambda message, *unused, **more: SAID.append(str(message))
    warnings.simplefilter("always")
    results: dict[str, Any] = {}
    for scenario in SCENARIOS[_shape]:
        start = time.monotonic()
        SAID.clear()
        torch.manual_seed(0)
        model = network(*[nn.Dropout(0.5)] * (scenario in LAZY))
        twin = World(copy.deepcopy(model), capture=False, on_cluster=scenario in LAZY)
        try:
            expected = scenario(twin)
            results[scenario.__name__] = {"expected": expected, "captured": scenario(World(model, capture=True))}
        except Exception:
            results[scenario.__name__] = {"error": traceback.format_exc()}
        print(f"{scenario.__name__}: {time.monotonic() - start:.1f} s", file=sys.stderr)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
