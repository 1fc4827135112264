"""The numbers that replays of a captured step are given: options of optimizers, what Python makes of them, and
arguments."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Any

from ptpathways.frontend.capture.objects._reachable import Surroundings
from ptpathways.frontend.capture.recording._outcome import Outcome
from ptpathways.frontend.plans import _wiring
from ptpathways.frontend.plans._wiring import Feed, Number, Rate, Wiring

_FORMATS = {"f64": "<Q", "f32": "<I", "f16": "<H", "bf16": "<H", "s64": "<Q", "s32": "<I"}


class Numbers:
    """Which numbers a replay follows, and what about them has to be as it was when the step was recorded.

    An *expression* is the text of an option, or of what Python computed of options; it has one value at a time.
    """

    def __init__(self, wiring: Wiring, feeds: Collection[Any]) -> None:
        followed = {source for op in wiring.ops for source in op.arguments if isinstance(source, Rate)}
        self._used = {expression for rate in followed for expression in rate.expressions}
        self._given = self._used | {f"argument {feed.leaf}" for feed in feeds if isinstance(feed, Feed)}
        self._constants = {source for op in wiring.ops for source in op.arguments if isinstance(source, Number)}
        self._tied = [rate for rate in followed if len(rate.expressions) > 1]

    def settle(self, wiring: Wiring, outcome: Outcome) -> None:
        """Goes on from a recorded call that did what ``wiring`` says."""
        self._wiring = wiring
        self._predicates = tuple(outcome.probes.predicates.values())
        self._derived = {text: compute for text, compute in outcome.probes.derived.items() if text in self._used}

    def bind(self, surroundings: Surroundings) -> None:
        """Takes the options from where they are now."""
        self._surroundings = surroundings
        self._options = tuple(surroundings.rates())

    def now(self) -> dict[str, float]:
        """The expressions' values; some are missing where an option is no number any more."""
        found = self._surroundings.rates()
        if self.missing(found):
            return found
        for text, compute in self._derived.items():
            found[text] = compute(found)
        return found

    def missing(self, rates: Mapping[str, float]) -> str:
        """An option that is no number any more; empty if there is none."""
        return next((name for name in self._options if name not in rates), "")

    def turned(self, rates: Mapping[str, float]) -> str:
        """What to say of a comparison of an option that would come out otherwise now; empty if there is none."""
        return next((one.changed() for one in self._predicates if not one.still(rates)), "")

    def changed(self, rates: Mapping[str, float]) -> tuple[str, float | None] | None:
        """An expression that differs from the recordings and has never been seen to change, so that nobody knows what
        depends on it; and its value then."""
        known, free = self._wiring.rates, self._wiring.free
        for name, value in rates.items():
            if known.get(name) != value and name not in free:
                return name, known.get(name)
        return None

    def parted(self, rates: Mapping[str, float]) -> tuple[str, ...]:
        """Expressions of which one is followed, that were always equal and are no longer."""
        for rate in self._tied:
            if len({rates.get(name) for name in rate.expressions}) > 1 and rate.bits(rates) is None:
                return rate.expressions
        return ()

    def has_baked(self, rates: Mapping[str, float]) -> bool:
        """Whether a number is now one that PyTorch/XLA would make part of the computation."""
        return any(_wiring.is_baked(rates[name]) for name in self._given if name in rates)

    def coincide(self, rates: Mapping[str, float]) -> bool:
        """Whether a number that a replay is given happens to be equal to another one of the step.

        PyTorch/XLA then passes the two as one, so that a trace would differ, though what it computes does not.
        """
        tied = {name: rate.expressions for rate in self._tied for name in rate.expressions}
        first: dict[float, str] = {}
        for name in self._given:
            if name not in rates:
                continue
            value = rates[name]
            other = first.setdefault(value, name)
            if other != name and other not in tied.get(name, ()):
                return True
            if any(_wiring.number_bits(value, known.dtype) == known.bits for known in self._constants):
                return True
            if name.startswith("argument ") and any(
                other == value for of, other in rates.items() if of != name and of not in tied.get(name, ())
            ):
                return True
        return False


def encoded(rate: Rate, rates: Mapping[str, float]) -> bytes | None:
    """What a replay is given of a followed number; None where its expressions have come apart."""
    bits = rate.bits(rates)
    return None if bits is None else struct.pack(_FORMATS[rate.dtype], bits)
