"""Scenarios of captured steps: what a step uses without naming it."""

from __future__ import annotations

import copy
import dataclasses
import decimal
import enum
import types
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

import ptpathways as pw
from tests.proc.capture_basis import Capture
from tests.proc.capture_cases import CALLS, CHANGED_BEFORE, Case, numbers_on, outcomes

FACTORS = {"times": 1.0}


class _Mode(enum.Enum):
    SLOW = 1
    FAST = 2

    def times(self) -> float:
        return self.value * FACTORS["times"]

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls.FAST if FACTORS["times"] > 2.0 else cls.SLOW


class _Subscripted:
    times = 1.0

    def __class_getitem__(cls, number: int) -> float:
        return cls.times * number


@dataclasses.dataclass
class _Made:
    times: list[float] = dataclasses.field(default_factory=lambda: [FACTORS["times"]])


class _Weight(nn.Parameter):
    def scaled(self) -> Tensor:
        return self * FACTORS["times"]


@runtime_checkable
class _Scaling(Protocol):
    times: float

    def scale(self) -> float: ...


class _Scales:
    def scale(self) -> float:
        return 2.0


class _Plain:
    pass


def _add_text(of: Any, number: int, _: torch.device) -> None:
    if number == 7:
        delattr(type(of), "__str__")
    else:
        setattr(type(of), "__str__", lambda _: "*" * number)  # noqa: B010


def _add_state(of: Any, number: int, _: torch.device) -> None:
    setattr(type(of), "__getstate__", lambda _: {"times": 1.0 + number})  # noqa: B010


class _Stateful(nn.Module):
    def get_extra_state(self) -> float:
        return FACTORS["times"]


class _Chosen:
    def __init__(self) -> None:
        self.mode = _Mode.SLOW


def _write(body: dict[str, Any]) -> None:
    body["times"] = 1.0
    body["scale"] = lambda self: self.times


def _set_factor(_: Any, number: int, __: torch.device) -> None:
    FACTORS["times"] = 1.0 + number


def _reset_factor(_: Any, __: torch.device) -> None:
    FACTORS["times"] = 1.0


def _by_factor(use: Any, make: Any) -> Case:
    return Case(use, _set_factor, _reset_factor, make)


FUNCTIONS = {
    "a method of an enumeration": _by_factor(lambda of, x: x * of.times(), lambda _: _Mode.SLOW),
    "another member": Case(
        lambda of, x: x * of.mode.times(),
        lambda of, n, _: setattr(of, "mode", _Mode.FAST if n == 6 else _Mode.SLOW),
        _reset_factor,
        lambda _: _Chosen(),
    ),
    "what makes up a member": _by_factor(lambda of, x: x * of(7).value, lambda _: _Mode),
    "a class with []": Case(
        lambda of, x: x * of[2],
        lambda of, n, _: setattr(of, "times", 1.0 + n),
        lambda of, _: setattr(of, "times", 1.0),
        lambda _: _Subscripted,
    ),
    "the factory of a default": _by_factor(lambda of, x: x * of().times[0], lambda _: _Made),
    "a method of a parameter": _by_factor(
        lambda of, x: x + of.scaled().detach(), lambda place: _Weight(torch.ones(2, device=place))
    ),
    "a protocol": Case(
        lambda of, x: x * (of.scale() if isinstance(of, _Scaling) else 5.0),
        lambda of, n, _: vars(of).pop("times") if n == 7 else setattr(of, "times", 1.0),
        make=lambda _: _Scales(),
    ),
    "a class made by new_class": Case(
        lambda of, x: x * of.scale(),
        lambda of, n, _: setattr(type(of), "times", 1.0 + n),
        make=lambda _: types.new_class("Made", (), {}, _write)(),
    ),
    "a class made by make_dataclass": Case(
        lambda of, x: x * of.scale(),
        lambda of, n, _: setattr(of, "times", 1.0 + n),
        make=lambda _: dataclasses.make_dataclass(
            "Made", [("times", float, 1.0)], namespace={"scale": lambda self: self.times * FACTORS["times"]}
        )(),
    ),
    "a text that comes": Case(
        lambda of, x: x * float(f"{of}".count("*")), _add_text, make=lambda _: type("Shown", (_Plain,), {})()
    ),
    "a state for copies that comes": Case(
        lambda of, x: x * vars(copy.copy(of)).get("times", 1.0),
        _add_state,
        make=lambda _: type("Copied", (_Plain,), {})(),
    ),
    "the context of a decimal number": Case(
        lambda of, x: x * float(of / 3),
        lambda of, n, _: setattr(decimal.getcontext(), "prec", 2 if n == 6 else 28),
        make=lambda _: decimal.Decimal("1.25"),
    ),
    "the text of a method": Case(
        lambda of, x: x * float(len(of.mode(["a", "b"]))),
        lambda of, n, _: setattr(of, "mode", ("," * n).join),
        make=lambda _: types.SimpleNamespace(mode=",".join),
    ),
    "a record of NumPy": Case(
        lambda of, x: x * float(of["times"]),
        lambda of, n, _: of.__setitem__("times", 1.0 + n),
        make=lambda _: np.ones(1, dtype=[("times", "f8")])[0],
    ),
    "a state of one's own": _by_factor(lambda of, x: x * of.state_dict()["_extra_state"], lambda _: _Stateful()),
}


