"""Training steps that must give the same numbers captured as eagerly. A program of its own: one process, one use.

    python capture_scenarios.py one|two|tight    one device, two devices on two hosts, one of little memory that dies

Prints one JSON object: for each scenario what it gives on the CPU, captured, and what was said; or the error.
"""

from __future__ import annotations

import copy
import json
import os
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from tests import inside
from tests.proc import (
    capture_audits,
    capture_batches,
    capture_changes,
    capture_classes,
    capture_gradients,
    capture_graphs,
    capture_implied,
    capture_left,
    capture_libraries,
    capture_moved,
    capture_python,
    capture_results,
    capture_sharing,
    capture_unseen,
    capture_variables,
    capture_views,
)
from tests.proc.capture_basis import SAID, STEPS, Capture, Scenario, batches, expect, network, numbers, training_step
from tests.proc.capture_changes import frozen, guards, late_rate, numbers_as_tensors, parted, replaced


def momentum(places: list[torch.device], capture: Capture) -> list[float]:
    """SGD with momentum whose rate changes at every step, gradients clipped, batches of the CPU."""
    model = network().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    @capture
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(places[0])), y.to(places[0]))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss, norm

    found = []
    for x, y in batches():
        loss, norm = step(x, y)
        schedule.step()
        found += [loss.detach(), norm]
    expect(step, replays=STEPS - 3, said=0)
    return [*numbers(found), float(model[0].weight.sum())]


def adamw(places: list[torch.device], capture: Capture) -> list[float]:
    """AdamW under a warm-up from nothing and a decay, batches on the device."""
    model = network().to(places[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(n / 4, 1.0) * (1 - n / 40))

    @capture
    def step(batch: dict[str, Tensor]) -> dict[str, Any]:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch["x"]), batch["y"])
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "kind": "mse"}

    losses = []
    for x, y in batches():
        result = step({"x": x.to(places[0]), "y": y.to(places[0])})
        assert result["kind"] == "mse"
        schedule.step()
        losses.append(result["loss"])
    expect(step, replays=STEPS - 3)
    return [*numbers(losses), float(optimizer.state[model[0].weight]["step"])]


