"""Scenarios of captured steps: objects of classes that say of what is computed, as arguments and as what is reached."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from tests.proc.capture_basis import SAID, Capture, batches, expect, network, numbers

CHANGE = 7


class Tag(str):
    weight: float

    def __new__(cls, text: str, weight: float = 1.0) -> Tag:
        made = str.__new__(cls, text)
        made.weight = weight
        return made


class Level(float):
    __slots__ = ("k",)
    k: float


class Anything(int):
    """Equal to whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Folded(str):
    """Equal whatever its letters' case."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class Words(frozenset[str]):
    weight: float


class Rows(np.ndarray[Any, Any]):
    weight: float


class Point(collections.namedtuple("Point", "a b")):
    weight: float


@dataclasses.dataclass(frozen=True)
class Key:
    name: str
    weight: float = dataclasses.field(default=1.0, compare=False)


class Cached:
    def __init__(self, x: Tensor) -> None:
        self.x = x

    @functools.cached_property
    def norm(self) -> float:
        return 2.0


def _with(made: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def _level(k: float) -> Level:
    made: Level = _with(Level(1.0), k=k)
    return made


MADE: dict[str, tuple[Callable[[float], Any], Callable[[Any], Any]]] = {
    "a text's attribute": (lambda k: Tag("t", k), lambda a: a.weight),
    "a number's slot": (_level, lambda a: a.k),
    "a text in a list": (lambda k: [[Tag("t", k)]], lambda a: a[0][0].weight),
    "a set's attribute": (lambda k: _with(Words({"a"}), weight=k), lambda a: a.weight),
    "an array's attribute": (lambda k: _with(np.ones(2).view(Rows), weight=k), lambda a: a.weight),
    "a named tuple's attribute": (lambda k: _with(Point(1, 2), weight=k), lambda a: a.weight),
    "a key's attribute": (lambda k: {Tag("t", k): 1.0}, lambda a: next(iter(a)).weight),
    "a key that is a record": (lambda k: {Key("t", k): 1.0}, lambda a: next(iter(a)).weight),
    "a number equal to all": (lambda k: Anything(k), int),
    "a text of any case": (lambda k: Folded("a" if k == 1 else "A"), lambda a: 2.0 if str.__str__(a) == "A" else 1.0),
    "numbers of two types": (lambda k: (1, 2 if k == 1 else 2.0), lambda a: 3.0 if type(a[1]) is float else 1.0),
    "a zero in a tuple": (lambda k: (0.0 if k == 1 else -0.0,), lambda a: 1.0 + float(str(a[0]) == "-0.0")),
}


def _given_and_held(
    place: torch.device, capture: Capture, model: Any, make: Callable[[float], Any], read: Callable[[Any], Any]
) -> tuple[list[Tensor], tuple[Any, Any]]:
    """What two steps give, and the steps: one is given what ``make`` makes, another one for each call, and one reaches
    it as an attribute of an object. It is another value from the call ``CHANGE`` on."""

    class Holder:
        value: Any = None

    @capture
    def given(x: Tensor, value: Any) -> Tensor:
        result: Tensor = (model(x.to(place)) * read(value)).sum().detach()
        return result

    @capture
    def held(x: Tensor) -> Tensor:
        result: Tensor = (model(x.to(place)) * read(Holder.value)).sum().detach()
        return result

    found = []
    for number, (x, _) in enumerate(batches(CHANGE + 3)):
        Holder.value = make(1 if number < CHANGE else 3)
        found += [given(x, make(1 if number < CHANGE else 3)), held(x)]
    return found, (given, held)


def records(places: list[torch.device], capture: Capture) -> list[float]:
    """What is in such an object is compared, whatever its class says that it equals."""
    model = network().to(places[0])
    found = []
    for name, (make, read) in MADE.items():
        values, steps = _given_and_held(places[0], capture, model, make, read)
        found += values
        for step in steps:
            assert not hasattr(step, "replays") or step.replays >= CHANGE - 4, (name, step, SAID)
    return numbers(found)


class Held:
    def __init__(self, weight: float) -> None:
        self.weight = weight


class Choice(enum.Enum):
    A = Held(1.0)
    B = [1.0]  # noqa: RUF012


@dataclasses.dataclass
class Made:
    weight: float = 1.0


_OWN = decimal.Context(prec=6)


def _enum_member(k: float) -> None:
    Choice.A.value.weight = k


def _enum_list(k: float) -> None:
    Choice.B.value[0] = k


def _enum_attribute(k: float) -> None:
    Choice.A.extra = k  # type: ignore[attr-defined]


def _default(k: float) -> None:
    Made.__init__.__defaults__ = (k,)


def _context(k: float) -> None:
    _OWN.prec = int(k)


CHANGED: dict[str, tuple[Callable[[float], None], Callable[[], Any]]] = {
    "what a member of an enum is": (_enum_member, lambda: Choice.A.value.weight),
    "what is in a member of an enum": (_enum_list, lambda: Choice.B.value[0]),
    "any member of an enum": (_enum_attribute, lambda: sum(getattr(one, "extra", 0.0) for one in Choice)),
    "a default of a data class": (_default, lambda: Made().weight),
    "a context of decimal numbers": (_context, lambda: float(_OWN.divide(decimal.Decimal(20), decimal.Decimal(3)))),
}
GIVEN: dict[str, tuple[Callable[[float], Any], Callable[[Any], Any]]] = {
    "a NumPy boolean": (lambda k: True if k == 1 else np.True_, lambda a: float(a + True)),
    "keys of another type": (lambda k: {1 if k == 1 else True: 1.0}, lambda a: float(next(iter(a)) is not True) + 1),
    "one list": (lambda k: _twice(k), lambda a: float(a[0] is a[1]) + 1),
    "a queue's limit": (lambda k: collections.deque([1.0], maxlen=int(k)), lambda a: a.maxlen),
    "an ordered table": (
        lambda k: {"k": 1.0} if k == 1 else collections.OrderedDict(k=1.0),
        lambda a: 2.0 if isinstance(a, collections.OrderedDict) else 1.0,
    ),
    "a table with defaults": (lambda k: collections.defaultdict(lambda: k, a=1.0), lambda a: a.default_factory()),
    "an empty range": (lambda k: range(0, 1, int(k)), lambda a: a.step),
}


def _twice(k: float) -> list[list[float]]:
    one = [1.0]
    return [one, one if k == 1 else [1.0]]


def what_lies_deeper(places: list[torch.device], capture: Capture) -> list[float]:
    """Values of members of enums, generated defaults, contexts; types of booleans, keys and tables; one list or two."""
    model = network().to(places[0])
    found = []
    for name, (change, ask) in CHANGED.items():

        @capture
        def asks(x: Tensor, ask: Callable[[], Any] = ask) -> Tensor:
            result: Tensor = (model(x.to(places[0])) * ask()).sum().detach()
            return result

        change(1)
        for place, (x, _) in enumerate(batches(CHANGE + 3)):
            if place == CHANGE:
                change(3)
            found.append(asks(x))
        assert not hasattr(asks, "replays") or asks.replays >= CHANGE - 4, (name, asks, SAID)
    for make, read in GIVEN.values():
        found += _given_and_held(places[0], capture, model, make, read)[0]
    return numbers(found)


def classes_of_parts(places: list[torch.device], capture: Capture) -> list[float]:
    """A module, or an optimizer, whose class is replaced."""

    class Shown(nn.Tanh):
        def forward(self, x: Tensor) -> Tensor:
            return x.sigmoid()

    class Slow(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = True) -> None:
            super().zero_grad(set_to_none)
            for parameter in self.param_groups[0]["params"]:
                parameter.data.mul_(0.5)

    found = []
    for what in ("a part", "the optimizer"):
        torch.manual_seed(0)
        model = network().to(places[0])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        @capture
        def step(x: Tensor, y: Tensor, model: Any = model, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x.to(places[0])), y.to(places[0]))
            loss.backward()
            optimizer.step()
            return loss.detach()

        for place, (x, y) in enumerate(batches(12)):
            if place == CHANGE:
                changed, kind = (model[1], Shown) if what == "a part" else (optimizer, Slow)
                changed.__class__ = kind
            found.append(step(x, y))
        expect(step, replays=7, texts=("-> classes_of_parts.<locals>.",))
    return numbers(found)


def a_step_of_a_subclass(places: list[torch.device], capture: Capture) -> list[float]:
    """An optimizer whose ``step`` calls that of its class: the count that its first step makes is of the type of later
    ones, so that nothing is said."""

    class Mine(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    model = network().to(places[0])
    optimizer = Mine(model.parameters(), lr=0.01)

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(places[0])), y.to(places[0]))
        loss.backward()
        optimizer.step()
        return loss.detach()

    found = [step(x, y) for x, y in batches(8)]
    expect(step, said=0)
    assert not hasattr(step, "replays") or step.replays >= 4, step
    return numbers([*found, *(one.detach().sum() for one in model.parameters())])


class Trainer:
    def __init__(self, place: torch.device, capture: Capture) -> None:
        self.place = place
        self.model = network().to(place)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.captured = capture(self.step)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x.to(self.place)), y.to(self.place))
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def copies_of_what_holds_a_step(places: list[torch.device], capture: Capture) -> list[float]:
    """A copied object's step trains the copy's model; a step of no object stays the one that it is."""
    trainer = Trainer(places[0], capture)
    given = batches(12)
    found = [trainer.captured(x, y) for x, y in given[:6]]
    other = copy.deepcopy(trainer)
    found += [other.captured(x, y) for x, y in given[6:]]
    assert not isinstance(other.captured, pw.CapturedStep) or other.captured.replays >= 2, other.captured
    trainer.model.note = capture(lambda x: x.to(places[0]) * 2)
    assert copy.deepcopy(trainer.model).note is trainer.model.note
    models = (trainer.model, other.model)
    return numbers([*found, *(one.detach().sum() for model in models for one in model.parameters())])


def gradients_of_what_needs_none(places: list[torch.device], capture: Capture) -> list[float]:
    """A tensor that requires no gradient may have one."""
    model = network().to(places[0])
    mask = torch.ones(1).to(places[0])

    @capture
    def given(x: Tensor, extra: Tensor) -> Tensor:
        result: Tensor = model(x.to(places[0])).sum().detach() * (3.0 if extra.grad is not None else 1.0)
        return result

    @capture
    def held(x: Tensor) -> Tensor:
        result: Tensor = model(x.to(places[0])).sum().detach() * (3.0 if mask.grad is not None else mask)
        return result

    found = []
    for place, (x, _) in enumerate(batches(12)):
        extra = torch.ones(2)
        if place >= CHANGE:
            extra.grad, mask.grad = torch.ones(2), torch.ones(1).to(places[0])
        found += [given(x, extra), held(x).sum()]
    return numbers(found)


def values_of_the_library(places: list[torch.device], capture: Capture) -> list[float]:
    """Slices, decimal numbers, counters and the like that are made anew are equal if they say the same."""
    model = network().to(places[0])

    @capture
    def step(x: Tensor, given: Any) -> Tensor:
        rows, factor, pause, counter, table = given
        scale = float(factor) * pause.total_seconds() * counter["a"] * table["k"]
        result: Tensor = model(x.to(places[0]))[rows].sum().detach() * scale
        return result

    found = []
    for place, (x, _) in enumerate(batches(14)):
        given = (
            slice(0, 2 if place < CHANGE else 3),
            decimal.Decimal("1.5"),
            datetime.timedelta(seconds=1),
            collections.Counter("aab"),
            types.MappingProxyType({"k": 2.0}),
        )
        found.append(step(x, given))
    expect(step, replays=9)
    return numbers(found)


def told_of_arguments(places: list[torch.device], capture: Capture) -> list[float]:
    """What an argument was used for, where each call has another one."""
    model = network().to(places[0])

    @capture
    def writes(x: Tensor) -> Tensor:
        result: Tensor = model(x.mul_(2)).sum().detach()
        return result

    @capture
    def caches(batch: Cached) -> Tensor:
        result: Tensor = model(batch.x.to(places[0])).sum().detach() * batch.norm
        return result

    found = []
    for x, _ in batches():
        found += [writes(x.clone().to(places[0])), caches(Cached(x))]
    expect(writes, replays=0, texts=("writes or trains argument 0",))
    expect(caches, replays=0, said=1, texts=("sets 'norm' of the Cached that it is given",))
    return numbers(found)


SCENARIOS = (
    records,
    what_lies_deeper,
    classes_of_parts,
    a_step_of_a_subclass,
    copies_of_what_holds_a_step,
    gradients_of_what_needs_none,
    values_of_the_library,
    told_of_arguments,
)
