"""Captured steps and what else looks at the same values: views, ``detach()``, what ``state_dict()`` gave earlier.

In float64, so that rounding hides nothing.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from tests.proc.capture_basis import SAID, Capture, batches, expect, network, numbers


def _numbers(tensors: list[Tensor]) -> list[float]:
    return [value for tensor in tensors for value in tensor.detach().cpu().double().reshape(-1).tolist()]


def _replayed(step: Any) -> None:
    """Says so if hardly any call was replayed: then nothing is tested."""
    assert getattr(step, "replays", len(batches())) >= 8, step


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, capture: Capture, place: torch.device, clipped: bool = True
) -> Any:
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(place).double()), y.to(place).double())
        loss.backward()
        if clipped:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss.detach()

    return capture(step)


def views(places: list[torch.device], capture: Capture) -> list[float]:
    """Views of parts of parameters and of momentum follow replays; what is written through them is seen by the next."""
    torch.manual_seed(0)
    model = network().double().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = _step(model, optimizer, capture, places[0])
    row, column = model[0].weight.data[1], model[2].weight[:, :2]
    found, slots = [], []
    for number, (x, y) in enumerate(batches()):
        found.append(step(x, y))
        if number == 7:
            slots.append(optimizer.state[model[0].weight]["momentum_buffer"][:, 0])
        if number in (9, 13):
            row.fill_(0.1)
        if number in (4, 8, 10, 15):
            found += [row.clone(), column.detach().clone(), *(slot.clone() for slot in slots)]
    _replayed(step)
    return _numbers([*found, row, column, *slots, *model.parameters()])


def held(places: list[torch.device], capture: Capture) -> list[float]:
    """What ``state_dict()``, ``detach()`` and ``data`` gave in the middle of a loop is no change of the step, and
    shows what replays leave."""
    torch.manual_seed(0)
    model = network(nn.BatchNorm1d(16)).double().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = _step(model, optimizer, capture, places[0])
    losses, kept = [], []
    for number, (x, y) in enumerate(batches()):
        losses.append(step(x, y))
        if number == 6:
            kept += [value for name, value in model.state_dict().items() if "running_var" not in name]
            kept += [model[0].bias.detach(), model[0].bias.data[2:5]]
    _replayed(step)
    return _numbers([*losses, *kept, *model.parameters()])


def gradients(places: list[torch.device], capture: Capture) -> list[float]:
    """Gradients that the step writes in place, looked at in every way after each call."""
    torch.manual_seed(0)
    model = network().double().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = _step(model, optimizer, capture, places[0])
    found = []
    for number, (x, y) in enumerate(batches()):
        found.append(step(x, y))
        if number in (5, 9, 15):
            for parameter in model.parameters():
                assert parameter.grad is not None
                found += [parameter.grad.detach().clone(), parameter.grad.view(-1).clone(), parameter.grad.clone()]
    _replayed(step)
    return _numbers(found)


def not_in_the_optimizer(places: list[torch.device], capture: Capture) -> list[float]:
    """A parameter put in the place of another one, unknown to the optimizer: its gradient grows, call by call."""
    torch.manual_seed(0)
    model = network().double().to(places[0])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    step = _step(model, optimizer, capture, places[0], clipped=False)
    losses = []
    for number, (x, y) in enumerate(batches()):
        if number == 8:
            model[2].bias = nn.Parameter(torch.zeros(1, dtype=torch.float64, device=places[0]))
        losses.append(step(x, y))
    _replayed(step)
    return _numbers([*losses, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)])


def numbers_of_one(places: list[torch.device], capture: Capture) -> list[float]:
    """A float64 number on the CPU that comes by 1, which PyTorch/XLA compiles into the step, when an audit is due."""
    torch.manual_seed(0)
    model = network().double().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(places[0]).double()), y.to(places[0]).double()) * scale.to(places[0])
        loss.backward()
        optimizer.step()
        return loss.detach()

    captured = capture(step)
    scales = [torch.tensor(0.5 + number / 10, dtype=torch.float64) for number in range(20)]
    losses = [captured(x, y, scale) for (x, y), scale in zip(batches(), scales, strict=True)]
    _replayed(captured)
    return _numbers([*losses, *model.parameters()])


def lists_of_tensors(places: list[torch.device], capture: Capture) -> list[float]:
    """Elements of lists that a step replaces, also beside a number that it changes; those that it returns, too."""
    place = places[0]
    held: list[Any] = [torch.ones(3).to(place), 0, [torch.zeros(3).to(place)]]

    @capture
    def step(x: Tensor) -> Tensor:
        one, count, inner = held
        made: Tensor = (one * 0.5 + x.to(place)).detach()
        held[0] = made.detach()
        held[1] = (count + 1) % 2
        inner[0] = inner[0] + made * (1 + count)
        return made

    found, kept = [], []
    for number in range(24):
        kept.append(step(torch.full((3,), float(number))))
        if number == 9:
            held[0] = torch.ones(3).to(place)
        if number % 5 == 2:
            kept[-1].mul_(0.5)
        if number == 15:
            held[2][0] = kept[3]
        found += [held[0].clone(), held[2][0].clone(), torch.tensor(float(held[1])), kept[-1].clone()]
    if isinstance(step, pw.CapturedStep):
        assert step.replays > 10, (step, SAID)
    return numbers([one.sum() for one in (*found, *kept)])


def arguments_of_many_kinds(places: list[torch.device], capture: Capture) -> list[float]:
    """What is said of many kinds of calls when none is known any more: what was learnt of arguments has ended all."""
    place = places[0]
    held = types.SimpleNamespace(c=torch.zeros(4).to(place), h=torch.zeros(4).to(place))
    kept = torch.arange(4.0).to(place)

    @capture
    def step(given: list[Tensor]) -> Tensor:
        held.c.add_(given[0])
        held.h = given[1] * 2 + held.c
        made: Tensor = held.c + 1
        return made

    kinds: tuple[Callable[[], list[Tensor]], ...] = (
        lambda: [held.h, held.h],
        lambda: [held.h, held.h.detach()],
        lambda: [held.c, held.h],
        lambda: [torch.ones(4).to(place)] * 2,
        lambda: [kept, held.c],
    )
    found = []
    for number, kind in enumerate([0] * 6 + [1] * 4 + [2] * 5 + [3] * 5 + [4] * 5):
        given = kinds[kind]()
        found.append(step([one * 1 for one in given] if number % 9 == 0 else given))
        del given
        held.c.mul_(0.5)
        found += [held.c.sum().cpu(), held.h.sum().cpu()]
    expect(step, texts=("in which it used its arguments in another way each time",))
    return numbers([one.sum() for one in found])


def gradients_of_sums(places: list[torch.device], capture: Capture) -> list[float]:
    """Gradients that are one number, or one row, for all elements are each parameter's own: nothing is said of them."""
    place = places[0]
    ways: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "sums": lambda one, two: one.sum() + two.sum(),
        "means": lambda one, two: one.mean() + two.mean() * 3,
        "rows": lambda one, two: (one.sum(0) * two.sum(0)).sum(),
        "joined": lambda one, two: torch.cat([one, two]).sum(0).square().sum(),
    }
    found = []
    for name, way in ways.items():
        for accumulated in (1, 3):
            one, two = (nn.Parameter(torch.ones(4, 6, dtype=torch.float64, device=place)) for _ in range(2))
            optimizer = torch.optim.SGD([one, two], lr=0.01, momentum=0.9)

            def step(
                x: Tensor,
                one: Tensor = one,
                two: Tensor = two,
                optimizer: Any = optimizer,
                accumulated: int = accumulated,
                way: Any = way,
            ) -> Tensor:
                optimizer.zero_grad()
                for _ in range(accumulated):
                    loss: Tensor = (way(one, two) * x.to(place).double()).sum()
                    loss.backward()
                nn.utils.clip_grad_norm_([one, two], 5.0)
                optimizer.step()
                return loss.detach()

            step.__name__ = f"{name}_{accumulated}"
            captured = capture(step)
            for number in range(14):
                found.append(captured(torch.full((2,), number / 4)))
            expect(captured, 11, 0)
            assert one.grad is not None and two.grad is not None
            one.grad.mul_(2)
            found += [one.grad.sum(), two.grad.sum(), one.sum(), two.sum()]
    return numbers(found)


