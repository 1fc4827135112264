"""Scenarios of captured steps: what they return, which the caller keeps, and what Python makes of rates."""

from __future__ import annotations

import collections
import contextlib
import cProfile
import io
import math
import profile
import pstats
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

import ptpathways as pw
from tests.proc.capture_basis import SAID, STEPS, Capture, Scenario, batches, expect, network, numbers, training_step


def _kept(places: list[torch.device], capture: Capture, returned: Any) -> tuple[list[float], Any]:
    """A loop that keeps what its step returns: ``returned`` of the model and the loss."""
    place = places[0]
    model = network().to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @capture
    def step(x: Tensor, y: Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(place)), y.to(place))
        loss.backward()
        optimizer.step()
        return returned(model, loss)

    kept = [step(x, y) for x, y in batches()]
    return [float(value.sum()) for value in kept], step


def kept_gradients(places: list[torch.device], capture: Capture) -> list[float]:
    """``zero_grad`` makes new gradients, so those of earlier calls stay what they were."""
    return _kept(places, capture, lambda model, loss: model[0].weight.grad)[0]


def parts_of_results(places: list[torch.device], capture: Capture) -> list[float]:
    """Results that are parts of each other are so at each call: one that is written later changes the other one."""
    place = places[0]
    model = network().to(place)

    @capture
    def step(x: Tensor) -> tuple[Tensor, ...]:
        prediction = model(x.to(place)).detach()
        return prediction, prediction[:2], prediction.T

    kept = [step(x) for x, _ in batches(8)]
    for _, part, turned in kept:
        part.fill_(3.0)
        turned[0, 3] = 5.0
    expect(step, replays=0, said=1, texts=("it returns two tensors that share memory",))
    return [float(value.sum()) for value, _, _ in kept]


def sizes_of_results(places: list[torch.device], capture: Capture) -> list[float]:
    """A ``torch.Size`` stays one."""
    weight = torch.ones(2, 3, device=places[0])

    @capture
    def step() -> tuple[Tensor, torch.Size, list[torch.Size]]:
        weight.add_(1)
        return weight * 2, weight.shape, [weight.T.shape]

    found = []
    for _ in range(8):
        double, size, (turned,) = step()
        found += [double.sum(), float(size.numel()), float(turned.numel() + turned[0])]
    expect(step, replays=6, said=0)
    return list(map(float, found))


def more_than_values(places: list[torch.device], capture: Capture) -> list[float]:
    """What a result has beside its values, which a replay cannot make: such a step is traced, and says why."""
    weight = torch.ones(2, device=places[0])

    def with_attribute(value: Tensor) -> Tensor:
        value.tag = 3.0  # type: ignore[attr-defined]
        return value

    def with_gradient(value: Tensor) -> Tensor:
        value.grad = value.detach() * 2
        return value

    def one_list_twice(value: Tensor) -> dict[str, list[Tensor]]:
        values = [value]
        return {"first": values, "second": values}

    def in_itself(value: Tensor) -> list[Any]:
        values: list[Any] = [value]
        values.append(values)
        return values

    def backward(result: Tensor) -> float:
        (result * 3).sum().backward()
        return float(result.grad.sum()) if result.grad is not None else 0.0

    def appended(result: dict[str, list[Any]]) -> float:
        result["first"].append(1)
        return float(len(result["second"]))

    cases: list[tuple[Any, Any, str]] = [
        (lambda value: value.detach().requires_grad_(), backward, "requires a gradient"),
        (nn.Parameter, lambda result: float(isinstance(result, nn.Parameter)), "a Parameter that it makes"),
        (with_gradient, lambda result: float(result.grad.sum()), "with a gradient"),
        (with_attribute, lambda result: result.tag, "with the attribute 'tag'"),
        (one_list_twice, appended, "one list at two places"),
        (in_itself, lambda result: float(result[1] is result), "one list at two places of its result, or in itself"),
    ]
    found: list[float] = []
    for make, look, text in cases:

        def step(make: Any = make) -> Any:
            weight.add_(1)
            return make(weight * 2)

        step.__name__ = f"step_{len(found)}"
        captured = capture(step)
        found += [look(captured()) for _ in range(6)]
        expect(captured, replays=0, said=1, texts=(text,))
    return found