def implied_functions(places: list[torch.device], capture: Capture) -> list[float]:
    """Functions that are called by Python or torch, by another name or for an object that has them by its class."""
    return outcomes(FUNCTIONS, places, capture)


class _Turning:
    def __init__(self) -> None:
        self.turn = False


PHASE = ""
LEFT: Any = None


def _write_only(of: _Turning, x: Tensor) -> Tensor:
    global PHASE
    of.turn = not of.turn
    PHASE = "odd" if of.turn else "even"
    return x * 2.0


def implied_globals(places: list[torch.device], capture: Capture) -> list[float]:
    """A global variable that the step writes and does not read, whoever else writes it."""
    global PHASE
    of, found = _Turning(), []

    def step(x: Tensor) -> Tensor:
        return _write_only(of, x)

    captured = capture(step)
    for call in range(1, 2 * CALLS):
        if call in CHANGED_BEFORE:
            PHASE = ""
        captured(numbers_on(places[0], 0.5))
        found.append(float(["", "odd", "even"].index(PHASE)))
    if isinstance(captured, pw.CapturedStep):
        assert captured.replays
    return found


def implied_deletions(places: list[torch.device], capture: Capture) -> list[float]:
    """A variable that the step deletes at some calls is not one that it sets to None."""
    of, found = _Turning(), []
    cell = types.CellType(0.0)

    def step(x: Tensor) -> Tensor:
        of.turn = not of.turn
        cell.cell_contents = 1.0
        if of.turn:
            del cell.cell_contents
        return x * 2.0

    captured = capture(step)
    for call in range(1, CALLS):
        if call in CHANGED_BEFORE:
            cell.cell_contents = 3.0
        captured(numbers_on(places[0], 0.5))
        try:
            found.append(float(cell.cell_contents))
        except ValueError:
            found.append(-1.0)
    return found


class _Answering:
    times = 2.0

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name) * 1.5


ANSWERING = _Answering()


def implied_answers(places: list[torch.device], capture: Capture) -> list[float]:
    """An object that does not even say its class is no error of the step."""

    def step(x: Tensor) -> Tensor:
        return x * ANSWERING.times

    captured = capture(step)
    return [float(captured(numbers_on(places[0], 0.5)).sum()) for _ in range(4)]


def implied_objects(places: list[torch.device], capture: Capture) -> list[float]:
    """An object that the step puts into a global variable, which is taken away again."""
    found = []

    def step(x: Tensor) -> Tensor:
        global LEFT
        LEFT = _Turning()
        return x * 2.0

    captured = capture(step)
    for call in range(1, CALLS):
        globals().pop("LEFT", None)
        captured(numbers_on(places[0], 0.25 + call / 40))
        found.append(float("LEFT" in globals()))
    return found


PLACES = types.ModuleType("places")


def _suffix(of: Any) -> str:
    return "gain"[: 4 if of is not None else 0]


