"""Numbers that note what an optimizer's Python decides by them: a compiled update has one side of each branch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Name: TypeAlias = tuple[int, str, int]
"""A hyperparameter: the group, its key, and the place in a pair such as ``betas``."""
Values: TypeAlias = Mapping[Name, float]


@dataclass(frozen=True, slots=True)
class Branch:
    """One comparison, such as ``momentum != 0``, and what came out."""

    names: frozenset[Name]
    """The hyperparameters that it depends on."""
    decide: Callable[[Values], bool]
    outcome: bool

    def same(self, values: Values) -> bool:
        """Whether these values take the same side."""
        try:
            return self.decide(values) == self.outcome
        except ArithmeticError:
            return False


class Watched(float):
    """A hyperparameter, or what Python computes of some. Its comparisons are noted in ``branches``.

    What a tensor, or C such as ``math.sqrt``, makes of it is not watched any more.
    """

    names: frozenset[Name]
    compute: Callable[[Values], float]
    branches: list[Branch]

    @classmethod
    def of(cls, name: Name, value: float, branches: list[Branch]) -> Watched:
        return cls.made(value, frozenset({name}), lambda values: values[name], branches)

    @classmethod
    def made(
        cls, value: float, names: frozenset[Name], compute: Callable[[Values], float], branches: list[Branch]
    ) -> Watched:
        made = cls(value)
        made.names, made.compute, made.branches = names, compute, branches
        return made

    def note(self, names: frozenset[Name], decide: Callable[[Values], bool], outcome: bool) -> bool:
        self.branches.append(Branch(names, decide, outcome))
        return outcome

    def __bool__(self) -> bool:
        return self.note(self.names, lambda values: self.compute(values) != 0, float(self) != 0)

    __hash__ = float.__hash__


def _parts(value: Any) -> tuple[frozenset[Name], Callable[[Values], float]]:
    """What a number depends on, and how it is computed."""
    return (value.names, value.compute) if isinstance(value, Watched) else (frozenset(), lambda values: float(value))


def _comparing(compare: Callable[[Any, Any], bool]) -> Any:
    def method(self: Watched, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        names, of = _parts(other)
        own = self.compute
        return self.note(
            self.names | names, lambda values: compare(own(values), of(values)), compare(float(self), float(other))
        )

    return method


def _computing(compute: Callable[[Any, Any], Any], *, swapped: bool = False) -> Any:
    def method(self: Watched, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        names, of = _parts(other)
        first, second = (of, self.compute) if swapped else (self.compute, of)
        a, b = (float(other), float(self)) if swapped else (float(self), float(other))
        return Watched.made(
            compute(a, b), self.names | names, lambda values: compute(first(values), second(values)), self.branches
        )

    return method


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Watched, f"__{_name}__", _comparing(getattr(operator, _name)))
for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Watched, f"__{_name}__", _computing(getattr(operator, _name)))
    setattr(Watched, f"__r{_name}__", _computing(getattr(operator, _name), swapped=True))
for _name in ("neg", "abs"):
    _one = getattr(operator, _name)
    setattr(
        Watched,
        f"__{_name}__",
        lambda self, one=_one: Watched.made(
            one(float(self)), self.names, lambda values: one(self.compute(values)), self.branches
        ),
    )