def fresh_objects(places: list[torch.device], capture: Capture) -> list[float]:
    """What a replay cannot make is named, and what to return in its place."""
    weight = torch.ones(2, device=places[0])

    @capture
    def step() -> tuple[Tensor, collections.Counter[str]]:
        weight.add_(1)
        return weight * 2, collections.Counter("aab")

    found = [float(value.sum()) + letters["a"] for value, letters in (step() for _ in range(8))]
    expect(step, replays=0, said=1, texts=("it returned another Counter each time", "a list, tuple or dict"))
    return found


def idle_at_first(places: list[torch.device], capture: Capture) -> list[float]:
    """A step that computes nothing until it has been given enough is captured afterwards."""
    place = places[0]
    model = network().to(place)
    train = training_step(model, torch.optim.SGD(model.parameters(), lr=0.05), place)

    @capture
    def step(x: Tensor, y: Tensor, enough: bool) -> Tensor | None:
        return train(x, y) if enough else None

    found = [step(x, y, number >= 5) for number, (x, y) in enumerate(batches(14))]
    expect(step, replays=6, said=1, texts=("is traced when it computes nothing",))
    return [float(value) for value in found if value is not None]


def detached_parameters(places: list[torch.device], capture: Capture) -> list[float]:
    """A ``detach()`` has the parameter's memory: each of those that are kept follows it."""
    found, step = _kept(places, capture, lambda model, loss: model[0].bias.detach())
    assert len(set(found)) == 1, found
    expect(step, replays=STEPS - 3)
    return found


def parts_of_parameters(places: list[torch.device], capture: Capture) -> list[float]:
    """So has a part, which a replay cannot return."""
    found, step = _kept(places, capture, lambda model, loss: model[0].weight[0].detach())
    assert len(set(found)) == 1, found
    expect(step, replays=0, said=1, texts=("it returns a view of model.0.weight",))
    return found


def kept_hidden_state(places: list[torch.device], capture: Capture) -> list[float]:
    """A recurrent model's: an attribute that each call puts a new tensor into, and returns."""
    place = places[0]
    torch.manual_seed(0)
    cell = nn.GRUCell(8, 8).to(place)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.05)
    state: dict[str, Tensor] = {"h": torch.zeros(4, 8, device=place)}

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        hidden = cell(x.to(place), state["h"])
        F.mse_loss(hidden.mean(1, keepdim=True), y.to(place)).backward()
        optimizer.step()
        state["h"] = hidden.detach()
        return state["h"]

    return numbers([value.sum() for value in [step(x, y) for x, y in batches()]])


def returned_rate(places: list[torch.device], capture: Capture) -> list[float]:
    """A number, and the one of this call."""
    place = places[0]
    model = network().to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    @capture
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, float]:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(place)), y.to(place))
        loss.backward()
        optimizer.step()
        return loss.detach(), optimizer.param_groups[0]["lr"]

    found: list[float] = []
    for x, y in batches():
        loss, rate = step(x, y)
        assert type(rate) is float
        found += [float(loss), rate]
        schedule.step()
    return found


def rate_in_math(places: list[torch.device], capture: Capture) -> list[float]:
    """Branches on what ``math`` and a tensor of the CPU make of a rate."""
    place = places[0]
    model = network().to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(place)), y.to(place))
        rate = optimizer.param_groups[0]["lr"]
        if math.log10(rate) < -1.5:
            loss = loss * 2
        if torch.tensor(rate) < 0.02:
            loss = loss * 0.5
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for place_in_loop, (x, y) in enumerate(batches()):
        optimizer.param_groups[0]["lr"] = 0.1 * 0.85**place_in_loop
        losses.append(step(x, y))
    return numbers(losses)


