"""Scenarios of captured steps: what Python's own ways to a value change between calls."""

from __future__ import annotations

import collections
import contextvars
import copy
import ctypes
import dataclasses
import itertools
import logging
import math
import operator
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import ptpathways as pw
from tests.proc.capture_basis import Capture, expect
from tests.proc.capture_cases import CALLS, CHANGED_BEFORE, Case, numbers_on, outcomes


class _Private:
    __slots__ = ("__times",)

    def __init__(self) -> None:
        self.__times = 1.0

    def write(self, times: float) -> None:
        self.__times = times

    def scale(self, x: Tensor) -> Tensor:
        return x * self.__times


class _GoneThrough:
    __slots__ = iter(["times"])

    def __init__(self) -> None:
        self.times = 1.0


class _Pair:
    __match_args__: tuple[str, str] = ("first", "second")
    first, second = 1.0, 5.0


def _by_position(of: Any, x: Tensor) -> Tensor:
    match of:
        case _Pair(value):
            scaled: Tensor = x * value
            return scaled
    return x


@dataclasses.dataclass
class _Data:
    times: float = 1.0


class _Keyed:
    """A key whose hash somebody changes."""

    number = 1

    def __hash__(self) -> int:
        return self.number


class _Strict(type):
    """Its classes answer for attributes that they do not have, and not as Python asks it."""

    def __getattr__(cls, name: str) -> Any:
        return {"gain": 2.0}[name]


class _Asked(metaclass=_Strict):
    times = 1.0


def _last_call(of: Any, number: int, _: torch.device) -> None:
    of.errno = number


READ = {
    "a private slot": Case(lambda of, x: of.scale(x), lambda of, n, _: of.write(1.0 + n), make=lambda _: _Private()),
    "a slot that nothing names": Case(
        lambda of, x: x * of.times, lambda of, n, _: setattr(of, "times", 1.0 + n), make=lambda _: _GoneThrough()
    ),
    "by position": Case(
        _by_position,
        lambda of, n, _: setattr(type(of), "__match_args__", ("second", "first") if n % 2 else ("first", "second")),
        lambda of, _: setattr(type(of), "__match_args__", ("first", "second")),
        lambda _: _Pair(),
    ),
    "a default of a field": Case(
        lambda of, x: x * float(dataclasses.fields(of)[0].default),  # type: ignore[arg-type]
        lambda of, n, _: setattr(dataclasses.fields(of)[0], "default", 1.0 + n),
        lambda of, _: setattr(dataclasses.fields(of)[0], "default", 1.0),
        lambda _: _Data,
    ),
    "of an exception": Case(lambda of, x: x * of.errno, _last_call, make=lambda _: OSError(2, "no")),
    "of a class that answers": Case(
        lambda of, x: x * of.times * of.gain,
        lambda of, n, _: setattr(of, "times", 1.0 + n),
        lambda of, _: setattr(of, "times", 1.0),
        lambda _: _Asked,
    ),
}
"""Attributes that are to be found in another way than others."""


def python_read(places: list[torch.device], capture: Capture) -> list[float]:
    """What is compared."""
    return outcomes(READ, places, capture)


def _iterator(_: torch.device) -> Any:
    return iter([1.0, 2.0, 3.0, 4.0, 5.0])


def _pointer(_: torch.device) -> Any:
    of = (ctypes.c_double * 2)(1.0, 1.0)
    return ctypes.cast(of, ctypes.POINTER(ctypes.c_double))


_VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("_VARIABLE", default=1.0)


def _context(_: torch.device) -> Any:
    of = contextvars.copy_context()
    of.run(_VARIABLE.set, 1.0)
    return of


def _in_context(of: Any, x: Tensor) -> Tensor:
    return x * float(of[_VARIABLE])


GAIN_OF_A = 1.0


def _by_computed_name(of: Any, x: Tensor) -> Tensor:
    return x * float(globals()["GAIN_" + of])


def _set_level(of: logging.Handler, x: Tensor) -> Tensor:
    of.setLevel(10)
    return x * 2.0


