"""Scenarios of captured steps: what a call leaves behind, and what the loop has done to it before the next one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.proc.capture_basis import Capture, expect, numbers

CALLS = 16


def aliases_between_two_steps(places: list[torch.device], capture: Capture) -> list[float]:
    """One step writes a state in place and another one replaces it, while the loop holds an alias."""
    place, found = places[0], list[Tensor]()
    for alias in (Tensor.detach, lambda state: state.data, lambda state: state.view(2)[0], lambda state: state):
        kept = SimpleNamespace(h=torch.ones(2).to(place))

        @capture
        def write(x: Tensor, kept: Any = kept) -> Tensor:
            kept.h.add_(x)
            return torch.sum(kept.h)

        @capture
        def replace(x: Tensor, kept: Any = kept) -> Tensor:
            kept.h = kept.h * 0.5 + x
            return torch.sum(kept.h)

        held = []
        for call in range(CALLS):
            if call in (8, 11):
                held.append(alias(kept.h))
            x = torch.full((2,), 0.1 * call).to(place)
            found += [write(x), replace(x)]
            if call in (8, 9, 12, CALLS - 1):
                found += [one.sum() for one in (kept.h, *held)]
        assert all(getattr(step, "replays", CALLS) >= CALLS // 2 for step in (write, replace)), (write, replace)
    return numbers(found)


def on_a_former_state(places: list[torch.device], capture: Capture) -> list[float]:
    """A weight gets the memory of a view of a state, which the step then replaces."""
    place, found = places[0], list[Tensor]()
    kept = SimpleNamespace(w=torch.zeros(2, 2).to(place), h=torch.ones(2, 2).to(place))

    @capture
    def step(x: Tensor) -> Tensor:
        kept.w.add_(x)
        kept.h = kept.h * 0.5 + kept.w
        return torch.sum(kept.h * 2)

    for call in range(CALLS):
        if call == 5:
            kept.w.data = kept.h.t()
        if call == 11:
            kept.w = kept.w.clone()
        found += [step(torch.full((2, 2), 0.1 * call).to(place)), kept.w[0, 0].clone()]
    assert getattr(step, "replays", 4) >= 4, step
    expect(step, texts=("kept.w, which it writes, is a view of another tensor",))
    return numbers(found)


def activations(places: list[torch.device], capture: Capture) -> list[float]:
    """Kept with a gradient history by a training call, and without one by another: the next call asks which it was."""
    place, found = places[0], list[Tensor]()
    torch.manual_seed(0)
    layer = nn.Linear(4, 2).to(place)
    kept = SimpleNamespace(h=torch.zeros(5, 2).to(place))

    @capture
    def step(x: Tensor, trains: bool) -> Tensor:
        bonus = 1.0 if kept.h.requires_grad else 0.0
        with torch.set_grad_enabled(trains):
            kept.h = torch.tanh(layer(x))
        if trains:
            layer.zero_grad()
            kept.h.square().sum().backward()
        return torch.sum(kept.h.detach()) + bonus

    for call in range(3 * CALLS):
        x = torch.full((5, 4), 0.1 * call).to(place)
        found += [step(x, call % 4 < 2), torch.tensor(float(kept.h.requires_grad))]
    assert getattr(step, "replays", CALLS) >= CALLS, step
    return numbers(found)


def graphs_still_to_come(places: list[torch.device], capture: Capture) -> list[float]:
    """The loop goes backward from what a call has left, at some of the calls."""
    place, found = places[0], list[Tensor]()
    torch.manual_seed(0)
    layer = nn.Linear(4, 2).to(place)
    kept = SimpleNamespace(h=torch.zeros(5, 2).to(place))

    @capture
    def step(x: Tensor) -> Tensor:
        kept.h = torch.tanh(layer(x))
        return torch.sum(kept.h.detach())

    for call in range(CALLS):
        found.append(step(torch.full((5, 4), 0.1 * call).to(place)))
        if call > 4 and call % 3 == 0:
            layer.zero_grad()
            kept.h.square().sum().backward()
            found += [parameter.grad.sum() for parameter in layer.parameters() if parameter.grad is not None]
    expect(step, replays=0, texts=("it leaves kept.h behind, whose backward pass is still to come",))
    return numbers(found)


def retained_gradients(places: list[torch.device], capture: Capture) -> list[float]:
    """Of an activation, in some of the calls; the next call asks whether there is one."""
    place, found = places[0], list[Tensor]()
    torch.manual_seed(0)
    layer = nn.Linear(4, 2).to(place)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    kept = SimpleNamespace(h=torch.zeros(5, 2).to(place))

    @capture
    def step(x: Tensor, looks: bool) -> Tensor:
        scale = 2.0 if kept.h.retains_grad else 1.0
        h = torch.tanh(layer(x))
        if looks:
            h.retain_grad()
        loss: Tensor = h.square().mean() * scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.h = h
        return loss.detach()

    for call in range(2 * CALLS):
        found.append(step(torch.full((5, 4), 0.1 * call).to(place), call % 8 == 7))
        found += [torch.tensor(float(kept.h.retains_grad)), layer.weight.detach().sum()]
        if kept.h.retains_grad and kept.h.grad is not None:
            found.append(kept.h.grad.sum())
    assert getattr(step, "replays", CALLS // 2) >= CALLS // 2, step
    expect(step, texts=("kept.h retains its gradient, and what it leaves there does not",))
    return numbers(found)


def frozen_below_a_norm(places: list[torch.device], capture: Capture) -> list[float]:
    """The weight that spectral_norm leaves behind has a gradient history or none, as the loop has frozen the layer."""
    place, found = places[0], list[Tensor]()
    torch.manual_seed(0)
    model: Any = nn.utils.spectral_norm(nn.Linear(4, 1)).to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @capture
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.softplus(-model(x)).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for call in range(CALLS):
        x = torch.linspace(-1, 0.1 * call, 20).view(5, 4).to(place)
        found += [step(x), torch.tensor(float(model.weight.requires_grad)), model.weight.detach().sum()]
        if call % 4 == 3:
            model.requires_grad_(False)
            found.append(model(x).sum())
            model.requires_grad_(True)
    assert getattr(step, "replays", CALLS // 2) >= CALLS // 2, step
    return numbers(found)


class Evaluation:
    """A method below a decorator of torch's."""

    def __init__(self, place: torch.device) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 2).to(place)

    @torch.no_grad()
    def evaluate(self, x: Tensor) -> Tensor:
        return torch.softmax(self.model(x), -1)[0, 0]