def options_in_lists(places: list[torch.device], capture: Capture) -> list[float]:
    """Betas as a file of settings has them."""
    place = places[0]
    model = network().to(place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=[0.9, 0.99])  # type: ignore[arg-type]

    step = capture(training_step(model, optimizer, place))

    losses = []
    for number, (x, y) in enumerate(batches()):
        if number == 9:
            optimizer.param_groups[0]["betas"] = [0.5, 0.99]
        losses.append(step(x, y))
    expect(step, said=1, texts=("betas",))
    return numbers(losses)


def backward_outside(places: list[torch.device], capture: Capture) -> list[float]:
    """A step that ends before the backward pass is traced at each call."""
    place = places[0]
    model = network().to(place)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.5)

    @capture
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(model(x.to(place)), y.to(place))

    losses = []
    for x, y in batches():
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        if place.type == "xla":
            pw.step(place)
        losses.append(loss.detach())
    expect(forward, replays=0, texts=("backward pass is still to come",))
    return numbers(losses)


def sums(places: list[torch.device], capture: Capture) -> list[float]:
    """A loss whose gradient history keeps no tensors is returned as it is, after its backward pass."""
    place = places[0]
    weights = nn.Parameter(torch.ones(8, device=place))
    optimizer = torch.optim.SGD([weights], lr=0.05)

    @capture
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (x.to(place) + weights).sum()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x).detach() for x, _ in batches()]
    expect(step, replays=STEPS - 3, said=0)
    return numbers(losses)


def rate_at_first(places: list[torch.device], capture: Capture) -> list[float]:
    """What a scheduler has noted in a group, where the step computes with it."""
    place = places[0]
    model = network().to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.optim.lr_scheduler.StepLR(optimizer, 100)

    def weighted(found: Tensor, wanted: Tensor) -> Tensor:
        factor: float = optimizer.param_groups[0]["initial_lr"]
        return F.mse_loss(found, wanted) * factor

    step = capture(training_step(model, optimizer, place, weighted))

    losses = []
    for number, (x, y) in enumerate(batches()):
        if number == 9:
            optimizer.param_groups[0]["initial_lr"] = 0.5
        losses.append(step(x, y))
    expect(step, said=1, texts=("initial_lr",))
    return numbers(losses)