def _disable(_: Any, x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        logging.disable(5)
    return x * 2.0


def _set_filter(_: Any, x: Tensor) -> Tensor:
    warnings.simplefilter("ignore", ResourceWarning)
    return x * 2.0


def _set_folder(_: Any, x: Tensor) -> Tensor:
    torch.hub.set_dir("/nowhere")
    return x * 2.0


def _set_gain(_: Any, number: int, __: torch.device) -> None:
    globals()["GAIN_OF_A"] = 1.0 + number


TOLD: dict[str, tuple[str, Case]] = {
    "a peek": (
        "how far that is is not compared",
        Case(lambda of, x: x * next(copy.copy(of)), lambda of, *_: next(of), make=_iterator),
    ),
    "a length": (
        "how far iterators are",
        Case(lambda of, x: x * operator.length_hint(of), lambda of, *_: next(of), make=_iterator),
    ),
    "a pointer": (
        "LP_c_double, and what is in it",
        Case(lambda of, x: x * of[0], lambda of, n, _: operator.setitem(of, 0, 1.0 + n), make=_pointer),
    ),
    "a context": (
        "a Context, and what is in it",
        Case(_in_context, lambda of, n, _: of.run(_VARIABLE.set, 1.0 + n), make=_context),
    ),
    "a computed name": (
        "looks a global variable up by a name that it computes",
        Case(_by_computed_name, _set_gain, lambda *_: _set_gain(None, 0, torch.device("cpu")), lambda _: "OF_A"),
    ),
    "a level": (
        "Handler.setLevel()",
        Case(_set_level, lambda of, n, _: of.setLevel(50), make=lambda _: logging.NullHandler()),
    ),
    "a level beside a filter": (
        "logging.disable()",
        Case(_disable, lambda *_: logging.disable(0), make=lambda _: None),
    ),
    "a filter": (
        "warnings.simplefilter()",
        Case(_set_filter, lambda *_: warnings.simplefilter("default", ResourceWarning), make=lambda _: None),
    ),
    "a folder": (
        "torch.hub.set_dir()",
        Case(_set_folder, lambda *_: torch.hub.set_dir("/elsewhere"), make=lambda _: None),
    ),
    "another hash": (
        "takes default[0][key 0, a _Keyed] away",
        Case(
            lambda of, x: x * sum(of.values()) * len(of),
            lambda of, n, _: setattr(next(iter(of)), "number", n),
            make=lambda _: {_Keyed(): 3.0},
        ),
    ),
}
"""What is not compared: such steps are traced, and say so."""


def python_told(places: list[torch.device], capture: Capture) -> list[float]:
    """What is not compared."""
    found = []
    for text, case in TOLD.values():
        of = case.make(places[0]) if case.make is not None else None
        case.prepare(of, places[0])

        @capture
        def step(x: Tensor, of: Any = of, case: Case = case) -> Tensor:
            return case.use(of, x)

        for call in range(1, CALLS):
            if call in CHANGED_BEFORE:
                case.change(of, call, places[0])
            found.append(float(step(numbers_on(places[0], 0.25 + call / 40)).sum()))
        expect(step, texts=(text,))
    return found


def _percent(rate: float) -> float:
    return float("%.2f" % rate)  # noqa: UP031  # which reads the number behind Python's back


RATES: dict[str, Callable[[float], float]] = {
    "a text": _percent,
    "its sign": lambda rate: math.copysign(1.0, rate - 0.06),
    "itself": lambda rate: round(rate.real, 2),
    "of its class": lambda rate: round(float.__mul__(rate, 2.0), 2),
}
"""What a step makes of a learning rate, which is the same for most of them."""


def python_rates(places: list[torch.device], capture: Capture) -> list[float]:
    """A rate that is read in C, where nothing hears of it."""
    found = []
    for use in RATES.values():
        weight = nn.Parameter(torch.ones(2).to(places[0]))
        optimizer = torch.optim.SGD([weight], lr=0.05)

        @capture
        def step(
            x: Tensor,
            weight: nn.Parameter = weight,
            optimizer: torch.optim.SGD = optimizer,
            use: Callable[[float], float] = use,
        ) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = (weight * x * use(optimizer.param_groups[0]["lr"])).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        for call in range(CALLS):
            optimizer.param_groups[0]["lr"] = (0.05 if call < CHANGED_BEFORE[0] else 0.08) + call * 1e-4
            found.append(float(step(numbers_on(places[0], 1.0))))
    return found


def python_denormals(places: list[torch.device], capture: Capture) -> list[float]:
    """The processor's way with the smallest numbers is everybody's."""
    found, tiny = [], 1e-310

    @capture
    def step(x: Tensor) -> Tensor:
        return x * (2.0 if tiny * 0.5 == 0.0 else 1.0)

    try:
        for call in range(CALLS):
            if call in CHANGED_BEFORE:
                torch.set_flush_denormal(call != CHANGED_BEFORE[1])
            found.append(float(step(numbers_on(places[0], 1.0 + call))))
    finally:
        torch.set_flush_denormal(False)
    assert not isinstance(step, pw.CapturedStep) or step.replays
    return found


def python_builtins(places: list[torch.device], capture: Capture) -> list[float]:
    """Somebody puts a global variable before one of Python's, which the step names."""
    space: dict[str, Any] = {}
    exec("def use(x):\n    return x * len([1, 2, 3])", space)
    use = space["use"]

    @capture
    def step(x: Tensor) -> Tensor:
        scaled: Tensor = use(x)
        return scaled

    found = []
    for call in range(CALLS):
        if call in CHANGED_BEFORE:
            space["len"] = lambda _, call=call: call
        found.append(float(step(numbers_on(places[0], 1.0))))
    assert not isinstance(step, pw.CapturedStep) or step.replays
    return found


IN_TEXTS = (
    "TIMES = 1.0\ndef use(x):\n    return x * TIMES",
    "TIMES = 1.0\nclass Used:\n    def __call__(self, x):\n        return x * TIMES\nuse = Used()",
    "class Used:\n    TIMES = 1.0\n    def use(self, x):\n        return x * self.TIMES\nuse = Used().use",
    "class Used:\n    @property\n    def times(self):\n        return TIMES\nuse = Used()\nTIMES = 1.0",
    "import torch\nTIMES = 1.0\n"
    "class Used(torch.nn.Module):\n    def forward(self, x):\n        return x * TIMES\nuse = Used()",
    "import dataclasses\n@dataclasses.dataclass\nclass Used:\n    times: float = 1.0\nuse = Used()",
    "import collections\n"
    "Used = collections.namedtuple('Used', 'times', defaults=(1.0,))\nuse = lambda x: x * Used().times",
    "import dataclasses\nTIMES = 1.0\n@dataclasses.dataclass\nclass Used:\n"
    "    times: float = dataclasses.field(default_factory=lambda: TIMES)\nuse = lambda x: x * Used().times",
    "TIMES = 1.0\nclass Kind(type):\n    @property\n    def times(cls):\n        return TIMES\n"
    "class Used(metaclass=Kind):\n    pass\nuse = Used",
    "class Used:\n    times = 1.0\nuse = {'used': [Used]}['used'][0]",
    "import torch\nTIMES = 1.0\n@torch.no_grad()\ndef use(x):\n    return x * TIMES",
    "import typing\nclass Used(typing.NamedTuple):\n    kept: float = 1.0\n    def __call__(self, x):\n"
    "        return x * self.__class__.TIMES\nUsed.TIMES = 1.0\nuse = Used()",
    "TIMES = 1.0\ndef use(x):\n    return x * TIMES\ndef __getattr__(name):\n    return 2.0",
)
"""Of modules: each has ``use``, or an attribute ``times`` of that, and something to change."""


def _change(module: Any, times: float) -> None:
    """All that the functions and classes of one of ``IN_TEXTS`` may read."""
    if hasattr(module, "TIMES"):
        module.TIMES = times
        return
    used = module.Used
    if hasattr(used, "TIMES"):
        used.TIMES = times
    elif hasattr(used, "_fields"):
        used.__new__.__defaults__ = (times,)
    elif isinstance(module.use, used):
        module.use.times = times
    else:
        used.times = times


def python_modules(places: list[torch.device], capture: Capture) -> list[float]:
    """Modules that a program makes of texts, as loaders of configurations do; imported or not, and also named like a
    part of a package."""
    found = []
    choices = itertools.product(IN_TEXTS, ("config", "torch.config"), ("<string>", "config.py"), (False, True))
    for text, name, filename, imported in choices:
        config: Any = types.ModuleType(name)
        if imported:
            sys.modules[name] = config
        exec(compile(text, filename, "exec", dont_inherit=True), vars(config))
        with_attribute = "times" in text and "lambda" not in text

        def step(x: Tensor, config: Any = config) -> Tensor:
            scaled: Tensor = config.use(x)
            return scaled

        def of_attribute(x: Tensor, config: Any = config) -> Tensor:
            scaled: Tensor = x * config.use.times
            return scaled

        captured = capture(of_attribute if with_attribute else step)
        try:
            for call in range(CALLS):
                if call in CHANGED_BEFORE:
                    _change(config, 1.0 + call)
                found.append(float(captured(numbers_on(places[0], 1.0))))
        finally:
            sys.modules.pop(name, None)
        assert not isinstance(captured, pw.CapturedStep) or captured.replays, (text, name, filename, imported)
    return found


class _Tripled(list[float]):
    """Gives other values than it holds, and holds others than it is given."""

    def __getitem__(self, place: Any) -> Any:
        return list.__getitem__(self, place) * 3.0

    def __setitem__(self, place: Any, value: Any) -> None:
        list.__setitem__(self, place, value / 3.0)

    def __iter__(self) -> Any:
        return iter([7.0, 8.0])

    def __len__(self) -> int:
        return 5


class _TripledByKey(dict[str, float]):
    def get(self, key: str, default: Any = None) -> Any:
        return dict.get(self, key, default) * 3.0

    def __setitem__(self, key: str, value: float) -> None:
        dict.__setitem__(self, key, value / 3.0)

    def __iter__(self) -> Any:
        return iter(["other"])

    def __len__(self) -> int:
        return 5


class _Backwards(collections.OrderedDict[str, float]):
    def __iter__(self) -> Any:
        return reversed(self)

    def __setitem__(self, key: str, value: float) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)


