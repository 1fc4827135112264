"""Scenarios of captured steps of two kinds, of which one makes gradients and the other takes them away, while the
program keeps gradients in other places or puts its own there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.proc.capture_basis import Capture, batches, expect, network, numbers

Outside = Callable[[Any, list[Tensor]], None]
HELD_BEFORE = (12, 15, 16)


def _take(weight: Any, kept: list[Tensor]) -> None:
    kept.append(weight.grad)


def _clip(weight: Any, kept: list[Tensor]) -> None:
    kept.append(weight.grad)
    weight.grad = weight.grad.clamp(-0.1, 0.1)


def _give(weight: Any, kept: list[Tensor]) -> None:
    kept.append(torch.full_like(weight, 0.25))
    weight.grad = kept[-1]


def _move(weight: Any, kept: list[Tensor]) -> None:
    other = nn.Parameter(torch.zeros_like(weight))
    other.grad, weight.grad = weight.grad, weight.grad * 1
    kept.append(other)


def _let_share(weight: Any, kept: list[Tensor]) -> None:
    kept.append(weight.grad.detach())
    weight.grad = weight.grad * 2


OUTSIDE: dict[str, Outside] = {
    "taken": _take,
    "clipped": _clip,
    "given": _give,
    "another parameter's": _move,
    "its memory": _let_share,
}


def _values(model: Any, kept: list[Tensor]) -> list[Tensor]:
    held = [(one if one.grad is None else one.grad).detach() for one in kept]
    gradients = [torch.zeros(()) if one.grad is None else one.grad for one in model.parameters()]
    return [value.sum() for value in (*model.parameters(), *gradients, *held)]


def gradients_of_two_kinds(places: list[torch.device], capture: Capture) -> list[float]:
    """Accumulation by a flag: what the program holds of the one kind, while the other is bound again, the first one
    must not write over."""
    place, found = places[0], list[Tensor]()
    for outside in OUTSIDE.values():
        torch.manual_seed(0)
        model, kept = network().to(place), list[Tensor]()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        @capture
        def step(x: Tensor, y: Tensor, last: bool, model: Any = model, optimizer: Any = optimizer) -> None:
            F.mse_loss(model(x.to(place)), y.to(place)).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()

        for call, (x, y) in enumerate(batches()):
            if call in HELD_BEFORE and model[0].weight.grad is not None:
                outside(model[0].weight, kept)
            if call == 17 and model[0].weight.grad is not None:
                model[0].weight.grad = model[0].weight.grad + 0.5 * kept[0].detach()
            step(x, y, call % 2 == 0)
            if call > max(HELD_BEFORE) - 4:
                found += _values(model, kept)
        assert kept
        expect(step, said=None)
    return numbers(found)


def gradients_made_outside(places: list[torch.device], capture: Capture) -> list[float]:
    """A step that only trains and takes the gradients away: those that the program has kept it must not give up."""
    place, found = places[0], list[Tensor]()
    torch.manual_seed(0)
    model, kept = network().to(place), list[Tensor]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)

    @capture
    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    replays = list[int]()
    for call, (x, y) in enumerate(batches()):
        F.mse_loss(model(x.to(place)), y.to(place)).backward()
        if call in HELD_BEFORE:
            _take(model[0].weight, kept)
        step()
        replays.append(getattr(step, "replays", call) + getattr(step, "audits", 0))
        found += _values(model, kept)
    assert replays[11] - replays[5] == 6, replays  # nobody held one
    expect(step, texts=("grad of an earlier call is still held",))
    return numbers(found)


SCENARIOS = (gradients_of_two_kinds, gradients_made_outside)