def views_left_behind(places: list[torch.device], capture: Capture) -> list[float]:
    """One view of a tensor that nobody else has; one that repeats elements has each of them once, also when written."""
    place = places[0]
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "expanded": lambda made: made.mean(0).expand(4, 6),
        "total_expanded": lambda made: made.sum().expand(4, 6),
        "row_expanded": lambda made: made[:1].expand(4, 6).detach(),
        "as_it_is": lambda made: (made * 0.1).expand(4, 6),
        "turned": lambda made: (made * 0.1).t().reshape(4, 6),
    }
    found = []
    for name, way in ways.items():
        held = types.SimpleNamespace(view=torch.zeros(4, 6).to(place))

        def step(x: Tensor, held: Any = held, way: Any = way) -> Tensor:
            made = x.to(place) * 2 + held.view.sum() * 0.01
            held.view = way(made)
            total: Tensor = made.sum()
            return total

        step.__name__ = name
        captured = capture(step)
        for number in range(16):
            found.append(captured(torch.arange(24.0).reshape(4, 6) - number))
            if number % 6 == 5:
                held.view[0, 0] = 2.0
                found.append(held.view.sum())
        repeats = name in ("expanded", "total_expanded", "row_expanded")
        expect(captured, *((0, 1, ("may repeat elements",)) if repeats else (14, 0)))
    return numbers(found)