def _keep_by_name(of: Any, x: Tensor) -> Tensor:
    of.turn = not of.turn
    setattr(of, "kept_" + _suffix(of), 1.0 if of.turn else 2.0)
    return x * 2.0


def _of_module(x: Tensor) -> Tensor:
    scaled: Tensor = x * getattr(PLACES, "the_" + _suffix(x)) * (2.0 if hasattr(PLACES, "a_" + _suffix(x)) else 1.0)
    setattr(PLACES, "left_" + _suffix(x), 3.0 - getattr(PLACES, "left_" + _suffix(x)))
    return scaled


def implied_names(places: list[torch.device], capture: Capture) -> list[float]:
    """Attributes whose names the step computes: of an object, which only the caller reads, and of a module."""
    of, found = _Turning(), []

    def keep(x: Tensor) -> Tensor:
        return _keep_by_name(of, x)

    def step(x: Tensor) -> Tensor:
        return _of_module(x)

    space = vars(PLACES)
    space.update(the_gain=1.0, left_gain=1.0)
    space.pop("a_gain", None)
    for captured in (capture(keep), capture(step)):
        for call in range(1, 2 * CALLS):
            if call in CHANGED_BEFORE:
                vars(of)["kept_gain"] = 0.0
                space["the_gain"] = 1.0 + call
            if call == 6:
                space["a_gain"] = 1.0
            elif call == 11:
                del space["a_gain"]
            found += [float(captured(numbers_on(places[0], 0.5)).sum()), vars(of)["kept_gain"], space["left_gain"]]
        assert not isinstance(captured, pw.CapturedStep) or captured.replays, captured
    return found


def _linear(place: torch.device) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(2, 2).to(place)


def _toggle_buffer(of: nn.Module, number: int, place: torch.device) -> None:
    if number == 7:
        del of.extra
    else:
        of.register_buffer("extra", torch.ones(2, device=place))


def _turn(entries: dict[str, Any]) -> None:
    first = next(iter(entries))
    entries[first] = entries.pop(first)


def _leave_out(of: nn.Module, place: torch.device) -> None:
    of.register_buffer("extra", torch.ones(2, device=place))


def _weighted(of: nn.Module, x: Tensor) -> Tensor:
    scaled: Tensor = x * sum(place * float(one.dim()) for place, one in enumerate(of.parameters()))
    return scaled


PARTS = {
    "parameters": Case(
        lambda of, x: x * sum(one.square().sum() for one in of.parameters()).detach(),
        lambda of, n, place: of.register_parameter(f"extra{n}", nn.Parameter(torch.ones(2, device=place))),
        make=_linear,
    ),
    "buffers": Case(lambda of, x: x * (1.0 + len([*of.buffers()])), _toggle_buffer, make=_linear),
    "modules in it": Case(
        lambda of, x: x * len([*of.modules()]),
        lambda of, n, _: of.add_module(f"part{n}", nn.ReLU()),
        make=lambda _: nn.ReLU(),
    ),
    "their order": Case(_weighted, lambda of, *_: _turn(of._parameters), make=_linear),
    "what its state leaves out": Case(
        lambda of, x: x * len(of.state_dict()),
        lambda of, *_: of._non_persistent_buffers_set.symmetric_difference_update({"extra"}),
        _leave_out,
        _linear,
    ),
    "the hooks of an optimizer's state": Case(
        lambda of, x: x * float(len(of.state_dict())),
        lambda of, n, _: of.register_state_dict_post_hook(lambda _, state: state.update({f"extra{n}": 1})),
        make=lambda place: torch.optim.SGD(_linear(place).parameters(), lr=0.1),
    ),
    "a hook for its state": Case(
        lambda of, x: x * len(of.state_dict()),
        lambda of, n, _: of._register_state_dict_hook(lambda _, state, *__: state.update({f"extra{n}": None}) or None),
        make=_linear,
    ),
}


def implied_parts(places: list[torch.device], capture: Capture) -> list[float]:
    """What is added to a layer of torch's from outside, where the step goes through all that it has."""
    return outcomes(PARTS, places, capture)


SCENARIOS = (
    implied_answers,
    implied_deletions,
    implied_functions,
    implied_globals,
    implied_names,
    implied_objects,
    implied_parts,
)