def decorated_methods(places: list[torch.device], capture: Capture) -> list[float]:
    """The function is the user's, and what torch has put around it is torch's."""
    evaluate = capture(Evaluation(places[0]).evaluate)
    found = [evaluate(torch.full((4, 3), 0.1 * call).to(places[0])) for call in range(CALLS)]
    expect(evaluate, replays=CALLS - 2, said=0)
    return numbers(found)


def folds(places: list[torch.device], capture: Capture) -> list[float]:
    """Another model, optimizer and scheduler now and then, in the same attributes."""
    place, found = places[0], list[Tensor]()
    held = SimpleNamespace()

    @capture
    def step(x: Tensor) -> Tensor:
        loss: Tensor = held.model(x).square().mean()
        held.optimizer.zero_grad()
        loss.backward()
        held.optimizer.step()
        return loss.detach()

    for fold in range(12):
        torch.manual_seed(fold)
        held.model = nn.Linear(4, 1).to(place)
        held.optimizer = torch.optim.SGD(held.model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(held.optimizer, 1, 0.9)
        for call in range(5):
            found.append(step(torch.full((3, 4), 0.1 * call).to(place)))
            schedule.step()
    assert getattr(step, "replays", 30) >= 30, step
    return numbers(found)


def written_between_calls(places: list[torch.device], capture: Capture) -> list[float]:
    """The loop writes, or replaces, one of two buffers before each call, which makes it the younger one."""
    place, found = places[0], list[Tensor]()

    def zero(kept: Any) -> None:
        kept.h.zero_()

    def scale(kept: Any) -> None:
        kept.h.mul_(0.5)

    def replace(kept: Any) -> None:
        kept.h = torch.ones(2).to(place)

    for change in (zero, scale, replace):
        kept = SimpleNamespace(h=torch.ones(2).to(place), c=torch.zeros(2).to(place))

        @capture
        def step(x: Tensor, kept: Any = kept) -> Tensor:
            kept.h.mul_(0.9).add_(x)
            kept.c.add_(kept.h * 0.1)
            return torch.sum(kept.c * 2)

        for call in range(2 * CALLS):
            if call > 3:
                change(kept)
            found += [step(torch.full((2,), 0.1 * call).to(place)), kept.h.sum()]
        assert getattr(step, "replays", CALLS) >= CALLS, step
    return numbers(found)


SCENARIOS = (
    aliases_between_two_steps,
    on_a_former_state,
    activations,
    graphs_still_to_come,
    retained_gradients,
    frozen_below_a_norm,
    decorated_methods,
    folds,
    written_between_calls,
)
