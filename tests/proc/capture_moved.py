"""Scenarios of captured steps: tensors that change places, and what is added to optimizers between calls."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.proc.capture_basis import Capture, expect, numbers

CALLS = 13
KEPT = (1, 4, 7, 10)


def _moves(state: Any) -> dict[str, Callable[[Tensor], Any]]:
    """Steps that write what is in one place and put it into another, by name."""

    def attribute(x: Tensor) -> Any:
        state.b.add_(1)
        state.a = state.b
        state.b = x * 1
        return state.b

    def element(x: Tensor) -> Any:
        state.items[1].add_(1)
        state.items[0] = state.items[1]
        state.items[1] = x * 1
        return state.items[1]

    def alias(x: Tensor) -> Any:
        state.b.add_(1)
        state.a = state.b.detach()
        state.b = x * 1
        return state.b

    def data(x: Tensor) -> Any:
        state.b.add_(1)
        state.a.data = state.b
        state.b = x * 1
        return state.b

    def argument(x: Tensor) -> Any:
        state.a = x.view(3)
        state.b.add_(state.a)
        return state.b.sum()

    def gradients(x: Tensor) -> Any:
        state.w.grad = None
        (state.w * x).sum().backward()
        state.v.grad, state.w.grad = state.w.grad, state.v.grad
        return state.v.grad

    def ring(x: Tensor) -> Any:
        state.b.mul_(2)
        state.a, state.b, state.c = state.b, state.c, x + state.a
        return state.c

    return {one.__name__: one for one in (attribute, element, alias, data, argument, gradients, ring)}


def moved(places: list[torch.device], capture: Capture) -> list[float]:
    """Kept results, and all state, after each call: whoever has a tensor that was moved sees what is written to it."""
    found, kept = [], []
    for name in _moves(None):
        zeros = [torch.zeros(3).to(places[0]) for _ in range(6)]
        state = SimpleNamespace(a=zeros[0], b=zeros[1], c=zeros[2], items=zeros[3:5])
        state.w, state.v = (nn.Parameter(torch.ones(3).to(places[0])) for _ in range(2))
        state.v.grad = zeros[5]
        step = capture(_moves(state)[name])
        for number in range(CALLS):
            x = torch.full((3,), 1.0 + 10 * number).to(places[0])
            result = step(x)
            if number in KEPT:
                kept += [result, x, state.a]
            del result
            grads = [one.grad for one in (state.w, state.v) if one.grad is not None]
            found += numbers([one.sum() for one in (state.a, state.b, state.c, *state.items, *grads)])
            x.add_(0.5)  # the caller's own, whatever the step has made of it
        expect(step, replays=0, texts=("another tensor that existed before",))
    return found + numbers([one.sum() for one in kept])


class _Scaled(torch.optim.Optimizer):
    """Reads what may be added to it anywhere."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})
        self._scale, self._hidden = 1.0, {"scale": 1.0}
        everywhere: Any = self.state
        everywhere["all"]["scale"] = 1.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        everywhere: Any = self.state
        for group in self.param_groups:
            for parameter in group["params"]:
                slots = self.state[parameter]
                slots.setdefault("momentum", torch.zeros_like(parameter))
                inner = slots.setdefault("inner", {})
                slots["momentum"].mul_(0.9).add_(parameter.grad)
                scale = group.get("scale", 1.0) * getattr(self, "scale", 1.0) * slots.get("scale", 1.0)
                scale *= self._scale * self._hidden["scale"] * self._hidden.get("more", 1.0)
                scale *= inner.get("scale", 1.0) * everywhere["all"].get("other", 1.0)
                parameter.add_(slots["momentum"], alpha=-0.01 * scale)
                if "shift" in group:
                    parameter.add_(group["shift"])


ADDITIONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda optimizer, _: optimizer.param_groups[0].update(scale=3.0),
    lambda optimizer, parameter: optimizer.param_groups[0].update(shift=torch.ones_like(parameter)),
    lambda optimizer, _: setattr(optimizer, "scale", 3.0),
    lambda optimizer, parameter: optimizer.state[parameter].update(scale=3.0),
    lambda optimizer, parameter: optimizer.state[parameter]["inner"].update(scale=3.0),
    lambda optimizer, _: optimizer.state["all"].update(other=3.0),
    lambda optimizer, _: setattr(optimizer, "_scale", 3.0),
    lambda optimizer, _: optimizer._hidden.update(scale=3.0),
    lambda optimizer, _: optimizer._hidden.update(more=3.0),
)


