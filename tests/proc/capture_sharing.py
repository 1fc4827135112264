"""Scenarios of captured steps: tensors that others have, too, and methods that somebody replaces."""

from __future__ import annotations

import copy
import functools
import types
import typing
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from tests.proc.capture_basis import STEPS, Capture, Scenario, batches, expect, network, numbers, training_step


def _copied(places: list[torch.device], capture: Capture, copied: Callable[[Any, Any], object]) -> list[float]:
    """A target network, made equal at every sixth call and else left alone; Q-learning."""
    place = places[0]
    torch.manual_seed(0)
    online = network().to(place)
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=0.05)

    @capture
    def step(x: Tensor, reward: Tensor) -> Tensor:
        x, reward = x.to(place), reward.to(place)
        with torch.no_grad():
            wanted = reward + 0.9 * target(x)
        loss = F.mse_loss(online(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for number, (x, y) in enumerate(batches()):
        if number % 6 == 5:
            for to, of in zip(target.parameters(), online.parameters(), strict=True):
                copied(to, of)
        losses.append(float(step(x, y)))  # read, so that nothing is pending when it is copied
    expect(step, replays=STEPS - 3)
    return [*losses, *(float(parameter.sum()) for parameter in target.parameters())]


def copied_data(places: list[torch.device], capture: Capture) -> list[float]:
    return _copied(places, capture, lambda to, of: to.data.copy_(of))


def copied_by_to(places: list[torch.device], capture: Capture) -> list[float]:
    def copied(to: Any, of: Any) -> None:
        to.data = of.detach().to(of.device, copy=True)

    return _copied(places, capture, copied)


def copied_items(places: list[torch.device], capture: Capture) -> list[float]:
    @torch.no_grad()
    def copied(to: Any, of: Any) -> None:
        to[...] = of

    return _copied(places, capture, copied)


def _trained(
    place: torch.device, capture: Capture, model: nn.Module, event: Callable[[], object]
) -> tuple[list[float], Any]:
    """A loop in which something happens before the ninth call; its losses are read, so that nothing is pending then."""
    step = capture(training_step(model, torch.optim.SGD(model.parameters(), lr=0.05), place))
    losses = []
    for number, (x, y) in enumerate(batches()):
        if number == 8:
            event()
        losses.append(float(step(x, y)))
    return losses, step


def best_restored(places: list[torch.device], capture: Capture) -> list[float]:
    """What is copied from stays what it was."""
    place = places[0]
    torch.manual_seed(0)
    model, best = network().to(place), network().to(place)

    def restore() -> None:
        for to, of in zip(model.parameters(), best.parameters(), strict=True):
            to.data.copy_(of)

    losses, _ = _trained(place, capture, model, restore)
    return [*losses, *(float(parameter.sum()) for parameter in best.parameters())]


def one_buffer(places: list[torch.device], capture: Capture) -> list[float]:
    """A copy as PyTorch/XLA makes it, one buffer for both: the next call is traced, and parts them."""
    place = places[0]
    torch.manual_seed(0)
    model, other = network().to(place), network().to(place)

    def share() -> None:
        with _as_they_come(place), torch.no_grad():
            for to, of in zip(other.parameters(), model.parameters(), strict=True):
                to.copy_(of)

    losses, step = _trained(place, capture, model, share)
    expect(step, said=1, texts=("without a copy",))
    return [*losses, *(float(parameter.sum()) for parameter in other.parameters())]


def _as_they_come(place: torch.device) -> Any:
    import contextlib

    from ptpathways.frontend.kernels.memory import _copies

    return _copies.as_they_come() if place.type == "xla" else contextlib.nullcontext()


def data_of_another(places: list[torch.device], capture: Capture) -> list[float]:
    """Two parameters on one memory: to write one is to write both."""
    place = places[0]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)).to(place)

    def assign() -> None:
        model[2].weight.data = model[0].bias.data.view(1, 8)  # type: ignore[operator]

    losses, step = _trained(place, capture, model, assign)
    expect(step, said=1, texts=("share memory",))
    return losses