def adversaries(places: list[torch.device], capture: Capture) -> list[float]:
    """A generator and a critic: two modules, two optimizers, one step, state in an object of the user's."""

    class Pair:
        def __init__(self) -> None:
            self.generator, self.critic = nn.Linear(8, 8).to(places[0]), network().to(places[0])
            self.first = torch.optim.Adam(self.generator.parameters(), 1e-2)
            self.second = torch.optim.Adam(self.critic.parameters(), 1e-2)

        def step(self, noise: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
            self.second.zero_grad()
            fake = self.generator(noise)
            loss = F.softplus(self.critic(fake.detach())).mean() + F.softplus(-self.critic(real)).mean()
            loss.backward()
            self.second.step()
            self.first.zero_grad()
            other = F.softplus(-self.critic(fake)).mean()
            other.backward()
            self.first.step()
            return loss.detach(), other.detach()

    step = capture(Pair().step)
    found: list[Tensor] = []
    for (noise, _), (real, _) in zip(batches(), reversed(batches()), strict=True):
        found += step(noise.to(places[0]), real.to(places[0]))
    expect(step, replays=STEPS - 3, said=0)
    return numbers(found)


def accumulation(places: list[torch.device], capture: Capture) -> list[float]:
    """Gradients gathered by a captured function; the optimizer, outside, is lazy and sets them to None."""
    model = network().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @capture
    def gather(x: Tensor, y: Tensor) -> Tensor:
        loss = F.mse_loss(model(x.to(places[0])), y.to(places[0])) / 2
        loss.backward()
        return loss.detach()

    losses = []
    for place, (x, y) in enumerate(batches()):
        losses.append(gather(x, y))
        if place % 2:
            optimizer.step()
            optimizer.zero_grad()
    expect(gather, replays=STEPS - 4)
    return numbers(losses)


def written_from_outside(places: list[torch.device], capture: Capture) -> list[float]:
    """What a loop does to the state between steps counts: loads, in-place writes, a moving average beside it."""
    model = network(nn.BatchNorm1d(16)).to(places[0])
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    step = capture(training_step(model, optimizer, places[0]))

    losses, kept, saved = [], [], None
    for place, (x, y) in enumerate(batches()):
        losses.append(step(x, y))
        with torch.no_grad():
            for mean, value in zip(average.parameters(), model.parameters(), strict=True):
                mean.mul_(0.9).add_(value, alpha=0.1)
            kept.append(model[0].weight.sum())  # must not see the next step's weights
        if place == 7:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if place == 9:
            model[0].weight.data.mul_(0.5)
        if place == 11:
            model[0].weight.data = torch.ones(16, 8, device=places[0])
        if place == 14:
            assert saved is not None
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
    expect(step, replays=STEPS - 3, said=0)
    return numbers(losses) + numbers(kept) + [float(average[0].weight.sum()), float(model[2].num_batches_tracked)]


def results_stay(places: list[torch.device], capture: Capture) -> list[float]:
    """What a step returned keeps its value, also when it is read only at the end; and state can be read any time."""
    weight = torch.ones(3, device=places[0])

    @capture
    def step(x: Tensor) -> list[Tensor]:
        with torch.no_grad():
            weight.add_(x)
        return [weight * 2, weight]

    doubles, sums = [], []
    for place in range(8):
        double, same = step(torch.full((3,), float(place), device=places[0]))
        assert same is weight
        doubles.append(double)
        sums.append(weight.cpu().sum())
    return [float(value.sum()) for value in doubles] + numbers(sums)


def aliases(places: list[torch.device], capture: Capture) -> list[float]:
    """A state dictionary taken before follows the replays; a view beside it and a returned view do no harm."""
    model = network().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, row = model.state_dict(), model[0].weight.detach()[0]

    @capture
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        losses: Tensor = model(x.to(places[0])).square().mean(1)
        losses.mean().backward()
        optimizer.step()
        return losses.detach()[0]

    found = []
    for x, _ in batches(8):
        found += [step(x), before["0.weight"].sum()]
    assert row.shape == (8,)
    expect(step, replays=5, said=0)
    return numbers(found)


def shared(places: list[torch.device], capture: Capture) -> list[float]:
    """Parameters that two captured steps, a lazy loop and held values share; one of the steps is dropped midway."""
    model = network().to(places[0])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    train = capture(training_step(model, optimizer, places[0]))

    @capture
    def judge(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            return F.mse_loss(model(x.to(places[0])), y.to(places[0]))

    found, kept = [], []
    for place, (x, y) in enumerate(batches()):
        found.append(train(x, y))
        if place % 3 != 2:
            found.append(judge(x, y))
        if place % 5 == 4:
            kept.append(model[0].weight.detach().clone())
            found.append(optimizer.state[model[2].bias]["exp_avg"].sum())
        if place == 9:
            found.append(model[0].weight.grad.sum())
            optimizer.zero_grad()
        if place == 15:  # what it has left is still there
            expect(train, said=1, texts=("gradients",))
            del train

            def train(x: Tensor, y: Tensor) -> Tensor:
                loss = F.mse_loss(model(x.to(places[0])), y.to(places[0])).detach()
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    loss = loss + 0.01 * parameter.grad.sum()
                return loss

    expect(judge, said=0)
    return numbers(found) + [float(weight.sum()) for weight in kept]


def not_captured(places: list[torch.device], capture: Capture) -> list[float]:
    """Steps that wait, keep tensors or use a Python number of their own stay lazy, say why, and are right."""
    model = network().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history: list[Tensor] = []
    count = [0]

    def train(x: Tensor, factor: float = 1.0) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = (model(x.to(places[0])) * factor).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    @capture
    def waits(x: Tensor) -> Tensor:
        loss = train(x)
        return loss * 2 if loss.item() > 0.1 else loss

    @capture
    def keeps(x: Tensor) -> Tensor:
        history.append(train(x))
        return history[-1] + 1

    @capture
    def counts(x: Tensor) -> Tensor:
        count[0] += 1
        return train(x, 1 + 1 / (count[0] + 7))

    @capture
    def drops(x: Tensor) -> Tensor:
        return train(x, 0.5 if random.random() < 0.1 else 1.0)

    found = []
    random.seed(3)
    for place, (x, _) in enumerate(batches(10)):
        found += [waits(x), keeps(x), counts(x), drops(x)]
        assert len(history) == place + 1
    expect(waits, replays=0, said=1, texts=("item()",))
    expect(keeps, replays=0, said=1)
    expect(counts, replays=0, said=1)
    expect(drops, replays=0, said=1, texts=("draws from random",))
    return numbers(found)


def dropout(places: list[torch.device], capture: Capture) -> list[float]:
    """Masks differ at each replay, and are those of a lazy run with the same seed; also after seeding once more."""
    seed = torch.xla.manual_seed_all  # type: ignore[attr-defined]
    model = network(nn.Dropout(0.5)).to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seed(7)

    @capture
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x.to(places[0])).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    x, _ = batches(1)[0]
    for place in range(STEPS):
        losses.append(step(x))
        if place == 12:
            seed(11)
    expect(step, replays=STEPS - 3, said=0)
    return numbers(losses)


def draws_between(places: list[torch.device], capture: Capture) -> list[float]:
    """What the loop draws between two calls, and reads later or at once, does not change what later calls draw."""
    torch.xla.manual_seed_all(7)  # type: ignore[attr-defined]
    model = network(nn.Dropout(0.5)).to(places[0])

    @capture
    def step(x: Tensor) -> Tensor:
        loss: Tensor = model(x.to(places[0])).square().mean()
        return loss.detach()

    losses = []
    x, _ = batches(1)[0]
    for place in range(STEPS):
        if place in (1, 6, 7, 11):
            drawn = torch.rand(3, device=places[0])
            losses += [drawn.sum()] if place == 7 else [torch.tensor(float(drawn.sum()))]
        losses.append(step(x))
    expect(step, replays=STEPS - 2)
    return numbers(losses)


def lazily(function: Callable[..., Any]) -> Callable[..., Any]:
    """The step as a loop would run it without capturing it."""

    def call(*args: Any) -> Any:
        result = function(*args)
        pw.step()
        return result

    return call


def pipeline(places: list[torch.device], capture: Capture) -> list[float]:
    """Two halves of a model on two hosts: the replay is one program of two hosts, its transfers inside."""
    first, second = nn.Linear(8, 32).to(places[0]), nn.Linear(32, 1).to(places[1])
    optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        hidden = torch.tanh(first(x.to(places[0])))
        if hidden.device.type == "xla":
            hidden = pw.transfer(hidden, places[1])
        loss = F.mse_loss(second(hidden), y.to(places[1]))
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for x, y in batches():
        losses.append(step(x, y))
        schedule.step()
    expect(step, replays=STEPS - 3, said=0)
    return numbers(losses)


def crowded(places: list[torch.device], capture: Capture) -> list[float]:
    """State that is moved to host memory between replays, because something else needs the device, comes back."""
    model = nn.Linear(256, 256).to(places[0])  # weight, gradient and momentum: three quarters of a MiB
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    @capture
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x.to(places[0])).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    x = torch.randn(4, 256, generator=torch.Generator().manual_seed(2))
    for place in range(10):
        losses.append(step(x))
        if place in (5, 7):  # of 4 MiB
            losses.append(torch.full((int(3.6 * 2**18),), 0.5).to(places[0])[:10].sum())
            if places[0].type == "xla":
                pw.step()
    expect(step, replays=7, said=0)
    return numbers(losses)


