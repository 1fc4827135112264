"""Options of optimizers while a call is recorded: numbers that note what Python makes of them.

A replay gives the device the options that there are now (``lr`` under a scheduler). A branch on one is Python's, so its
outcome is noted, and the step is traced again where it would come out otherwise. What the step computes with an option
is noted, too, so that the number is found again among what the device is given.
"""

from __future__ import annotations

import collections
import functools
import gc
import math
import operator
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from ptpathways.frontend.base import _torch_functions
from ptpathways.frontend.capture.objects._reachable import Surroundings, floats
from ptpathways.frontend.capture.python import _code
from ptpathways.frontend.capture.python._places import elements, items, read, write
from ptpathways.frontend.capture.recording import _watch
from ptpathways.frontend.plans import _wiring

Compute = Callable[[Mapping[str, float]], float]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A comparison, and how it came out."""

    text: str
    holds: Callable[[Mapping[str, float]], bool]
    outcome: bool
    value_of: str = ""
    """For one that is about the very value of this number: Python has computed with it out of sight."""

    def still(self, rates: Mapping[str, float]) -> bool:
        """Whether it comes out the same with these options."""
        return self.holds(rates) is self.outcome

    def changed(self) -> str:
        """What to say when it does not."""
        if self.value_of:
            return f"its Python reads the value of {self.value_of}, which changed"
        return f"it asks whether {self.text}, and that is not as it was"


@dataclass(slots=True)
class Log:
    """What was made of the options."""

    predicates: dict[str, Predicate] = field(default_factory=dict)
    derived: dict[str, Compute] = field(default_factory=dict)
    """Numbers that were computed with them, by a text that says how."""
    values: dict[str, float] = field(default_factory=dict)
    """What these were."""
    made: list[weakref.ref[Probe]] = field(default_factory=list)

    def strip(self) -> None:
        """Puts plain numbers where the call has left probes behind."""
        alive = [probe for of in self.made if (probe := of()) is not None]
        self.made.clear()
        if alive:
            for holder in gc.get_referrers(*alive):
                if holder is not alive:
                    _strip(holder)


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
        log.made.append(weakref.ref(made))
        return made

    def _pin(self) -> float:
        """Notes that the number itself decides."""
        value, compute = float.__add__(self, 0.0), self._compute
        text = f"{self._text} is {value}"
        self._log.predicates[text] = Predicate(text, lambda rates: compute(rates) == value, True, self._text)
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

    def __divmod__(self, other: Any) -> Any:
        return divmod(self._pin(), other)

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, self._pin())

    def __complex__(self) -> complex:
        return complex(self._pin())

    def is_integer(self) -> bool:
        return self._pin().is_integer()

    def as_integer_ratio(self) -> tuple[int, int]:
        return self._pin().as_integer_ratio()

    def hex(self) -> str:
        return self._pin().hex()

    def __round__(self, digits: Any = None) -> Any:
        return round(self._pin(), digits)

    def __copy__(self) -> float:
        return self._pin()

    def __deepcopy__(self, memo: Any) -> float:
        return self._pin()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return float, (self._pin(),)

    @property
    def real(self) -> float:
        return self._pin()

    def conjugate(self) -> float:
        return self._pin()


def _plain(value: float) -> float:
    """The number itself."""
    return float.__add__(value, 0.0) if isinstance(value, float) else value


def _computed(name: str, work: Callable[..., Any], *parts: Any) -> Any:
    """What a function that depends on nothing else makes of numbers, of which some are probes."""
    plain = [_plain(part) for part in parts]
    value = work(*plain)
    computes = [part._compute if isinstance(part, Probe) else None for part in parts]

    def again(rates: Mapping[str, float]) -> Any:
        pairs = zip(computes, plain, strict=True)
        return work(*(number if one is None else one(rates) for one, number in pairs))

    texts = [part._text if isinstance(part, Probe) else repr(_plain(part)) for part in parts]
    text = f"{name}({', '.join(texts)})"
    log = next(part._log for part in parts if isinstance(part, Probe))
    if isinstance(value, float) and not _wiring.is_baked(value):
        log.derived[text] = again
        log.values[text] = value
        return Probe.of(value, text, again, log)
    asked = f"{text} is {value!r}"
    log.predicates[asked] = Predicate(asked, lambda rates: bool(again(rates) == value), True)
    return value


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
            return _computed(name, work, *((*others, self) if swapped else (self, *others)))

        return compute

    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Probe, f"__{name}__", comparison(name))
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        setattr(Probe, f"__{name}__", arithmetic(name, swapped=False))
        setattr(Probe, f"__r{name}__", arithmetic(name, swapped=True))
    for name in ("neg", "abs", "pos"):
        setattr(Probe, f"__{name}__", arithmetic(name, swapped=False))


_install()


def _lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``math`` that follows probes: in C it reads them without a word."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(given, Probe | list | tuple) for given in (*args, *kwargs.values())):
            return function(*args, **kwargs)
        if not kwargs and all(isinstance(given, int | float) for given in args):
            return _computed(function.__name__, function, *args)
        return function(*map(_pinned, args), **{name: _pinned(given) for name, given in kwargs.items()})

    return call


def _pinned(value: Any) -> Any:
    """The same without probes; their values decide from now on."""
    if isinstance(value, Probe):
        return value._pin()
    return type(value)(map(_pinned, value)) if type(value) in (list, tuple) else value


@contextmanager
def _math(homes: Iterable[dict[str, Any]]) -> Iterator[None]:
    """Inside, the functions of ``math`` follow probes, also where somebody has imported them by name."""
    lifted = {id(function): _lifted(function) for function in vars(math).values() if callable(function)}
    put = [
        (home, name, value, lifted[id(value)])
        for home in (vars(math), *homes)
        for name, value in list(home.items())
        if id(value) in lifted
    ]
    for home, name, _, instead in put:
        home[name] = instead
    try:
        yield
    finally:
        for home, name, value, instead in put:
            if home.get(name) is instead:
                home[name] = value


_reads_class: Any = None


def _reads() -> Any:
    """A context manager that pins the probes whose values Python gets out of tensors of the CPU. Its class is made
    late: this room is imported before torch."""
    global _reads_class
    if _reads_class is None:
        _reads_class = _define_reads()
    return _reads_class()


def _define_reads() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils import _pytree as pytree

    class Reads(TorchFunctionMode):
        """Follows probes through tensors of the CPU."""

        def __init__(self) -> None:
            super().__init__()
            self._made: dict[int, tuple[torch.Tensor, list[Probe]]] = {}

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            function = _torch_functions.meant(function)
            result = function(*args, **(kwargs or {}))
            probes = self._in((*args, *(kwargs or {}).values()))
            if probes and not _watch.describes(function):
                for made in pytree.tree_leaves(result):
                    if not isinstance(made, torch.Tensor):
                        for probe in probes if made is not None else ():
                            probe._pin()
                    elif made.device.type == "cpu":
                        self._made[made.untyped_storage()._cdata] = made, probes
            return result

        def _in(self, values: Any) -> list[Probe]:
            found: list[Probe] = []
            for value in values:
                if isinstance(value, Probe):
                    found.append(value)
                elif isinstance(value, list | tuple):
                    found += self._in(value)
                elif self._made and isinstance(value, torch.Tensor) and value.device.type == "cpu":
                    found += self._made.get(value.untyped_storage()._cdata, (None, ()))[1]
            return found

    return Reads


@contextmanager
def probing(surroundings: Surroundings, log: Log, homes: Iterable[dict[str, Any]] = ()) -> Iterator[None]:
    """Inside, the options of the optimizers are probes; afterwards they are what they were, or what was put there.

    Args:
        homes: the global variables of the user's modules.
    """
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
    if put and _code.reads_numbers_in_c(surroundings.codes, {key for _, key in surroundings.options.values()}):
        for _, _, _, probe in put:
            _pinned(probe)
    try:
        with _math(homes if put else ()), _reads() if put else nullcontext():
            yield
    finally:
        for group, key, value, probe in put:
            if group[key] is probe:
                group[key] = value
        for group, _, _, _ in put:
            group.update({key: _without(value) for key, value in group.items()})
        for where, key, _ in surroundings.settings.values():  # one that the step has noted
            if isinstance(value := read(where, key), Probe):
                write(where, key, _without(value))


def without(result: Any, met: frozenset[int] = frozenset()) -> Any:
    """What a call returned, without probes: in lists and dictionaries themselves, as they may be the program's own.

    ``met``: ids of the lists and dictionaries that ``result`` is in; it may be one of them.
    """
    if isinstance(result, list | dict):
        if id(result) in met:
            return result
        met |= {id(result)}
        for value in (value for _, value in items(result)) if isinstance(result, dict) else elements(result):
            if isinstance(value, list | dict):
                without(value, met)
        _strip(result)
    return _without(result, met)


def _without(value: Any, met: frozenset[int] = frozenset()) -> Any:
    """The same without probes."""
    if isinstance(value, tuple):
        parts = [without(part, met) for part in elements(value)]
        if all(map(operator.is_, parts, elements(value))):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return _plain(value) if isinstance(value, Probe) else value


def _strip(holder: Any) -> None:
    """Puts plain numbers where somebody has probes."""
    if isinstance(holder, list | collections.deque):
        for place, value in enumerate(elements(holder)):
            if _has_probe(value):
                write(holder, place, _without(value))
    elif isinstance(holder, dict):
        for key, value in items(holder):
            if _has_probe(value):
                write(holder, key, _without(value))
    elif isinstance(holder, types.CellType):
        holder.cell_contents = _without(holder.cell_contents)
    elif not isinstance(holder, types.FrameType | type) and hasattr(holder, "__dict__"):
        _strip(vars(holder))


def _has_probe(value: Any) -> bool:
    return isinstance(value, Probe) or (isinstance(value, tuple) and any(map(_has_probe, elements(value))))