def adversaries(places: list[torch.device], capture: Capture) -> list[float]:
    """A step for each network of a GAN; both know the gradients of the discriminator."""
    place = places[0]
    torch.manual_seed(0)
    generator, discriminator = nn.Linear(8, 8).to(place), network().to(place)
    of_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=0.01)

    @capture
    def judge(x: Tensor, noise: Tensor) -> Tensor:
        of_discriminator.zero_grad()
        real = F.softplus(-discriminator(x.to(place))).mean()
        loss = real + F.softplus(discriminator(generator(noise.to(place)).detach())).mean()
        loss.backward()
        of_discriminator.step()
        return loss.detach()

    @capture
    def deceive(noise: Tensor) -> Tensor:
        of_generator.zero_grad()
        loss = F.softplus(-discriminator(generator(noise.to(place)))).mean()
        loss.backward()
        of_generator.step()
        return loss.detach()

    losses = []
    for x, _ in batches():
        losses += [judge(x, -x), deceive(x * 2)]
    for step in (judge, deceive):
        assert not isinstance(step, pw.CapturedStep) or step.replays + step.audits > STEPS - 7, step
    return numbers(losses)


def turns(places: list[torch.device], capture: Capture) -> list[float]:
    """Two steps that train one model with one optimizer, and one step for several models: each makes gradients."""
    place = places[0]
    torch.manual_seed(0)
    model, others = network().to(place), [network().to(place) for _ in range(3)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    squares = capture(training_step(model, optimizer, place))
    lengths = capture(training_step(model, optimizer, place, F.l1_loss))

    @capture
    def gradients(of: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        of.zero_grad()
        loss = F.mse_loss(of(x.to(place)), y.to(place))
        loss.backward()
        return loss.detach()

    losses = []
    for x, y in batches():
        losses += [squares(x, y), lengths(x, y)]
        losses += [gradients(one, x, y) for one in others]
        with torch.no_grad():
            for one in others:
                for parameter in one.parameters():
                    parameter.add_(parameter.grad, alpha=-0.1)
    for step in (squares, lengths):
        assert not isinstance(step, pw.CapturedStep) or step.replays + step.audits > STEPS - 6, step
    return [*numbers(losses), *(float(one[0].bias.sum()) for one in others)]


def table_of_the_first_forward(places: list[torch.device], capture: Capture) -> list[float]:
    """Of positions, say; a part of it is used at each call."""
    place = places[0]

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 1)
            self.table: Any = None

        def forward(self, x: Tensor) -> Any:
            if self.table is None:
                self.table = torch.arange(16, device=x.device).float().sin()[:, None]
            return self.layer(x) * self.table[: x.size(0)]

    torch.manual_seed(0)
    model = Scaled().to(place)
    step = capture(training_step(model, torch.optim.SGD(model.parameters(), lr=0.05), place))
    losses = [step(x, y) for x, y in batches()]
    expect(step, replays=STEPS - 3)
    return numbers(losses)


def replaced_methods(places: list[torch.device], capture: Capture) -> list[float]:
    """Somebody puts another function where torch has one, and takes it back."""
    place = places[0]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = capture(training_step(model, optimizer, place))
    layer: Any = nn.ReLU
    functions: Any = F
    kept = layer.forward, functions.relu, optimizer.step
    losses = []
    try:
        for number, (x, y) in enumerate(batches(2 * STEPS)):
            if number in (8, 12):
                layer.forward = kept[0] if number == 12 else lambda self, x: torch.tanh(x)
            if number in (16, 20):
                functions.relu = kept[1] if number == 20 else lambda x, inplace=False: torch.tanh(x)
            if number == 26:
                vars(optimizer)["step"] = lambda: (kept[2](), kept[2]())
            losses.append(step(x, y))
    finally:
        layer.forward, functions.relu = kept[:2]
    return numbers(losses)


def replaced_functions(places: list[torch.device], capture: Capture) -> list[float]:
    """The same where the step comes to its optimizer before its model, and where it has none of both."""
    place = places[0]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(place)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    activate, functions = nn.ReLU(), F
    weights = torch.ones(8, 8, device=place)

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        adam.zero_grad()
        loss = F.mse_loss(model(x.to(place)), y.to(place))
        loss.backward()
        adam.step()
        return loss.detach()

    @capture
    def judge(x: Tensor) -> Tensor:
        score: Tensor = functions.relu(x.to(place) @ weights).mean() + activate(x.to(place)).mean()
        return score

    relu: Any = functions.relu
    values = []
    try:
        for number, (x, y) in enumerate(batches()):
            if number == 8:
                vars(functions)["relu"] = lambda x, inplace=False: torch.tanh(x)
            values += [step(x, y), judge(x)]
    finally:
        vars(functions)["relu"] = relu
    return numbers(values)


def keyword_default(places: list[torch.device], capture: Capture) -> list[float]:
    place = places[0]

    def scaled(x: Tensor, *, factor: float = 1.0) -> Tensor:
        return x * factor

    defaults: Any = scaled.__kwdefaults__
    model = network().to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = capture(training_step(model, optimizer, place, lambda found, wanted: scaled(F.mse_loss(found, wanted))))
    losses = []
    for number, (x, y) in enumerate(batches()):
        if number == 9:
            defaults["factor"] = 3.0
        losses.append(step(x, y))
    return numbers(losses)


class Pair(typing.NamedTuple):
    """A batch with a method."""

    x: Tensor
    y: Tensor

    def to(self, place: torch.device) -> Pair:
        return Pair(self.x.to(place), self.y.to(place))


@functools.singledispatch
def moved(value: Any, place: torch.device) -> Any:
    return value


@moved.register
def _(value: Tensor, place: torch.device) -> Tensor:
    return value.to(place)


@moved.register(tuple)
def _(value: tuple[Any, ...], place: torch.device) -> tuple[Any, ...]:
    return tuple(moved(one, place) for one in value)


def ways_to_write_it(places: list[torch.device], capture: Capture) -> list[float]:
    """A method that is captured in its class, below a decorator of torch's; a loop whose name the step mentions."""
    place = places[0]

    class Trainer:
        def __init__(self) -> None:
            torch.manual_seed(0)
            self.model = network().to(place)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
            self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 50)
            self.made = 0

        @capture
        def step(self, batch: Pair) -> Tensor:
            self.model.train()
            x, y = moved(tuple(batch.to(place)), place)
            self.optimizer.zero_grad()
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            return loss.detach()

        @capture
        @torch.no_grad()
        def judge(self, x: Tensor) -> Any:
            return self.model(x.to(place)).sum()

        def train(self) -> list[Tensor]:
            losses = []
            for x, y in batches():
                losses += [self.step(Pair(x, y)), self.judge(x)]
                self.schedule.step()
                self.made += 1
            return losses

    trainer = Trainer()
    losses = trainer.train()
    for step in (Trainer.step, Trainer.judge):
        assert not isinstance(step, pw.CapturedStep) or step.replays + step.audits > STEPS - 5, step
    return numbers(losses)


