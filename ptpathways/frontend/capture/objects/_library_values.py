"""What is in a global variable of an installed package, as far as functions of packages look into it."""

from __future__ import annotations

import functools
import gc
import logging
import operator
import types
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from ptpathways.frontend.capture.python import _code, _layout, _whose
from ptpathways.frontend.capture.python._contents import (
    contents_of,
    equal,
    has_hidden_sign,
    is_setting,
    members_of,
    position_of,
)
from ptpathways.frontend.capture.python._places import MISSING, CellView, SlotView, View, elements, items, read, size

_NESTED_MAX = 4
"""How many containers and objects lie between a variable and what is compared in it."""
_ITEMS_MAX = 10_000
"""Of a container."""
_KEYS = (str, int, float, bytes, type, type(None))
"""Classes of keys that are looked up without running anybody's methods."""
_OF_PYTHON = frozenset({"collections", "os", "types", "weakref"})
"""Modules of Python's library whose objects hold what somebody has put there: ``UserDict``, ``SimpleNamespace``."""

Address = tuple[int, Any]
"""An object by identity, and a key or an attribute of it."""
Place = tuple[Any, Any]
"""The same with the object itself."""


class Names:
    """What functions mention, also as texts."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._any = False

    def add(self, names: Collection[str], computed: bool) -> None:
        """``computed``: a function computes names of attributes."""
        self._names.update(names)
        self._any = self._any or computed

    def join(self, other: Names) -> None:
        self.add(other._names, other._any)

    def among(self, known: Collection[str]) -> list[str]:
        """Those of ``known`` that may be used."""
        return [name for name in known if self._any or name in self._names]


class Values:
    """What is in one variable. Holds no tensor of a device: its holders are counted."""

    def __init__(
        self,
        space: dict[str, Any],
        name: str,
        names: Names,
        of_torch: bool,
        left_out: Collection[Address],
        met: dict[int, tuple[int, Any]],
    ) -> None:
        """``left_out``: what is not compared. ``met``: how deep what lies that was looked into already, and is from now
        on."""
        self.name = f"{space.get('__name__')}.{name}"
        self.links: list[tuple[dict[Any, Any], Any, Any, bool]] = []
        """Dictionaries, keys, what has to be there, and whether an equal value will do."""
        self.sizes: list[tuple[dict[Any, Any], int]] = []
        self.functions: list[tuple[types.FunctionType, types.CodeType, Any, Any]] = []
        self._lists: list[tuple[Any, tuple[Any, ...]]] = []
        self._tables: list[tuple[dict[Any, Any], tuple[Any, ...], tuple[Any, ...]]] = []  # by objects
        self._members: list[tuple[View, Any, Any]] = []  # of closures, and of slots
        self._contents: list[tuple[Any, Any]] = []  # of arrays, sets and the like
        self._moving: list[tuple[Any, Any]] = []  # random generators and iterators, and how far they are
        self._names, self._of_torch, self._left_out, self._met = names, of_torch, left_out, met
        self._link(space, name, space.get(name, MISSING), 0)

    def has_others(self) -> bool:
        """Whether there is anything that native guards do not compare."""
        return bool(self._lists or self._tables or self._members or self._contents)

    def others_hold(self) -> bool:
        """Whether that is as it was."""
        return not any(True for _ in self._others_changed())

    def changed(self) -> list[Place]:
        found: list[Place] = [
            (one, key) for one, key, value, by_value in self.links if not _is_there(one, key, value, by_value)
        ]
        found += [(container, None) for container, length in self.sizes if size(container) != length]
        found += [
            (parts[0], None) for parts in self.functions if not all(map(operator.is_, _code.parts_of(parts[0]), parts))
        ]
        return [*found, *self._others_changed()]

    def grown(self) -> list[Place]:
        """Dictionaries to which entries have come."""
        return [(container, None) for container, length in self.sizes if size(container) > length]

    def _others_changed(self) -> Iterator[Place]:
        for container, held in self._lists:
            if size(container) != len(held) or not all(map(operator.is_, elements(container), held)):
                yield container, None
        for table, keys, values in self._tables:
            if not (_are(dict.keys(table), keys) and _are(dict.values(table), values)):
                yield table, None
        for view, key, value in self._members:
            if view.get(key) is not value:
                yield view.of, key
        for of, contents in self._contents:
            if contents_of(of) != contents:
                yield of, None

    def begin(self) -> None:
        """A call is about to be recorded. Where generators are by then says nothing, as programs draw between calls."""
        self._moving = [(of, position_of(of)) for of, _ in self._moving]

    def has_moved(self) -> bool:
        """Whether something was drawn from a generator, or taken from an iterator, since ``begin``."""
        return any(position_of(of) != position for of, position in self._moving)

    def _is_compared(self, of: Any, key: Any = None) -> bool:
        return (id(of), key) not in self._left_out

    def _link(self, mapping: dict[Any, Any], key: Any, value: Any, depth: int) -> None:
        if value is NotImplemented or _is_on_device(value) or not self._is_compared(mapping, key):
            return  # NotImplemented is how guards are told that nothing may be there
        if value is MISSING:
            self.links.append((mapping, key, NotImplemented, False))
            return
        by_value = is_setting(value)
        self.links.append((mapping, key, value, by_value and not has_hidden_sign(value)))
        if not by_value:
            self._look_into(value, depth)

    def _member(self, view: View, key: str, depth: int) -> None:
        value = view.get(key)
        if not _is_on_device(value) and self._is_compared(view.of, key):
            self._members.append((view, key, value))
            self._look_into(value, depth)

    def _look_into(self, value: Any, depth: int) -> None:
        if depth > _NESTED_MAX or isinstance(value, types.ModuleType) or is_setting(value):
            return
        if id(value) in self._met and self._met[id(value)][0] <= depth:
            return
        self._met[id(value)] = depth, value
        if isinstance(value, types.FunctionType):
            self._function(value, depth)
        elif isinstance(value, type):
            if not self._of_torch:
                self._class(value, depth)
        elif isinstance(value, dict):
            self._dictionary(value, depth)
        elif isinstance(value, list | tuple):
            self._list(value, depth)
        elif isinstance(value, functools._lru_cache_wrapper):
            self._look_into(value.__wrapped__, depth)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self._look_into(part, depth + 1)
        elif isinstance(value, types.MethodType):
            self._look_into(value.__func__, depth)
            self._look_into(value.__self__, depth + 1)
        elif (position := position_of(value)) is not None:
            # Else it cannot be told, or it is no value: torch counts what it compiles, and its generators are watched.
            if type(position) is not object and not self._of_torch:
                self._moving.append((value, position))
        elif isinstance(value, logging.Logger) or (isinstance(value, np.ndarray) and value.size > _ITEMS_MAX):
            return  # what is logged is no value; a large array takes too long to compare
        elif not any(map(_is_on_device, members_of(value))) and (contents := contents_of(value)) is not None:
            if self._is_compared(value):
                self._contents.append((value, contents))
            for member in members_of(value):
                self._look_into(member, depth + 1)
        else:
            self._object(value, depth)

    def _function(self, function: types.FunctionType, depth: int) -> None:
        if self._is_compared(function):
            self.functions.append(_code.parts_of(function))
        if self._of_torch:
            return
        for values in (function.__defaults__, function.__kwdefaults__):
            self._look_into(values, depth + 1)
        for cell in function.__closure__ or ():
            self._member(CellView(cell), "", depth + 1)
        self._attributes(vars(function), depth)

    def _dictionary(self, value: dict[Any, Any], depth: int) -> None:
        if size(value) > _ITEMS_MAX:
            return
        if all(isinstance(key, _KEYS) for key in elements(value)):
            if self._is_compared(value):
                self.sizes.append((value, size(value)))
            for key, item in items(value):
                self._link(value, key, item, depth + 1)
        else:
            held = [(key, item) for key, item in items(value) if not (_is_on_device(key) or _is_on_device(item))]
            if len(held) == size(value) and self._is_compared(value):
                self._tables.append((value, tuple(key for key, _ in held), tuple(item for _, item in held)))
            for part in (part for pair in held for part in pair):
                self._look_into(part, depth + 1)
        if type(value) is not dict:
            self._object(value, depth)

    def _list(self, value: Any, depth: int) -> None:
        members = tuple(elements(value))
        if len(members) > _ITEMS_MAX or any(map(_is_on_device, members)):
            return
        if isinstance(value, list) and self._is_compared(value):
            self._lists.append((value, members))
        for member in members:
            self._look_into(member, depth + 1)

    def _class(self, kind: type, depth: int) -> None:
        for place, base in enumerate(kind.__mro__):
            if _whose.is_installed(base):
                own = gc.get_referents(vars(base))[0]  # the dictionary itself
                self._attributes(own, depth)
                self._absent(own, kind.__mro__[place + 1 :], depth)

    def _object(self, value: Any, depth: int) -> None:
        """An object of a package, or one of Python's that holds what somebody has put there."""
        kind = type(value)
        root = _whose.module_of(kind).partition(".")[0]
        if root not in _OF_PYTHON and not any(map(_whose.is_installed, kind.__mro__)):
            return
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._attributes(attributes, depth, whole=root in _OF_PYTHON)
            if not self._of_torch:
                self._absent(attributes, kind.__mro__, depth)
        for name in self._names.among([name for base in kind.__mro__ for name in _layout.slots(base)]):
            self._member(SlotView(value), name, depth + 1)
        self._look_into(kind, depth)

    def _absent(self, attributes: dict[str, Any], kinds: Collection[type], depth: int) -> None:
        """What may come, and hide what classes have."""
        inherited = {name for kind in kinds for name in vars(kind)} - attributes.keys()
        for name in self._names.among(inherited):
            self._link(attributes, name, MISSING, depth)

    def _attributes(self, attributes: dict[str, Any], depth: int, whole: bool = False) -> None:
        for name in list(attributes) if whole else self._names.among(list(attributes)):
            value = attributes[name]
            self._link(attributes, name, value, depth + 1)
            if isinstance(value, staticmethod | classmethod):
                self._look_into(value.__func__, depth + 1)
            elif isinstance(value, property):
                self._look_into(value.fget, depth + 1)


def _is_there(mapping: dict[Any, Any], key: Any, value: Any, by_value: bool) -> bool:
    now = read(mapping, key)
    return now is value or (by_value and equal(now, value)) or (now is MISSING and value is NotImplemented)


def _are(found: Collection[Any], held: tuple[Any, ...]) -> bool:
    return len(found) == len(held) and all(map(operator.is_, found, held))


def _is_on_device(value: Any) -> bool:
    import torch

    return issubclass(type(value), torch.Tensor) and value.device.type != "cpu"