class _Counting:
    """Counts how often it was written."""

    __slots__ = ("odd", "times")
    odd: bool
    times: float

    def __init__(self) -> None:
        object.__setattr__(self, "odd", False)
        object.__setattr__(self, "times", 1.0)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        object.__setattr__(self, "odd", not self.odd)


@dataclasses.dataclass(frozen=True, slots=True)
class _Frozen:
    times: float = 1.0


class _Guarded(type):
    """Its classes are written in one way only."""

    def __setattr__(cls, name: str, value: Any) -> None:
        raise TypeError(f"{name} stays what it is")


class _Halved(collections.deque[float]):
    def __iter__(self) -> Any:
        return (value / 2.0 for value in collections.deque.__iter__(self))


class _Twice(tuple[float, ...]):
    def __iter__(self) -> Any:
        return (value * 2.0 for value in tuple.__iter__(self))

    def __getitem__(self, place: Any) -> Any:
        return tuple.__getitem__(self, place) * 2.0


class _Of:
    def __init__(self, held: Any) -> None:
        self.held = held


def _of_list(of: Any, x: Tensor) -> Tensor:
    scaled: Tensor = x * of[0] * len(of) * sum(of)
    of[0] = 9.0 - of[0]
    return scaled


def _of_dictionary(of: Any, x: Tensor) -> Tensor:
    scaled: Tensor = x * of.get("one") * len(of) * len([*of])
    of["one"] = 9.0 - of.get("one")
    return scaled