def attributes_of_kept_tensors(places: list[torch.device], capture: Capture) -> list[float]:
    """A tensor that each call makes anew has the attributes that the call gives it, which a replay would not change."""
    weight = torch.ones(1, device=places[0])
    kept = types.SimpleNamespace(turned=None, cleared=torch.ones(1, device=places[0]), same=None)

    @capture
    def turns() -> Tensor:
        mark = getattr(kept.turned, "mark", 0)
        kept.turned = weight * 2
        kept.turned.mark = 1 - mark
        return weight * mark

    @capture
    def clears() -> Tensor:
        mark = getattr(kept.cleared, "mark", 0)
        kept.cleared = weight * 3
        return weight * mark

    @capture
    def keeps() -> Tensor:
        kept.same = weight.add_(1) * 4
        kept.same.mark = 5
        return weight * float(kept.same.mark)

    found: list[Tensor] = []
    for _ in range(10):
        kept.cleared.mark = 1
        found += [turns(), clears(), keeps(), torch.tensor(float(hasattr(kept.cleared, "mark")))]
        found += [kept.turned.mark * kept.turned, kept.same * kept.same.mark]
    for step in (turns, clears):
        expect(step, replays=0, said=1, texts=("a tensor with other attributes in the place of kept.",))
    expect(keeps, replays=5, said=0)
    return numbers(found)