def values_shared_at_first(places: list[torch.device], capture: Capture) -> list[float]:
    """Two tensors with one value are two from the sixth call on: each call takes the value that each has then."""
    place = places[0]

    def argument_and_state(held: Any, number: int) -> tuple[Tensor, Tensor]:
        given = held.one.detach() if number < 6 else torch.full((3,), float(number)).to(place)
        return given, given

    def arguments(held: Any, number: int) -> tuple[Tensor, Tensor]:
        first, second = torch.full((3,), float(number)).to(place), torch.zeros(3).to(place)
        if number < 6:
            second.data = first.data
        return first, second

    def states(held: Any, number: int) -> tuple[Tensor, Tensor]:
        if number == 0:
            held.two = held.one.detach()
        if number == 6:
            held.two.data = torch.zeros(3).to(place)
        if number == 9:
            held.one.data = torch.full((3,), 5.0).to(place)
        given = torch.ones(3).to(place)
        return given, given

    return _shared(place, capture, (argument_and_state, arguments, states), "1 of them")


def values_shared_later(places: list[torch.device], capture: Capture) -> list[float]:
    """Two tensors on one memory, from some call on: what the step writes into one is in the other."""
    place = places[0]

    def argument_and_state(held: Any, number: int) -> tuple[Tensor, Tensor]:
        given = held.written.detach() if number in (6, 9) else torch.full((3,), float(number)).to(place)
        return given, torch.ones(3).to(place)

    def states(held: Any, number: int) -> tuple[Tensor, Tensor]:
        if number == 6:
            held.two.data = held.written.data
        if number == 9:
            held.two.data = torch.zeros(3).to(place)
        return torch.ones(3).to(place), torch.zeros(3).to(place)

    def argument_beside_states(held: Any, number: int) -> tuple[Tensor, Tensor]:
        if number == 0:
            held.two = held.one.detach()
        given = held.written.detach() if number in (6, 9) else torch.full((3,), float(number)).to(place)
        return given, torch.ones(3).to(place)

    found = _shared(place, capture, (argument_and_state, states), "0 of them")
    return found + _shared(place, capture, (argument_beside_states,), "1 of them -> 2 of them")


def _shared(
    place: torch.device, capture: Capture, ways: tuple[Callable[[Any, int], tuple[Tensor, Tensor]], ...], text: str
) -> list[float]:
    """Runs a step once for each of the ways to make its arguments. ``text``: how many shared one at first."""
    found: list[Tensor] = []
    for way in ways:
        held = types.SimpleNamespace(
            written=torch.ones(3).to(place), one=torch.full((3,), 2.0).to(place), two=torch.zeros(3).to(place)
        )

        def step(first: Tensor, second: Tensor, held: Any = held) -> Tensor:
            held.written.add_(1)
            made: Tensor = held.written * first + 3 * second + 5 * held.one + 7 * held.two
            return made

        step.__name__ = f"{way.__name__}_{text[0]}"
        captured = capture(step)
        for number in range(12):
            first, second = way(held, number)
            found += [captured(first, second), first.clone(), second.clone(), held.two.clone(), held.written.clone()]
        expect(captured, texts=("which tensors share one value (", text))
        assert not isinstance(captured, pw.CapturedStep) or captured.replays > 1, captured
    return numbers([one.sum() for one in found])


def put_by_the_caller(places: list[torch.device], capture: Capture) -> list[float]:
    """The caller puts a view of a tensor of its own where the step keeps what it writes: that is no difference between
    replays and what the step does."""
    place = places[0]
    base = torch.arange(6.0).view(2, 3).to(place)
    given = torch.full((3,), 7.0).to(place)
    entries = [torch.full((3,), 3.0).to(place), torch.full((3,), 4.0).to(place)]

    def step(x: Tensor) -> Tensor:
        torch.mul(given, 0.5, out=entries[1])
        entries[1] = entries[1] + entries[1]
        return (given * x).sum()

    captured = capture(step)
    found = []
    for number in range(1, 13):
        if number == 7:
            entries[1] = base[0].clone()
        if number == 11:
            entries[1] = base[1]
        found.append(captured(torch.ones(3).to(place)))
        if number in (3, 5, 6, 7, 8, 11, 12):
            found += [entries[1].sum(), base.sum()]
    assert not isinstance(captured, pw.CapturedStep) or captured.replays > 1, captured
    return numbers(found)


