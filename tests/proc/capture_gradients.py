"""Scenarios of captured steps of two kinds, of which one makes gradients and the other takes them away, while the
program keeps gradients in other places or puts its own there."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.proc.capture_basis import SAID, Capture, batches, expect, network, numbers

Outside = Callable[[Any, list[Tensor]], None]
Read = Callable[[], Tensor]
Put = Callable[[Tensor], None]
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


def kinds_that_pass_a_tensor_on(places: list[torch.device], capture: Capture) -> list[float]:
    """A step is traced alike whichever kind of call has made what it reads: an audit must not find something else."""
    place, found = places[0], list[Tensor]()
    kept = types.SimpleNamespace(hidden=torch.zeros(4, 1).to(place))
    torch.manual_seed(0)
    model = network().to(place)

    @capture
    def step(x: Tensor, mixes: bool) -> None:
        made = model(x.to(place)).detach() * 2
        kept.hidden = torch.tanh(kept.hidden.mean(0, keepdim=True) * 0.5 + made) if mixes else made

    for call, (x, _) in enumerate(batches(40)):
        step(x, call % 8 > 3)
        found.append(kept.hidden.sum())
    expect(step, replays=36)
    return numbers(found)


class _Slots:
    __slots__ = ("hidden",)
    hidden: Tensor


def _hidden_states() -> list[tuple[Read, Put]]:
    """What reads a hidden state, in objects of several kinds, and what replaces it."""
    plain, slots, items, keys = types.SimpleNamespace(), _Slots(), [torch.zeros(())], dict[str, Tensor]()
    return [
        (lambda: plain.hidden, lambda value: setattr(plain, "hidden", value)),
        (lambda: slots.hidden, lambda value: setattr(slots, "hidden", value)),
        (lambda: items[0], lambda value: items.__setitem__(0, value)),
        (lambda: keys["hidden"], lambda value: keys.__setitem__("hidden", value)),
    ]


def steps_that_pass_a_tensor_on(places: list[torch.device], capture: Capture) -> list[float]:
    """What another step refers to since it has read what a kind of call had left behind is no holder."""
    place, found = places[0], list[Tensor]()
    for read, put in _hidden_states():
        torch.manual_seed(0)
        model = network().to(place)
        put(torch.zeros(4, 1).to(place))

        @capture
        def step(x: Tensor, doubles: bool, model: nn.Module = model, read: Read = read, put: Put = put) -> Tensor:
            made: Tensor = model(x.to(place)).detach() + read() * 0.5
            put(made.detach())
            return made.sum() * 2 if doubles else made.sum()

        @capture
        def look(x: Tensor, read: Read = read) -> Tensor:
            return torch.sum(x.to(place)[:, :1] * read())

        for call, (x, _) in enumerate(batches(30)):
            found.append(step(x, call % 2 == 0))
            if call % 2 == 0:
                found.append(look(x))
        assert getattr(step, "replays", 20) >= 20, SAID
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


def gradients_referred_to_weakly(places: list[torch.device], capture: Capture) -> list[float]:
    """What the function makes anew is gone after the next call, which a weak reference tells."""
    place, found = places[0], list[float]()
    torch.manual_seed(0)
    model, references, kept = network().to(place), list[weakref.ref[Tensor]](), types.SimpleNamespace(last=None)
    kept.last = torch.zeros(4, 1).to(place)

    @capture
    def step(x: Tensor, y: Tensor) -> None:
        model.zero_grad()
        made = model(x.to(place))
        F.mse_loss(made, y.to(place)).backward()
        kept.last = made.detach()

    for call, (x, y) in enumerate(batches()):
        step(x, y)
        found.append(float(sum(one() is not None for one in references)))
        if call in HELD_BEFORE:
            references += [weakref.ref(model[0].weight.grad), weakref.ref(kept.last)]
    expect(step, texts=("of an earlier call is still held",))
    return found


SCENARIOS = (
    gradients_of_two_kinds,
    gradients_made_outside,
    gradients_referred_to_weakly,
    kinds_that_pass_a_tensor_on,
    steps_that_pass_a_tensor_on,
)