def results_left_behind(places: list[torch.device], capture: Capture) -> list[float]:
    """What a call returns and leaves behind is one memory, also for who writes it or has a view of it; that of earlier
    calls is another one."""
    place = places[0]
    ways: tuple[tuple[str, Callable[[Any, Tensor], Any]], ...] = (
        ("kept", lambda held, value: (_leave(held, one=value.detach()), value)),
        ("kept_itself", lambda held, value: (_leave(held, one=value), value.detach())),
        ("kept_twice", lambda held, value: (_leave(held, one=value.detach(), two=value.detach()), value, value)),
        ("again", lambda held, value: (_leave(held, one=value.detach()), value.detach(), value, value)),
        ("read", lambda held, value: (_leave(held, one=(made := (held.one * 0.5 + value).detach())), made.detach())),
        ("written", lambda held, value: (_leave(held, one=(made := value.detach())), made.mul_(2).detach())),
    )
    found: list[Tensor] = []
    for name, way in ways:
        weight, held = torch.ones(2).to(place), types.SimpleNamespace(one=None, two=None)
        held.one = held.two = torch.zeros(2).to(place)

        def step(x: Tensor, weight: Tensor = weight, way: Any = way, held: Any = held) -> Any:
            weight.mul_(x.to(place))
            return way(held, weight * 2)[1:]

        step.__name__ = name
        captured, kept = capture(step), []
        for number in range(12):
            results = captured(torch.full((2,), 1.1))
            kept += [results[0], results[0][:1]]
            if number % 4 == 1:
                results[0].div_(4)
            if number % 4 == 3:
                held.one.add_(1)
            if number == 10:
                kept[-4][0] = 7.0
            found += [one.sum().clone() for one in (*results, held.one, held.two, *kept[-6:])]
            found.append(torch.tensor(float(len(set(map(id, results))))))
        expect(captured, replays=9, said=0)
    return numbers(found)


def results_left_behind_by_one_kind(places: list[torch.device], capture: Capture) -> list[float]:
    """A kind of call that does not return what it leaves behind writes over no result of another kind."""
    place = places[0]
    weight, held = torch.ones(2).to(place), types.SimpleNamespace(one=torch.zeros(2).to(place))

    @capture
    def step(x: Tensor, returns: bool) -> Tensor | None:
        weight.mul_(x.to(place))
        held.one = weight * 2
        return held.one.detach() if returns else None

    kept, found = [], []
    for number in range(20):
        result = step(torch.full((2,), 1.1), number % 3 != 2)
        if result is not None:
            kept.append(result)
        found += [one.sum().clone() for one in (held.one, *kept[-3:])]
    expect(step, replays=16, said=1, texts=("is traced again: argument 1",))
    return numbers([*found, *(one.sum() for one in kept)])