def other_parts(places: list[torch.device], capture: Capture) -> list[float]:
    """A state becomes another part of a tensor that the step uses, too, in four ways."""
    place = places[0]
    found: list[Tensor] = []

    def writes(held: Any, x: Tensor) -> Tensor:
        held.part.add_(x)
        made: Tensor = x * held.whole[:3]
        return made

    def writes_whole(held: Any, x: Tensor) -> Tensor:
        held.whole.add_(1)
        made: Tensor = x * held.part
        return made

    def assigned(held: Any, number: int) -> None:
        held.part = held.whole[3:6]

    def in_turn(held: Any, number: int) -> None:
        held.part = held.whole.view(3, 3)[number % 3]

    def by_data(held: Any, number: int) -> None:
        held.part.data = held.whole[3:6]

    def column(held: Any, number: int) -> None:
        held.part = held.whole.view(3, 3)[:, 0]

    for use in (writes, writes_whole):
        for change in (assigned, in_turn, by_data, column):
            whole = torch.arange(9.0).to(place)
            held = types.SimpleNamespace(whole=whole, part=whole[:3])

            def step(x: Tensor, held: Any = held, use: Callable[[Any, Tensor], Tensor] = use) -> Tensor:
                return use(held, x)

            captured = capture(step)
            for number in range(1, 10):
                if number in (6, 7):
                    change(held, number)
                found.append(captured(torch.full((3,), number / 4).to(place)))
                if number in (5, 9):
                    found += [held.whole.clone(), held.part.clone()]
            assert not isinstance(captured, pw.CapturedStep) or captured.replays, captured
    return numbers([one.sum() for one in found])


_OWN_MEMORY: tuple[Callable[[nn.Linear, torch.optim.Optimizer], object], ...] = (
    lambda model, _: setattr(model.weight, "data", model.weight.data.view(2, 2)),
    lambda model, _: setattr(model.weight, "data", model.weight.data[:, :]),
    lambda model, _: setattr(model.weight, "data", model.weight.data.t()),
    lambda model, _: setattr(model.weight, "data", model.weight.data.expand(2, 2)),
    lambda model, _: model._apply(lambda tensor: tensor.view(tensor.shape)),
    lambda _, optimizer: [slots["momentum_buffer"].t_() for slots in optimizer.state.values()],
    lambda _, optimizer: [slots["momentum_buffer"].squeeze_() for slots in optimizer.state.values()],
)


def of_their_own_memory(places: list[torch.device], capture: Capture) -> list[float]:
    """State that becomes a view of its own memory between calls: what is derived from it follows replays."""
    found: list[Tensor] = []
    for change in _OWN_MEMORY:
        torch.manual_seed(3)
        model = nn.Linear(2, 2, bias=False).to(places[0])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        @capture
        def step(x: Tensor, model: nn.Linear = model, optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        for number in range(12):
            if number in (5, 7):
                change(model, optimizer)
            if number == 9:
                model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()})
            found.append(step(torch.tensor([[1.0, number / 4]]).to(places[0])))
            found += [model.weight.detach().clone(), *(each["momentum_buffer"].clone() for each in _slots(optimizer))]
        assert not isinstance(step, pw.CapturedStep) or step.replays >= 7, step
    return _numbers(found)


def _slots(optimizer: torch.optim.Optimizer) -> list[dict[str, Tensor]]:
    return list(optimizer.state.values())


def expanded_by_the_caller(places: list[torch.device], capture: Capture) -> list[float]:
    """A view that shows elements several times comes in the place of a state: to write it is refused, as by torch."""
    found = []
    changes: tuple[Callable[[Any], object], ...] = (
        lambda held: setattr(held, "sums", torch.ones(1, 3).to(places[0]).expand(3, 3)),
        lambda held: setattr(held.sums, "data", torch.ones(1, 3).to(places[0]).expand(3, 3)),
    )
    for change in changes:
        held = types.SimpleNamespace(sums=torch.zeros(3, 3).to(places[0]))

        @capture
        def step(x: Tensor, held: types.SimpleNamespace = held) -> Tensor:
            held.sums.mul_(0.5).add_(x)
            sums: Tensor = held.sums.sum()
            return sums

        refused = 0
        for number in range(8):
            if number == 5:
                change(held)
            try:
                found.append(float(step(torch.full((3,), number / 4).to(places[0]))))
            except RuntimeError as error:
                assert "Please clone() the tensor before" in str(error), error
                refused += 1
        found.append(float(refused))
    return found


SCENARIOS = (
    of_their_own_memory,
    expanded_by_the_caller,
    other_parts,
    put_by_the_caller,
    gradients_of_sums,
    views_left_behind,
    arguments_of_many_kinds,
    lists_of_tensors,
    values_shared_at_first,
    values_shared_later,
    views,
    held,
    gradients,
    not_in_the_optimizer,
    numbers_of_one,
)
