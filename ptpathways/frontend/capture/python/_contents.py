"""What is in the values that a step can reach, as parts of a key: plain values, objects by identity, arrays, sets,
queues, generators.
"""

from __future__ import annotations

import abc
import array
import collections
import collections.abc
import contextvars
import datetime
import decimal
import fractions
import functools
import gc
import logging
import mmap
import pathlib
import random
import threading
import types
import uuid
import warnings
from _abc import _get_dump  # type: ignore[import-not-found]
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ptpathways import native
from ptpathways.frontend.capture.python import _layout, _whose
from ptpathways.frontend.capture.python._places import elements

PLAIN = (bool, int, float, complex, str, bytes, range, type(None))


class Same:
    """An object as a part of a key: equal to itself only, and alive as long as the key."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.of is other.of

    def __hash__(self) -> int:
        return id(self.of)

    def __repr__(self) -> str:
        name = getattr(self.of, "__qualname__", None) or getattr(self.of, "co_qualname", None)
        return name if isinstance(name, str) else f"a {type(self.of).__qualname__}"


class Contents(NamedTuple):
    """What is in a tensor of the CPU, an array, a set or the like, as a part of a key."""

    of: Any


def is_plain(value: Any) -> bool:
    """Whether a value can be compared and printed: what a guard can be put on."""
    kind = type(value)  # the value need not answer what its class is
    if issubclass(kind, PLAIN):
        return True
    if issubclass(kind, tuple):
        return all(map(is_plain, elements(value)))
    return issubclass(kind, np.number | np.bool_)


def is_setting(value: Any) -> bool:
    """Whether a value is plain, or a type or device of torch."""
    import torch

    return is_plain(value) or issubclass(type(value), torch.dtype | torch.device)


_EXACT = frozenset(PLAIN)


def setting_key(value: Any) -> Any:
    """A setting as a part of a key, in which 1, 1.0 and True are three, and 0.0 and -0.0 two, also in tuples and
    complex numbers.

    Of a number, text or tuple of somebody's class: as what the class is derived from, whatever its ``__eq__`` says, and
    with its attributes.
    """
    kind = type(value)
    if kind in _EXACT:
        if kind is range:
            return "range", (value.start, value.stop, value.step)
        written = kind is complex or (kind is float and value == 0.0)
        return kind.__name__, repr(value) if written else value
    if isinstance(value, tuple):
        parts = tuple(map(setting_key, elements(value)))
        return ("tuple", parts) if kind is tuple else (Same(kind), parts, attributes_key(value))
    if not isinstance(value, PLAIN) or _whose.module_of(kind) == "numpy":
        return f"{_whose.module_of(kind)}.{kind.__name__}", repr(value) if isinstance(value, np.inexact) else value
    return Same(kind), _derived_from(value), attributes_key(value)


def has_hidden_sign(value: Any) -> bool:
    """Whether a number, or one in a tuple, may have the sign of a zero that only ``equal`` sees, and not the native
    guards."""
    if isinstance(value, tuple):
        return any(map(has_hidden_sign, elements(value)))
    return isinstance(value, complex) or (isinstance(value, np.inexact) and not isinstance(value, float))


def _derived_from(value: Any) -> Any:
    """The number, text or bytes that an object of a class is."""
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return "float", float.__repr__(value)
    if isinstance(value, complex):
        return "complex", complex.__repr__(value)
    return str.__str__(value) if isinstance(value, str) else bytes.__getitem__(value, slice(None))


def attributes_of(value: Any) -> dict[str, Any]:
    """What an object has in its dictionary and in slots."""
    attributes = getattr(value, "__dict__", None)
    named = dict(attributes) if isinstance(attributes, dict) else {}
    places = (slot for base in type(value).__mro__ for slot in _layout.slots(base))
    return named | {slot: getattr(value, slot) for slot in places if hasattr(value, slot)}


def attributes_key(value: Any) -> tuple[tuple[str, Any], ...]:
    """The attributes of an object that is compared otherwise, as a part of a key."""
    return tuple((str(name), member_key(one)) for name, one in attributes_of(value).items())


def object_key(value: Any) -> Any:
    """A dictionary's key as a part of a key: which one it is, unless its class says what equals it."""
    if is_setting(value):
        return setting_key(value)
    if isinstance(value, tuple):
        return Same(type(value)), tuple(map(object_key, elements(value))), attributes_key(value)
    if isinstance(value, frozenset):
        return Same(type(value)), Contents(tuple(map(object_key, elements(value)))), attributes_key(value)
    compares = type(value).__eq__ is not object.__eq__  # type: ignore[comparison-overlap]
    return Same(type(value) if compares else value), attributes_key(value)