def memory_of_somebody(places: list[torch.device], capture: Capture) -> list[float]:
    """The caller gives what a call has left behind the memory of another tensor, which no call writes over."""
    place = places[0]
    weight, theirs = torch.ones(2).to(place), [torch.full((2,), float(number)).to(place) for number in range(12)]
    held = types.SimpleNamespace(one=torch.zeros(2).to(place), two=torch.zeros(2).to(place))

    @capture
    def step() -> Tensor:
        weight.add_(1)
        held.one = weight * held.two
        made: Tensor = weight * 2
        return made

    found = []
    for number, tensor in enumerate(theirs):
        found.append(step())
        if number % 4 == 1:
            held.one.data = tensor
        if number % 4 == 3:
            held.one.data = held.two
        found += [held.one.clone(), held.two.clone(), *theirs]
    expect(step, texts=("held.one of an earlier call is still held",))
    return numbers([one.sum() for one in found])


def gradient_in_two_places(places: list[torch.device], capture: Capture) -> list[float]:
    """A gradient that the step keeps under another name as well is one tensor after each call, also where it is new."""
    place = places[0]
    weights = [nn.Parameter(torch.ones(3, device=place)) for _ in range(2)]
    optimizer = torch.optim.SGD(weights, lr=0.01, momentum=0.9)
    held = types.SimpleNamespace(gradient=torch.zeros(3).to(place))

    @capture
    def step(x: Tensor) -> Tensor:
        loss = (weights[0] * x.to(place) + weights[1]).square().sum()
        loss.backward()
        held.gradient = weights[0].grad
        optimizer.step()
        return loss.detach()

    found = []
    for number in range(24):
        found.append(step(torch.full((3,), number / 10)))
        if number % 4 == 3:
            optimizer.zero_grad()
        found += [torch.zeros(3) if one.grad is None else one.grad.clone() for one in weights]
        found.append(held.gradient.clone())
    return numbers([one.sum() for one in (*found, *weights)])


def parts_left_behind(places: list[torch.device], capture: Capture) -> list[float]:
    """Where a replay could not let both have one memory, each call is traced."""
    place = places[0]
    weight = torch.ones(2).to(place)
    held = types.SimpleNamespace(one=torch.ones(2).to(place), two=torch.ones(2).to(place))
    halves = copy.copy(held)

    @capture
    def part(x: Tensor) -> Tensor:
        made = weight * x.to(place)
        held.one = made
        return made[:1]

    @capture
    def over(x: Tensor) -> Tensor:
        held.two.mul_(x.to(place))
        made: Tensor = held.two + weight
        held.two = made
        return made.detach()

    @capture
    def chunks(x: Tensor) -> Tensor:
        made = (torch.cat([halves.one, halves.two]) * 0.5 + x.to(place)).detach()
        halves.one, halves.two = made.chunk(2)
        return made.sum()

    found, kept = [], []
    for number in range(8):
        kept += [
            chunks(torch.full((4,), float(number))),
            part(torch.full((2,), 1.1 + number)),
            over(torch.full((2,), 1.1)),
        ]
        kept[-2].fill_(3.0)
        kept[-1].add_(0.5)
        found += [one.sum().clone() for one in (held.one, held.two, halves.one, halves.two, *kept)]
    expect(chunks, replays=0, said=1, texts=("it leaves two parts or views of one tensor behind, as halves.one and",))
    expect(part, replays=0, said=1, texts=("it returns a view of held.one",))
    expect(over, replays=0, said=1, texts=("it writes held.two in place, and returns what it puts there",))
    return numbers(found)


def _leave(held: Any, **tensors: Tensor) -> tuple[str, ...]:
    held.__dict__.update(tensors)
    return tuple(tensors)


SCENARIOS: tuple[Scenario, ...] = (
    results_left_behind,
    results_left_behind_by_one_kind,
    memory_of_somebody,
    gradient_in_two_places,
    parts_left_behind,
    attributes_of_kept_tensors,
    copied_data,
    copied_by_to,
    copied_items,
    best_restored,
    one_buffer,
    data_of_another,
    adversaries,
    turns,
    table_of_the_first_forward,
    replaced_methods,
    replaced_functions,
    keyword_default,
    ways_to_write_it,
)
