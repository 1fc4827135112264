"""Options of optimizers while a call is recorded: numbers that note what Python makes of them.

A replay gives the device the options that there are now (``lr`` under a scheduler). A branch on one is Python's, so its
outcome is noted, and the step is traced again where it would come out otherwise. What the step computes with an option
is noted, too, so that the number is found again among what the device is given.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ptpathways.frontend._capture_state import Surroundings, floats

Compute = Callable[[Mapping[str, float]], float]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A comparison, and how it came out."""

    text: str
    holds: Callable[[Mapping[str, float]], bool]
    outcome: bool

    def still(self, rates: Mapping[str, float]) -> bool:
        """Whether it comes out the same with these options."""
        return self.holds(rates) is self.outcome


@dataclass(slots=True)
class Log:
    """What was made of the options."""

    predicates: dict[str, Predicate] = field(default_factory=dict)
    derived: dict[str, Compute] = field(default_factory=dict)
    """Numbers that were computed with them, by a text that says how."""
    values: dict[str, float] = field(default_factory=dict)
    """What these were."""


class Probe(float):
    """An option, or a number that was computed with some."""

    _text: str
    _compute: Compute
    _log: Log

    @staticmethod
    def of(value: float, text: str, compute: Compute, log: Log) -> Probe:
        """A number with its history."""
        made = Probe(value)
        made._text, made._compute, made._log = text, compute, log
        return made

    def _pin(self) -> float:
        """Notes that the number itself decides."""
        value, compute = float.__add__(self, 0.0), self._compute
        text = f"{self._text} == {value}"
        self._log.predicates[text] = Predicate(text, lambda rates: compute(rates) == value, True)
        return value

    def __bool__(self) -> bool:
        return _compared(self, 0.0, "ne")

    def __float__(self) -> float:
        return self._pin()

    def __int__(self) -> int:
        return int(self._pin())

    def __hash__(self) -> int:
        return hash(self._pin())

    def __repr__(self) -> str:
        return repr(self._pin())

    def __str__(self) -> str:
        return str(self._pin())

    def __format__(self, spec: str) -> str:
        return format(self._pin(), spec)

    def __trunc__(self) -> int:
        return int(self._pin())

    def __floor__(self) -> int:
        return self._pin().__floor__()

    def __ceil__(self) -> int:
        return self._pin().__ceil__()

    def __round__(self, digits: Any = None) -> Any:
        return round(self._pin(), digits)

    def __copy__(self) -> float:
        return self._pin()

    def __deepcopy__(self, memo: Any) -> float:
        return self._pin()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return float, (self._pin(),)


def _plain(value: float) -> float:
    """The number itself."""
    return float.__add__(value, 0.0) if isinstance(value, float) else value


def _compared(self: Probe, other: Any, name: str) -> bool:
    compare = getattr(operator, name)
    mine = self._compute
    given = other._compute if isinstance(other, Probe) else None
    plain = _plain(other)
    outcome = bool(compare(_plain(self), plain))
    text = f"{self._text} {name} {other._text if isinstance(other, Probe) else plain}"
    self._log.predicates[text] = Predicate(
        text, lambda rates: bool(compare(mine(rates), plain if given is None else given(rates))), outcome
    )
    return outcome


def _install() -> None:
    def comparison(name: str) -> Any:
        def compare(self: Probe, other: Any) -> Any:
            if not isinstance(other, int | float):
                return NotImplemented
            return _compared(self, other, name)

        return compare

    def arithmetic(name: str, swapped: bool) -> Any:
        work = getattr(operator, name)

        def compute(self: Probe, *others: Any) -> Any:
            if any(not isinstance(other, int | float) for other in others):
                return NotImplemented  # a tensor does it
            parts = (*others, self) if swapped else (self, *others)
            plain = [_plain(part) for part in parts]
            value = work(*plain)
            if not isinstance(value, float):
                return value
            computes = [part._compute if isinstance(part, Probe) else None for part in parts]

            def again(rates: Mapping[str, float]) -> float:
                pairs = zip(computes, plain, strict=True)
                found: float = work(*(number if one is None else one(rates) for one, number in pairs))
                return found

            texts = [part._text if isinstance(part, Probe) else repr(_plain(part)) for part in parts]
            text = f"{name}({', '.join(texts)})"
            self._log.derived[text] = again
            self._log.values[text] = value
            return Probe.of(value, text, again, self._log)

        return compute

    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Probe, f"__{name}__", comparison(name))
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        setattr(Probe, f"__{name}__", arithmetic(name, swapped=False))
        setattr(Probe, f"__r{name}__", arithmetic(name, swapped=True))
    for name in ("neg", "abs", "pos"):
        setattr(Probe, f"__{name}__", arithmetic(name, swapped=False))


_install()


@contextmanager
def probing(surroundings: Surroundings, log: Log) -> Iterator[None]:
    """Inside, the options of the optimizers are probes; afterwards they are what they were, or what was put there."""
    put: list[tuple[Any, str, Any, Any]] = []
    for name, (group, key) in surroundings.options.items():
        value = group[key]
        if not isinstance(value, float | tuple):
            continue
        probes = [
            Probe.of(number, f"{name}{place}", operator.itemgetter(f"{name}{place}"), log)
            for place, number in floats(value)
        ]
        probe = probes[0] if isinstance(value, float) else tuple(probes)
        put.append((group, key, value, probe))
        group[key] = probe
    try:
        yield
    finally:
        for group, key, value, probe in put:
            if group[key] is probe:
                group[key] = value
        for group, _, _, _ in put:
            group.update({key: _without(value) for key, value in group.items()})
        for where, key, _ in surroundings.settings.values():  # one that the step has noted
            if isinstance(where.get(key), Probe):
                where[key] = _without(where.get(key))


def _without(value: Any) -> Any:
    """The same without probes."""
    if isinstance(value, tuple):
        return tuple(map(_without, value))
    return _plain(value) if isinstance(value, Probe) else value