def _decimal(context: decimal.Context | None = None) -> Any:
    context = context or decimal.getcontext()
    return context.prec, context.rounding, context.Emin, context.Emax, context.clamp, str(context.traps)


def error_filters() -> tuple[Any, ...]:
    """The filters of warnings that decide which warning is an exception: all up to the last one that makes any."""
    filters = tuple(warnings.filters)
    last = max((place for place, one in enumerate(filters, 1) if one[0] == "error"), default=0)
    return filters[:last]


_TINY = 5e-324


def flushes_denormals() -> bool:
    """Whether the processor takes the smallest numbers for zero, as after ``torch.set_flush_denormal(True)``."""
    return _TINY * 1.0 == 0.0


CONTEXTS: dict[Any, tuple[str, Callable[[], Any]]] = {
    decimal.getcontext: ("the context of decimal", _decimal),
    np.get_printoptions: ("how NumPy prints", lambda: str(np.get_printoptions())),
    flushes_denormals: ("whether the smallest numbers are zero", flushes_denormals),
    np.geterr: ("how NumPy treats errors", lambda: tuple(np.geterr().values())),
    warnings.catch_warnings: ("the filters of warnings", lambda: tuple(warnings.filters)),
}
"""Functions that tell what a library computes with beside its arguments: what to call that, and what is in it."""


_VALUES = frozenset(
    {
        *(decimal.Decimal, fractions.Fraction, uuid.UUID),
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
    }
)
"""Classes of Python's library whose objects do not change, and whose ``repr`` says all."""


def contents_of(value: Any) -> Any:
    """What is in an array, a set, a queue or bytes, to be compared; None for anything else."""
    if isinstance(value, np.ndarray):
        return "array", value.shape, value.strides, value.flags.num, _type_key(value.dtype), *_elements_of(value)
    if isinstance(value, np.void):  # one element of an array of records, which can be written
        return "a record", _type_key(value.dtype), value.tobytes()
    if isinstance(value, set | frozenset | collections.deque):
        members = tuple(map(member_key, elements(value)))  # in their order, also of a set: loops follow it
        return (type(value), value.maxlen, members) if isinstance(value, collections.deque) else (type(value), members)
    if isinstance(value, functools._lru_cache_wrapper):
        return "the cache", value.cache_info().misses, value.cache_info().currsize
    if isinstance(value, bytearray | array.array) or _whose.module_of(type(type(value))) == "_ctypes":
        return type(value), bytes(value)
    if _whose.module_of(type(value)) == "multiprocessing.sharedctypes":
        return type(value), bytes(value.get_obj())
    if isinstance(value, memoryview):
        return type(value), value.format, value.shape, value.strides, value.readonly, value.tobytes()
    if isinstance(value, mmap.mmap):
        return "the mapped file", None if value.closed else native.digest(np.frombuffer(value, np.uint8))
    if isinstance(value, logging.Logger):
        return "the logger", value.getEffectiveLevel(), value.disabled, value.manager.disable
    if isinstance(value, contextvars.ContextVar):
        return "the variable", member_key(_value_of(value))
    if isinstance(value, types.MappingProxyType | collections.ChainMap):
        return type(value), tuple((member_key(key), member_key(item)) for key, item in value.items())
    if isinstance(value, threading.local):
        return type(value), tuple((key, member_key(item)) for key, item in vars(value).items())
    if isinstance(value, decimal.Context):
        return _decimal(value)
    if type(value) is slice:
        return "slice", tuple(map(member_key, (value.start, value.stop, value.step)))
    if _whose.module_of(type(value)) in _HASHES:
        return value.name, value.hexdigest(*(() if value.digest_size else (32,)))
    if type(value) in _VALUES or isinstance(value, pathlib.PurePath):
        return type(value), repr(value), getattr(value, "is_safe", None)  # which a UUID does not print
    return None