def lost(places: list[torch.device], capture: Capture) -> list[float]:
    """A host that dies: every value that depended on it says so, also those that nobody had asked for before."""
    model = network().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @capture
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x.to(places[0])).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, _ = batches(1)[0]
    last = [float(step(x)) for _ in range(6)][-1]
    if places[0].type == "xla":
        connection = inside.connection()
        os.kill(connection.host_pids()[0], signal.SIGKILL)
        for ask in (lambda: float(step(x)), lambda: float(step(x)), lambda: model[0].weight.cpu()):
            try:
                ask()
            except Exception as error:
                assert "host0" in str(error), error
            else:
                raise AssertionError("a value of a lost host was given")
    return [last]


def stateless(places: list[torch.device], capture: Capture) -> list[float]:
    """A step that keeps nothing: its runs leave nothing for each other."""

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        return (x.to(places[0]) @ y.to(places[0])).relu()

    found = [step(x, x.T).sum() for x, _ in batches()]
    expect(step, replays=STEPS - 2, said=0)
    return numbers(found)


ONE: tuple[Scenario, ...] = (
    stateless,
    momentum,
    adamw,
    adversaries,
    accumulation,
    written_from_outside,
    guards,
    late_rate,
    numbers_as_tensors,
    results_stay,
    aliases,
    shared,
    not_captured,
    dropout,
    draws_between,
    replaced,
    frozen,
    parted,
)
LAZY = (dropout, draws_between)
"""Compared with a lazy run, because other devices draw other random numbers."""
SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    "one": ONE,
    "two": (pipeline,),
    "tight": (crowded, lost),
    "changes": (*capture_changes.SCENARIOS, *capture_audits.SCENARIOS),
    "batches": capture_batches.SCENARIOS,
    "classes": capture_classes.SCENARIOS,
    "unseen": capture_unseen.SCENARIOS,
    "views": capture_views.SCENARIOS,
    "results": capture_results.SCENARIOS,
    "sharing": capture_sharing.SCENARIOS,
    "graphs": (*capture_graphs.SCENARIOS, *capture_gradients.SCENARIOS),
    "moved": capture_moved.SCENARIOS,
    "left": capture_left.SCENARIOS,
    "libraries": capture_libraries.SCENARIOS,
    "variables": capture_variables.SCENARIOS,
    "python": capture_python.SCENARIOS,
    "implied": capture_implied.SCENARIOS,
}


def main() -> None:
    mode, *names = sys.argv[1:]  # without names all scenarios
    pw.init(hosts=2 if mode == "two" else 1, memory_per_device="4MiB" if mode == "tight" else "")
    warnings.showwarning = lambda message, *unused, **more: SAID.append(str(message))
    warnings.simplefilter("always")
    results: dict[str, Any] = {}
    cpu = [torch.device("cpu")] * 2
    for scenario in SCENARIOS[mode]:
        if names and scenario.__name__ not in names:
            continue
        try:
            torch.manual_seed(0)
            eager = scenario(pw.devices(), lazily) if scenario in LAZY else scenario(cpu, lambda function: function)
            torch.manual_seed(0)
            SAID.clear()
            results[scenario.__name__] = {"eager": eager, "captured": scenario(pw.devices(), pw.program)}
        except Exception:
            results[scenario.__name__] = {"error": traceback.format_exc()}
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