def counts_on_the_client(places: list[torch.device], capture: Capture) -> list[float]:
    """The optimizer of a step that cannot be captured counts on the client again."""
    place = places[0]
    model = network().to(place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train = training_step(model, optimizer, place)
    step = capture(lambda x, y: train(x, y).item())
    losses = [step(x, y) for x, y in batches()]
    expect(step, replays=0, texts=("not captured",))
    count = optimizer.state[model[0].weight]["step"]
    assert not optimizer.param_groups[0]["capturable"] and count.device.type == "cpu"
    return [*losses, float(count)]


OPTIONS = ("foreach", "fused", "capturable")


def states_go_on_elsewhere(places: list[torch.device], capture: Capture) -> list[float]:
    """A state has the options that the user has chosen, of a captured optimizer, too; on the CPU it goes on."""
    found: list[float] = []
    chosen_by_users: tuple[dict[str, Any], ...] = ({}, {"foreach": True}, {"fused": True})
    for options in chosen_by_users:
        model = network().to(places[0])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
        step = capture(training_step(model, optimizer, places[0]))
        for x, y in batches():
            step(x, y)
        state = optimizer.state_dict()
        (group,) = state["param_groups"]
        chosen = {key: options.get(key, False if key == "capturable" else None) for key in OPTIONS}
        assert {key: group[key] for key in OPTIONS} == chosen, group
        elsewhere = network()
        elsewhere.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
        other = torch.optim.AdamW(elsewhere.parameters(), lr=1e-2)
        other.load_state_dict(tree_map_only(Tensor, Tensor.cpu, state))
        on_the_cpu = training_step(elsewhere, other, torch.device("cpu"))
        found += numbers([on_the_cpu(x, y) for x, y in batches()])
        optimizer.load_state_dict(other.state_dict())
        found += numbers([step(x, y) for x, y in batches()])
    return found


def under_profilers(places: list[torch.device], capture: Capture) -> list[float]:
    """Profilers go on after a recording: one written in C, and one in Python, which hears of the recording, too."""
    found: list[float] = []
    for profiler in (cProfile.Profile(), profile.Profile()):
        model = network().to(places[0])
        step = capture(training_step(model, torch.optim.SGD(model.parameters(), lr=0.05), places[0]))

        def train(step: Any = step) -> list[Tensor]:
            return [_named_below(step, x, y) for x, y in batches()]

        found += numbers(profiler.runcall(train))
        calls = {name: count for (_, _, name), (_, count, *_) in pstats.Stats(profiler).stats.items()}  # type: ignore[attr-defined]
        assert calls["_named_below"] == STEPS, calls["_named_below"]
        expect(step, replays=STEPS - 3, said=0)
    return found


def _named_below(step: Any, x: Tensor, y: Tensor) -> Any:
    return step(x, y)


def numbers_at_masks(places: list[torch.device], capture: Capture) -> list[float]:
    """Of another count at each call, which is one computation and no wait."""
    place = places[0]
    model = network().to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    @capture
    def step(x: Tensor, y: Tensor) -> Any:
        x, y = x.to(place), y.to(place)
        x = x.clone()
        x[x > 0.5] = 0.5
        optimizer.zero_grad()
        losses = (model(x) - y).square()
        losses[losses > losses.mean()] = 0.0
        losses.sum().backward()
        optimizer.step()
        return losses.detach().sum()

    found = numbers([step(x, y) for x, y in batches()])
    expect(step, replays=STEPS - 3, said=0)
    return found


def refused_calls(places: list[torch.device], capture: Capture) -> list[float]:
    """A step goes on after a call that torch refuses, and is replayed as any other."""
    place = places[0]
    model = network().to(place)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def refuse(values: Tensor) -> None:
        with contextlib.suppress(RuntimeError):
            values.scatter(0, torch.zeros(99, 99, dtype=torch.int64).to(place), values)

    @capture
    def step(x: Tensor, y: Tensor) -> Any:
        optimizer.zero_grad()
        made = model(x.to(place))
        refuse(made)
        loss = F.mse_loss(made, y.to(place))
        loss.backward()
        refuse(next(model.parameters()))
        optimizer.step()
        return loss.detach()

    return numbers([step(x, y) for x, y in batches()])


def states_emptied(places: list[torch.device], capture: Capture) -> list[float]:
    """An optimizer whose state is thrown away begins again as a new one does."""
    model = network().to(places[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = capture(training_step(model, optimizer, places[0]))
    losses = []
    for number, (x, y) in enumerate(batches()):
        if number == 8:
            optimizer.state.clear()
        if number == 14:
            optimizer.state = collections.defaultdict(dict)
        losses.append(step(x, y))
    return [*numbers(losses), *(float(state["step"]) for state in optimizer.state.values())]


def loaded_and_failed(places: list[torch.device], capture: Capture) -> list[float]:
    """What is loaded into an optimizer is new to the step, and not said to be held; nor after an error is anything."""
    model = network().to(places[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = capture(training_step(model, optimizer, places[0]))
    losses = []
    for number, (x, y) in enumerate(batches()):
        if number == 8:
            saved = io.BytesIO()
            torch.save(optimizer.state_dict(), saved)
            saved.seek(0)
            optimizer.load_state_dict(torch.load(saved))
        if number == 14:
            with contextlib.suppress(RuntimeError):
                step(x[:, :5], y)
        losses.append(step(x, y))
    if isinstance(step, pw.CapturedStep):
        assert not any("held" in text for text in SAID if f"'{step.name}'" in text), SAID
    return numbers(losses)


SCENARIOS: tuple[Scenario, ...] = (
    under_profilers,
    numbers_at_masks,
    refused_calls,
    states_emptied,
    loaded_and_failed,
    kept_gradients,
    detached_parameters,
    parts_of_results,
    sizes_of_results,
    more_than_values,
    fresh_objects,
    idle_at_first,
    parts_of_parameters,
    kept_hidden_state,
    returned_rate,
    rate_in_math,
    options_in_lists,
    states_go_on_elsewhere,
    backward_outside,
    sums,
    rate_at_first,
    counts_on_the_client,
)
