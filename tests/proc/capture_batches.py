"""Scenarios of captured steps: batches that are objects of classes or single samples, and calls of many kinds."""

from __future__ import annotations

import argparse
import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from tests.proc.capture_basis import STEPS, Capture, batches, expect, network, numbers


@dataclasses.dataclass
class Pair:
    x: Tensor
    y: Tensor
    weight: float = 1.0


@dataclasses.dataclass(slots=True)
class Slots:
    x: Tensor
    y: Tensor
    weight: float = 1.0


class Attributes(dict[str, Any]):
    __getattr__ = dict.__getitem__


class Tokens(collections.UserDict[str, Any]):
    x = property(lambda self: self["x"])
    y = property(lambda self: self["y"])
    weight = property(lambda self: self["weight"])


class Nested:
    def __init__(self, x: Tensor, y: Tensor, weight: float = 1.0) -> None:
        self.items, self.pair = [x], Pair(x, y, weight)

    x = property(lambda self: self.items[0])
    y = property(lambda self: self.pair.y)
    weight = property(lambda self: self.pair.weight)


def _mapping(kind: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y, weight=1.0: kind(x=x, y=y, weight=weight)


KINDS: tuple[Callable[..., Any], ...] = (
    *(Pair, Slots, Nested, _mapping(Attributes), _mapping(Tokens)),
    _mapping(argparse.Namespace),
)


def batches_of_classes(places: list[torch.device], capture: Capture) -> list[float]:
    """What is in a batch that is made anew for each call is an argument, on the CPU and on the device; a number in it
    is compared."""
    found = []
    for make in KINDS:
        for where in (torch.device("cpu"), places[0]):
            torch.manual_seed(0)
            model = network().to(places[0])
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

            @capture
            def step(batch: Any, model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
                optimizer.zero_grad()
                loss: Tensor = F.mse_loss(model(batch.x.to(places[0])), batch.y.to(places[0])) * batch.weight
                loss.backward()
                optimizer.step()
                return loss.detach()

            for place, (x, y) in enumerate(batches(12)):
                found.append(step(make(x.to(where), y.to(where), 1.0 if place < 8 else 0.5)))
            expect(step, replays=7)
    return numbers(found)


def changed_batches(places: list[torch.device], capture: Capture) -> list[float]:
    """A step that puts something into its batch, or returns it, is traced at every call; so is one that is given the
    same object as two arguments, for that."""
    model = network().to(places[0])
    found = []

    @capture
    def puts(batch: Any) -> Tensor:
        batch.y = model(batch.x.to(places[0])).detach()
        result: Tensor = batch.y.sum()
        return result

    @capture
    def marks(batch: Any) -> Tensor:
        batch.weight += 1.0
        result: Tensor = model(batch.x.to(places[0])).sum().detach()
        return result

    @capture
    def returns(batch: Any) -> tuple[Any, Tensor]:
        return batch, model(batch.x.to(places[0])).sum().detach()

    @capture
    def compares(one: Any, other: Any) -> Tensor:
        result: Tensor = model(one.x.to(places[0])).sum().detach() * (3.0 if one is other else 1.0)
        return result

    for place, (x, y) in enumerate(batches(12)):
        batch = Pair(x, y)
        found += [puts(batch), batch.y.sum(), marks(batch), torch.tensor(batch.weight)]
        given, result = returns(batch)
        assert given is batch
        found += [result, compares(batch, batch if place < 6 else Pair(x, y))]
    for step in (puts, marks, returns):
        expect(step, replays=0, said=1)
    expect(compares, said=1)
    return numbers(found)


class Counter:
    count = 0


def counters_that_come_round(places: list[torch.device], capture: Capture) -> list[float]:
    """The first round of a counter is before the optimizer has state: its kinds of calls do not count for ever. It may
    be an attribute of a class."""
    model = network().to(places[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    Counter.count = 0

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.mse_loss(model(x.to(places[0])), y.to(places[0])) / 5
        loss.backward()
        Counter.count = (Counter.count + 1) % 5
        if Counter.count == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    found = [step(x, y) for x, y in batches(2 * STEPS)]
    found += [parameter.detach().sum() for parameter in model.parameters()]
    expect(step, replays=2 * STEPS - 15, said=0)
    return [*numbers(found), float(Counter.count)]


def kinds_without_end(places: list[torch.device], capture: Capture) -> list[float]:
    """Calls that are all of kinds of their own are not looked at for ever, and it is said what to pass instead."""
    model = network().to(places[0])

    @capture
    def scaled(x: Tensor, by: int) -> Tensor:
        result: Tensor = (model(x.to(places[0])) * by).sum().detach()
        return result

    @capture
    def of_arrays(x: Any) -> Tensor:
        result: Tensor = model(torch.from_numpy(x).to(places[0])).sum().detach()
        return result

    found = []
    for place, (x, _) in enumerate(batches()):
        found += [scaled(x, place), of_arrays(x.numpy())]
    expect(scaled, replays=0, texts=("pass torch.tensor(...)",))
    expect(of_arrays, replays=0, texts=("pass torch.from_numpy(...)",))
    return numbers(found)


def values_that_were_there(places: list[torch.device], capture: Capture) -> list[float]:
    """A step that reads an argument or state on the device, which it has not computed: nothing is waited for that the
    call has made, and all depends on it."""
    limit = torch.tensor(0.5).to(places[0])
    model = network().to(places[0])

    @capture
    def of_an_argument(x: Tensor, flag: Tensor) -> Tensor:
        result: Tensor = (x.to(places[0]) * (2.0 if flag.item() else 3.0)).sum()
        return result

    @capture
    def of_state(x: Tensor) -> Tensor:
        result: Tensor = (x.to(places[0]) * float(limit)).sum()
        return result

    @capture
    def of_a_parameter(x: Tensor) -> Tensor:
        scale = model[0].bias.detach().cpu().mean()
        result: Tensor = (x.to(places[0]) * scale.to(places[0])).sum()
        return result

    @capture
    def of_a_row(x: Tensor) -> Tensor:
        result: Tensor = (x.to(places[0]) * (2.0 if model[0].bias[0] > 1 else 3.0)).sum()
        return result

    @capture
    def of_an_upload(x: Tensor, flag: Tensor) -> Tensor:
        result: Tensor = (x.to(places[0]) * (2.0 if flag.to(places[0]) else 3.0)).sum()
        return result

    found = []
    for place, (x, _) in enumerate(batches(12)):
        if place == 6:
            limit.fill_(2.0)
            with torch.no_grad():
                model[0].bias.add_(2.0)
        flag = torch.tensor(place < 6)
        sent = (~flag).to(places[0]) if place % 2 else ~flag.to(places[0])
        found += [of_an_argument(x, sent), of_state(x), of_a_parameter(x), of_a_row(x), of_an_upload(x, flag)]
    for step in (of_an_argument, of_state, of_a_parameter, of_a_row):
        expect(step, replays=0, said=1, texts=("capture_batches.py",))
    return numbers(found)


def single_elements(places: list[torch.device], capture: Capture) -> list[float]:
    """A batch of one sample, with one label, is uploaded as any other; what Python reads of it decides."""
    model = nn.Linear(8, 5).to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @capture
    def step(x: Tensor, label: Tensor, place: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(places[0])), label.to(places[0])) * place.to(places[0]).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    @capture
    def read(x: Tensor, scale: Tensor) -> Tensor:
        return x.to(places[0]).sum() * (2.0 if scale > 3 else float(scale))

    found: list[Tensor] = []
    for number in range(12):
        x, _ = batches(1)[0]
        single = x[:1] * (1 + number / 7)
        found.append(step(single, torch.tensor([number % 5]), torch.full((1, 1), number / 3)))
        found.append(read(single, torch.tensor([float(number % 3 + 2)])))
    assert not isinstance(step, pw.CapturedStep) or step.replays > 7
    return numbers(found)


def new_optimizers_of_a_sweep(places: list[torch.device], capture: Capture) -> list[float]:
    """One step, given a new model and a new optimizer with another rate each time: they are of one kind."""

    @capture
    def step(model: Any, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(places[0])), y.to(places[0]))
        loss.backward()
        optimizer.step()
        return loss.detach()

    found: list[Tensor] = []
    for number in range(4):
        model = network().to(places[0])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01 * (number + 1))
        found += [step(model, optimizer, x, y) for x, y in batches(8)]
        found += [parameter.detach().sum() for parameter in model.parameters()]
    assert not isinstance(step, pw.CapturedStep) or step.replays > 16
    return numbers(found)


def transforms_of_constants(places: list[torch.device], capture: Capture) -> list[float]:
    """Transforms of torch.func in a step wrap the constants of the CPU that it uploads."""
    weight, kept = torch.linspace(0.5, 1.5, 3).to(places[0]), torch.tensor([0.5, 0.25])

    @capture
    def step(x: Tensor) -> Tensor:
        def cubes(values: Tensor) -> Tensor:
            factors = torch.tensor([1.0, 2.0, 3.0]).to(places[0]) * kept.to(places[0]).sum() * float(kept[1])
            return (values**3 * factors * x.to(places[0])).sum()

        bend: Tensor = torch.func.hessian(cubes)(weight)
        slope: Tensor = torch.func.grad(cubes)(weight)
        _, along = torch.func.jvp(cubes, (weight,), (torch.ones_like(weight),))
        total: Tensor = bend.sum() + slope.sum() + along
        return total

    return numbers([step(torch.tensor([1.0, 2.0, 3.0]) * (1 + number)) for number in range(8)])


SCENARIOS = (
    batches_of_classes,
    changed_batches,
    counters_that_come_round,
    kinds_without_end,
    values_that_were_there,
    single_elements,
    new_optimizers_of_a_sweep,
    transforms_of_constants,
)
