"""Gradients that come and go: which of them a captured step must find, and which it leaves behind."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ptpathways.frontend.capture.objects._reachable import Surroundings
from ptpathways.frontend.capture.recording._outcome import Outcome

_gradient_of = operator.attrgetter("grad")
_requires_gradient = operator.attrgetter("requires_grad")


class Gradients:
    """What a replay must find of parameters' gradients and ``requires_grad``, and what it leaves of them.

    ``settle`` takes it from a recorded call, ``bind`` for the tensors there are now. By the names of parameters.
    """

    def __init__(self) -> None:
        self._found: Collection[str] = frozenset()
        self._left: Collection[str] = frozenset()
        self._required: Mapping[str, bool] = {}
        self._required_then: Mapping[str, bool] = {}
        self._kept: dict[str, tuple[Any, Any]] = {}
        self._with_gradients: list[Any] = []
        self._gradients: list[Any] = []
        self._beside: list[Any] = []
        """Parameters whose gradients are there, and which the step does not use: this must not hold those."""
        self._to_set: list[tuple[Any, Any]] = []
        self._trainable: list[Any] = []
        self._wanted: list[bool] = []
        self._to_require: list[tuple[Any, bool]] = []

    def settle(self, outcome: Outcome, states: Collection[str]) -> None:
        """Goes on from what a recorded call has left behind. ``states``: the program's, by name."""
        around = outcome.surroundings
        self._found, self._left = outcome.found, around.with_gradient()
        self._required, self._required_then = outcome.required, around.required()
        needed = {*states, *(f"{name}.grad" for name in self._left - self._found)}
        gradients = {name: tensor for name, tensor in around.tensors.items() if name.endswith(".grad")}
        self._kept = {
            name: (around.parameters.get(name.removesuffix(".grad")), tensor)
            for name, tensor in {**gradients, **outcome.gone}.items()
            if name in needed
        }

    def kept(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The gradients of the recorded call that are still those of ``parameters``, by name, and not of another
        model's."""
        return {
            name: gradient
            for name, (parameter, gradient) in self._kept.items()
            if parameters.get(name.removesuffix(".grad")) is parameter
        }

    @property
    def added(self) -> set[str]:
        """The names of those that it leaves behind and has not found."""
        return {f"{name}.grad" for name in self._left if name not in self._found}

    @property
    def taken(self) -> set[str]:
        """The names of those that it has found and does not leave behind."""
        return {f"{name}.grad" for name in self._found if name not in self._left}

    def bind(self, surroundings: Surroundings, tensors: Mapping[str, Any], states: Collection[str]) -> None:
        """Takes parameters and gradients from where they are now: ``zero_grad`` makes gradients come and go, also those
        that were left of a layer when it was frozen."""
        self._with_gradients, self._gradients, self._beside, self._to_set = [], [], [], []
        for name, parameter in {**surroundings.trainable, **surroundings.parameters}.items():
            gradient = tensors.get(f"{name}.grad")
            found, left = name in self._found, name in self._left
            if found and f"{name}.grad" not in states and gradient is not None:
                self._beside.append(parameter)
                del surroundings.tensors[f"{name}.grad"]
            else:
                self._with_gradients.append(parameter)
                self._gradients.append((gradient if gradient is not None else self) if found else None)
            if found != left:
                self._to_set.append((parameter, gradient if left else None))
        trainable = surroundings.trainable
        self._trainable = list(trainable.values())
        self._wanted = [self._required.get(name, tensor.requires_grad) for name, tensor in trainable.items()]
        self._to_require = [
            (tensor, left)
            for name, tensor in trainable.items()
            if (left := self._required_then.get(name, tensor.requires_grad)) != self._required.get(name, left)
        ]

    def owners(self) -> Iterator[tuple[Any, Any]]:
        """Parameters, and the gradients that a replay gives them, or None where it takes one away."""
        yield from self._to_set

    def hold(self) -> bool:
        """Whether everything is as the step must find it."""
        if not all(map(operator.is_, map(_gradient_of, self._with_gradients), self._gradients)):
            return False
        if any(parameter.grad is None for parameter in self._beside):
            return False
        return list(map(_requires_gradient, self._trainable)) == self._wanted

    def leave(self) -> None:
        """Leaves behind, after a replay, what the step leaves."""
        for tensor, required in self._to_require:
            tensor.requires_grad_(required)
        for parameter, gradient in self._to_set:
            parameter.grad = gradient

    def held(self) -> Iterator[Any]:
        """What this refers to, as often as it does."""
        for tensors in (self._gradients, self._with_gradients, self._beside, self._trainable):
            yield from tensors
        for pair in (*self._kept.values(), *self._to_set):
            yield from pair
        yield from (tensor for tensor, _ in self._to_require)