def _type_key(kind: np.dtype[Any]) -> Any:
    """The type of an array's elements, with what somebody has noted there."""
    return str(kind), tuple((member_key(key), member_key(item)) for key, item in (kind.metadata or {}).items())


def _elements_of(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """What is in an array, and in the mask of a masked one."""
    if array.dtype.hasobject:
        elements: Any = tuple(map(id, np.asarray(array).flat))
    else:
        elements = native.digest(np.ascontiguousarray(array))
    if not isinstance(array, np.ma.MaskedArray):
        return (elements,)
    mask = native.digest(np.ascontiguousarray(np.ma.getmaskarray(array)))
    return elements, mask, array.mask is np.ma.nomask, array.hardmask, repr(array.fill_value)


def mapping_of(view: collections.abc.MappingView) -> Any:
    """That a view of keys, values or items is of."""
    return view._mapping if hasattr(view, "_mapping") else gc.get_referents(view)[0]


def members_of(value: Any) -> Iterable[Any]:
    """The objects in what ``contents_of`` knows, in an order that stays as long as nobody writes there."""
    if isinstance(value, set | frozenset | collections.deque):
        return list(elements(value))
    if isinstance(value, np.ndarray):
        return list(value.flat) if value.dtype.hasobject else ()
    if isinstance(value, contextvars.ContextVar):
        return (_value_of(value),)
    if isinstance(value, types.MappingProxyType | collections.ChainMap):
        return list(value.values())
    return list(vars(value).values()) if isinstance(value, threading.local) else ()


def registered(kind: abc.ABCMeta) -> list[type]:
    """The classes that are said to derive from an abstract one."""
    found = (reference() for reference in _get_dump(kind)[0])
    return [one for one in found if one is not None]


def _value_of(variable: contextvars.ContextVar[Any]) -> Any:
    try:
        return variable.get()
    except LookupError:
        return None


def member_key(value: Any) -> Any:
    """What a container holds, as a part of a key."""
    return setting_key(value) if is_plain(value) else Same(value)


def position_of(value: Any) -> Any:
    """How far a random generator or an iterator is, to be compared; None for anything else."""
    import torch

    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return position_of(value.bit_generator)
    if isinstance(value, np.random.BitGenerator):
        return repr(value.state), position_of(getattr(value, "seed_seq", None))
    if isinstance(value, np.random.SeedSequence):
        return repr(value.state)  # with the number of its children
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state())
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, types.CoroutineType) or hasattr(type(value), "__next__"):
        return _iterator_position(value, 0)
    return None


_HASHES = frozenset({"_hashlib", "_md5", "_sha1", "_sha2", "_sha256", "_sha3", "_sha512", "_blake2"})
_EXACT_ITERATORS = ("builtins", "itertools")
"""Modules whose iterators say what they can be made again from, if they can."""


def _iterator_position(value: Any, depth: int) -> Any:
    """How far an iterator is, by what it can be made again from; something that equals nothing if that cannot be told,
    as of a generator or a file."""
    if _whose.module_of(type(value)) not in _EXACT_ITERATORS:
        return object()
    try:
        state = value.__reduce__()
    except TypeError:
        return object()
    if not isinstance(state, tuple) or len(state) < 2 or not isinstance(state[1], tuple) or depth > 8:
        return object()
    parts: list[Any] = [len(state[1])]
    for part in (*state[1], *state[2:]):
        if hasattr(type(part), "__next__"):
            parts.append(_iterator_position(part, depth + 1))
        elif is_plain(part):
            parts.append(part)
        else:
            parts.append(len(part) if isinstance(part, list | dict | set) else None)
    return tuple(parts)


def equal(one: Any, other: Any) -> bool:
    """Equal, and of one type: 1, 1.0 and True give other computations, and so do 0.0 and -0.0."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) in _EXACT and type(one) is not range:
        if type(one) is complex:
            return repr(one) == repr(other)
        return bool(one == other) and (one != 0.0 or str(one) == str(other))
    return bool(setting_key(one) == setting_key(other)) if is_setting(one) and is_setting(other) else False