def added_to_optimizers(places: list[torch.device], capture: Capture) -> list[float]:
    """A key or an attribute that a step looks for appears between two calls."""
    found = []
    for add in ADDITIONS:
        parameter = nn.Parameter(torch.ones(3).to(places[0]))
        optimizer = _Scaled([parameter])

        def step(x: Tensor, parameter: Any = parameter, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (parameter * parameter * x).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        captured = capture(step)
        for number in range(CALLS):
            if number == 7:
                add(optimizer, parameter)
            found.append(captured(torch.full((3,), 1.0 + number % 4).to(places[0])))
        found.append(parameter.detach().sum())
    return numbers(found)


class _Ordered(torch.optim.Optimizer):
    """Computes with what it has in the order in which it has it."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "two": 2.0, "three": 3.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                slots = self.state[parameter]
                if not slots:
                    slots.update(two=2.0, three=3.0)
                factor = 1.0
                for mapping in (group, slots):
                    for key, value in mapping.items():
                        factor = factor * value + 1 if key in ("two", "three") else factor
                parameter.sub_(parameter.grad, alpha=0.001 * factor)
        first: Any = next(iter(self.state))
        first.mul_(0.9)


REORDERS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda optimizer, _: optimizer.param_groups[0].update(two=optimizer.param_groups[0].pop("two")),
    lambda optimizer, parameter: optimizer.state[parameter].update(two=optimizer.state[parameter].pop("two")),
    lambda optimizer, parameter: optimizer.state.update({parameter: optimizer.state.pop(parameter)}),
)


def reordered_in_optimizers(places: list[torch.device], capture: Capture) -> list[float]:
    """The same keys in another order."""
    found = []
    for reorder in REORDERS:
        parameters = [nn.Parameter(torch.full((3,), float(place)).to(places[0])) for place in (1, 2)]
        optimizer = _Ordered(parameters)

        def step(parameters: Any = parameters, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = sum((parameter * parameter).sum() for parameter in parameters)
            loss.backward()
            optimizer.step()
            return loss.detach()

        captured = capture(step)
        for number in range(CALLS):
            if number == 7:
                reorder(optimizer, parameters[0])
            found.append(captured())
    return numbers(found)


def added_to_groups(places: list[torch.device], capture: Capture) -> list[float]:
    """The same of an optimizer of torch, which a step asks itself."""
    parameter = nn.Parameter(torch.ones(3).to(places[0]))
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    @capture
    def step() -> Tensor:
        optimizer.zero_grad()
        (parameter * parameter).sum().backward()
        if not optimizer.param_groups[0].get("frozen"):
            optimizer.step()
        if "scale" in optimizer.state[parameter]:
            parameter.data.mul_(optimizer.state[parameter]["scale"])
        return parameter.detach().sum()

    found = []
    for number in range(CALLS):
        if number == 6:
            optimizer.param_groups[0]["frozen"] = True
        if number == 9:
            optimizer.state[parameter]["scale"] = 0.5
        found.append(step())
    return numbers(found)


def shared_by_the_optimizer(places: list[torch.device], capture: Capture) -> list[float]:
    """One gradient, or one momentum buffer, of two parameters: one by one, as eager PyTorch takes steps on the CPU."""
    found = []
    for kind in ("gradient", "momentum"):
        parameters = [nn.Parameter(torch.full((3,), float(place)).to(places[0])) for place in (1, 2)]
        optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=kind == "gradient")
        if kind == "momentum":
            buffer = torch.zeros(3).to(places[0])
            for parameter in parameters:
                optimizer.state[parameter]["momentum_buffer"] = buffer

        def step(kind: str = kind, parameters: Any = parameters, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = sum((parameter * parameter).sum() for parameter in parameters)
            loss.backward()
            if kind == "gradient":
                parameters[0].grad = parameters[1].grad
            optimizer.step()
            return loss.detach()

        captured = capture(step)
        found += [captured() for _ in range(CALLS)] + [parameter.detach().sum() for parameter in parameters]
    return numbers(found)


def hidden_states_made_otherwise(places: list[torch.device], capture: Capture) -> list[float]:
    """What torch has filled in place is traced otherwise where views are made of it, and computes the same."""
    place, found = places[0], list[Tensor]()
    for kind in (nn.RNN, nn.LSTM):
        torch.manual_seed(0)
        model: Any = kind(6, 5, batch_first=True).to(place)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        kept = SimpleNamespace(h=torch.zeros(1, 4, 5).to(place), c=torch.zeros(1, 4, 5).to(place))

        @capture
        def step(x: Tensor, model: Any = model, optimizer: Any = optimizer, kept: Any = kept) -> Tensor:
            optimizer.zero_grad()
            states = kept.h if isinstance(model, nn.RNN) else (kept.h, kept.c)
            out, states = model(x.to(place), states)
            loss: Tensor = out.square().mean()
            loss.backward()
            optimizer.step()
            if isinstance(model, nn.RNN):
                kept.h = states.detach()
            else:
                kept.h, kept.c = states[0].detach(), states[1].detach()
            return loss.detach()

        for call in range(CALLS):
            if call == 6:
                kept.h = torch.zeros(1, 4, 5, device=place)
            if call == 9:
                kept.h.zero_()
            found.append(step(torch.full((4, 3, 6), 0.1 * call)))
        assert getattr(step, "replays", 5) >= 5, step
    return numbers(found)


def states_passed_on_as_views(places: list[torch.device], capture: Capture) -> list[float]:
    """Of tensors that nobody else has: what a traced call returns is one, and what a replay returns is none."""
    place, found = places[0], list[Tensor]()
    for view in (lambda y: y[None], lambda y: torch.stack([y, y * 0.5])[:1], lambda y: y.t().t()[None]):
        torch.manual_seed(0)
        layer = nn.Linear(5, 5).to(place)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        kept = SimpleNamespace(row=torch.stack([torch.ones(4, 5), torch.zeros(4, 5)]).to(place)[0])

        @capture
        def step(
            x: Tensor, h: Tensor, layer: Any = layer, optimizer: Any = optimizer, kept: Any = kept, view: Any = view
        ) -> tuple[Tensor, Tensor]:
            optimizer.zero_grad()
            made = torch.tanh(layer(x) + h[0] + kept.row.narrow(1, 1, 3).flatten()[1])
            loss = made.square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach(), view(made).detach()

        state = torch.zeros(1, 4, 5, device=place)
        for call in range(CALLS):
            if call == 7:
                state = torch.zeros(1, 4, 5).to(place)
            loss, state = step(torch.full((4, 5), 0.1 * call).to(place), state)
            found.append(loss)
        expect(step, replays=CALLS - 3)
    return numbers(found)


def an_argument_and_a_view_of_it(places: list[torch.device], capture: Capture) -> list[float]:
    """What is done to one of them before a call is recorded is no write of the other."""
    place, found = places[0], list[Tensor]()

    @capture
    def step(x: Tensor, view: Tensor) -> Tensor:
        return torch.sum(x * view[0, 1])

    for call in range(CALLS):
        x = torch.full((3, 4), float(call)).to(place)
        found.append(step(x, x[None]))
    expect(step, replays=CALLS - 2, said=0)
    return numbers(found)


def states_put_anew(places: list[torch.device], capture: Capture) -> list[float]:
    """A state that the loop replaces before every call, and holds itself at some of them: those are traced."""
    place, found = places[0], list[Tensor]()
    origins: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda new: new,
        lambda new: torch.stack([new, new])[1],
        lambda new: new.t().contiguous().t(),
    )
    holders: tuple[Callable[[Tensor], Any], ...] = (
        lambda state: state,
        lambda state: state.detach(),
        lambda state: state[0],
        lambda state: (state * torch.ones(1).to(place).requires_grad_()).sum(),
    )
    for origin in origins:
        torch.manual_seed(0)
        cell = nn.GRUCell(3, 4).to(place)
        optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
        kept = SimpleNamespace(h=torch.zeros(2, 4).to(place))

        @capture
        def step(x: Tensor, cell: Any = cell, optimizer: Any = optimizer, kept: Any = kept) -> Tensor:
            optimizer.zero_grad()
            kept.h = cell(x, kept.h)
            loss: Tensor = kept.h.square().mean()
            loss.backward()
            optimizer.step()
            kept.h = kept.h.detach()
            return loss.detach()

        held = []
        for call in range(CALLS + 2 * len(holders)):
            new = origin(torch.full((2, 4), 0.1 * call).to(place))
            kept.h = new
            if call >= CALLS and call % 2:
                held.append(holders[call % len(holders)](new))
                held.append(holders[(call + 1) % len(holders)](new))
            del new
            loss = step(torch.full((2, 3), 0.2 * call).to(place))
            found += [one.detach().sum() for one in (loss, kept.h, *held)]
        assert getattr(step, "replays", CALLS) >= CALLS - 1, step
    return numbers(found)


def layers_prepared_for_other_shapes(places: list[torch.device], capture: Capture) -> list[float]:
    """PyTorch/XLA traces a scan for each shape, and torch's checkpoints ask for seeds while the program draws."""
    place, found = places[0], list[Tensor]()
    torch.manual_seed(0)
    model, layer = nn.GRU(6, 5, batch_first=True).to(place), nn.Linear(5, 5).to(place)

    @capture
    def step(x: Tensor) -> Tensor:
        out: Tensor = checkpoint(layer, model(x)[0], use_reentrant=False)
        model.zero_grad()
        out.square().mean().backward()
        return out.detach().sum()

    for call in range(18):
        torch.rand(1)
        found.append(step(torch.full((2 if call % 3 == 2 else 4, 3, 6), 0.1 * call).to(place)))
    assert getattr(step, "replays", 9) >= 9, step
    return numbers(found)


SCENARIOS = (
    hidden_states_made_otherwise,
    states_passed_on_as_views,
    an_argument_and_a_view_of_it,
    states_put_anew,
    layers_prepared_for_other_shapes,
    moved,
    added_to_optimizers,
    reordered_in_optimizers,
    added_to_groups,
    shared_by_the_optimizer,
)