def _first_of_dictionary(of: Any, x: Tensor) -> Tensor:
    scaled: Tensor = x * of[next(iter(of))]
    of["two"] = 3.0 - of["two"]
    return scaled


def _of_counting(of: Any, x: Tensor) -> Tensor:
    scaled: Tensor = x * of.times * (2.0 if of.odd else 1.0)
    of.times = 3.0 - of.times
    return scaled


def _of_frozen(of: Any, x: Tensor) -> Tensor:
    scaled: Tensor = x * of.times
    object.__setattr__(of, "times", 3.0 - of.times)
    return scaled


def _of_class(of: Any, x: Tensor) -> Tensor:
    scaled: Tensor = x * of.times
    type.__setattr__(of, "times", 3.0 - of.times)
    return scaled


_WITHOUT_MODULE: dict[str, Any] = {"__builtins__": {"type": type}}
exec("Kept = type('Kept', (), {'times': 2.0})", _WITHOUT_MODULE)


CONTAINERS = {
    "a list": Case(_of_list, lambda of, n, _: list.__setitem__(of, 0, 1.0 + n), make=lambda _: _Tripled([1.0])),
    "a dictionary": Case(
        _of_dictionary,
        lambda of, n, _: dict.__setitem__(of, "one", 1.0 + n),
        make=lambda _: _TripledByKey(one=1.0),
    ),
    "one with an order of its own": Case(
        _first_of_dictionary,
        lambda of, n, _: of.update(two=1.0 + n),
        make=lambda _: _Backwards(one=1.0, two=2.0),
    ),
    "an object that counts": Case(
        _of_counting, lambda of, n, _: setattr(of, "times", 1.0 + n), make=lambda _: _Counting()
    ),
    "a frozen object": Case(
        _of_frozen, lambda of, n, _: object.__setattr__(of, "times", 1.0 + n), make=lambda _: _Frozen()
    ),
    "a class": Case(
        _of_class,
        lambda of, n, _: type.__setattr__(of, "times", 1.0 + n),
        make=lambda _: _Guarded("Kind", (), {"times": 1.0}),
    ),
    "a deque": Case(lambda of, x: x * sum(of), lambda of, n, _: of.append(1.0 + n), make=lambda _: _Halved([1.0, 2.0])),
    "a tuple": Case(
        lambda of, x: x * sum(of.held) * of.held[0],
        lambda of, n, _: setattr(of, "held", _Twice([1.0 + n, 2.0])),
        make=lambda _: _Of(_Twice([1.0, 2.0])),
    ),
    "of a class that has no module": Case(
        lambda of, x: x * of.times,
        lambda of, n, _: setattr(of, "times", 1.0 + n),
        make=lambda _: _WITHOUT_MODULE["Kept"](),
    ),
}
"""What is read and written by methods of the user's, which give other values than are there."""


def python_containers(places: list[torch.device], capture: Capture) -> list[float]:
    """A replay reads and writes them as Python's own classes do."""
    return outcomes(CONTAINERS, places, capture)


SCENARIOS = (
    python_builtins,
    python_containers,
    python_modules,
    python_read,
    python_told,
    python_rates,
    python_denormals,
)
