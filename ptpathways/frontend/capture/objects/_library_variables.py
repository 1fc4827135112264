"""Global variables that functions of installed packages, and of torch, read while a step is recorded: their settings,
functions that they call by name, and registries (``torch.distributions.register_kl``). Somebody may put something else
there between two calls.

What a package changes itself whenever it runs, such as a cache, says nothing about what a step computes.
"""

from __future__ import annotations

import gc
import operator
import types
from collections.abc import Collection, Mapping
from typing import Any

from ptpathways import native
from ptpathways.frontend.capture.objects._walk_torch import SHARED_HOOKS
from ptpathways.frontend.capture.python import _code, _whose
from ptpathways.frontend.capture.python._contents import equal, has_hidden_sign, is_setting
from ptpathways.frontend.capture.python._places import MISSING, elements, items, read, size

_PARTS_MAX = 3
"""How far down in a package's modules: ``torch.nn.functional.gelu``."""
_NESTED_MAX = 3
"""How many dictionaries and objects lie between a variable and what is compared in it."""
_ITEMS_MAX = 1_000
"""Of a dictionary or a list."""
_CHANGES_MAX = 2
"""Calls that have changed a variable themselves, after which it is left out: the first ones may have filled it."""
_NOT_LOOKED_INTO = frozenset({"ptpathways", "torch_xla"})
"""Packages whose own variables follow what is traced."""


class Seen:
    """Which variables the functions read that ran in one call: dictionaries of modules, and keys."""

    def __init__(self) -> None:
        self.variables: dict[tuple[int, str], dict[str, Any]] = {}
        self._codes: dict[int, types.CodeType] = {}

    def take(self, space: dict[str, Any], code: types.CodeType) -> None:
        """A function of a package runs, whose module's variables are ``space``."""
        if id(code) in self._codes:
            return
        self._codes[id(code)] = code
        if str(space.get("__name__", "")).partition(".")[0] not in _NOT_LOOKED_INTO:
            self._take(space, _code.global_names(code), _code.all_names(code), 0)

    def _take(self, space: dict[str, Any], names: Collection[str], attributes: Collection[str], depth: int) -> None:
        """``attributes``: names of what is read of modules among them."""
        for name in names:
            value = space.get(name, MISSING)
            if not isinstance(value, types.ModuleType):
                if value is not MISSING and name not in SHARED_HOOKS:  # which the walk compares
                    self.variables[id(space), name] = space
            elif depth < _PARTS_MAX and (depth == 0 or value.__name__ == f"{space.get('__name__')}.{name}"):
                self._take(vars(value) if _whose.is_library_module(value) else {}, attributes, attributes, depth + 1)


class Variables:
    """Those that a step's calls have read so far, and what was in them after the last recorded call."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], _Variable] = {}
        self._changes: dict[tuple[int, str], int] = {}  # calls that have changed one themselves
        self._spaces: dict[int, dict[str, Any]] = {}
        self._guards: native.Guards | None = None
        self._lists: list[tuple[Any, tuple[Any, ...]]] = []

    def learn(self, seen: Seen, used: Mapping[type, Collection[str]]) -> None:
        """After a recorded call.

        Args:
            used: which attributes packages use of objects, by their classes (``Calls.used``).
        """
        for key, variable in self._known.items():
            if not variable.holds():
                self._changes[key] = self._changes.get(key, 0) + 1
        self._spaces.update((key[0], space) for key, space in seen.variables.items())
        keys = [key for key in {**self._known, **seen.variables} if self._changes.get(key, 0) < _CHANGES_MAX]
        self._known = {key: _Variable(self._spaces[key[0]], key[1], used) for key in keys}
        self._prepare()

    def changed(self) -> str:
        """Which of them is no longer what it was; empty: none is. It is that from now on."""
        if self._guards is None or (
            self._guards.hold() and all(_has(container, held) for container, held in self._lists)
        ):
            return ""
        found = ""
        for key, variable in self._known.items():
            if not variable.holds():
                found = variable.where
                self._known[key] = variable.anew()
        self._prepare()
        return found

    def _prepare(self) -> None:
        known = self._known.values()
        links = [link for one in known for link in one.links]
        self._lists = [item for one in known for item in one.lists]
        self._guards = native.Guards(
            links, [], [size for one in known for size in one.sizes], [item for one in known for item in one.functions]
        )


class _Variable:
    """One of them, and what was in it."""

    def __init__(self, space: dict[str, Any], name: str, used: Mapping[type, Collection[str]]) -> None:
        self._space, self._name, self._used = space, name, used
        self.links: list[tuple[dict[Any, Any], Any, Any, bool]] = []
        """Dictionaries, keys, what has to be there, and whether an equal value will do."""
        self.sizes: list[tuple[dict[Any, Any], int]] = []
        self.lists: list[tuple[Any, tuple[Any, ...]]] = []
        """Lists and sets, and what is in them."""
        self.functions: list[tuple[types.FunctionType, types.CodeType, Any, Any]] = []
        """With their code and the values of their arguments by default."""
        self._link(space, name, space.get(name, NotImplemented), 0)

    @property
    def where(self) -> str:
        return f"{self._space.get('__name__')}.{self._name}"

    def anew(self) -> _Variable:
        return _Variable(self._space, self._name, self._used)

    def holds(self) -> bool:
        return (
            all(_is_there(*link) for link in self.links)
            and all(size(container) == length for container, length in self.sizes)
            and all(_has(container, held) for container, held in self.lists)
            and all(all(map(operator.is_, _code.parts_of(parts[0]), parts)) for parts in self.functions)
        )

    def _link(self, mapping: dict[Any, Any], key: Any, value: Any, depth: int) -> None:
        if _has_tensors(value):  # whose holders are counted
            return
        by_value = is_setting(value)
        self.links.append((mapping, key, value, by_value and not has_hidden_sign(value)))
        if not by_value:
            self._look_into(value, depth)

    def _look_into(self, value: Any, depth: int) -> None:
        kind = type(value)
        if isinstance(value, types.FunctionType):
            self.functions.append(_code.parts_of(value))
            if value.__kwdefaults__:
                self._look_into(value.__kwdefaults__, depth)
        elif depth > _NESTED_MAX:
            return
        elif isinstance(value, dict):
            if size(value) <= _ITEMS_MAX and all(isinstance(key, _KEYS) for key in elements(value)):
                self.sizes.append((value, size(value)))
                for key, item in items(value):
                    self._link(value, key, item, depth + 1)
        elif isinstance(value, list | set):
            if size(value) <= _ITEMS_MAX and not any(map(_has_tensors, elements(value))):
                self.lists.append((value, tuple(elements(value))))
        elif kind in self._used and isinstance(getattr(value, "__dict__", None), dict):
            self._look_into_object(value, self._used[kind], depth)

    def _look_into_object(self, value: Any, names: Collection[str], depth: int) -> None:
        """An object of a package that answers as a dictionary or a function does, say: what is used of it."""
        spaces = [vars(value)]
        spaces += [gc.get_referents(vars(base))[0] for base in type(value).__mro__ if _whose.is_installed(base)]
        for space in spaces:
            for name in names:
                if name in space:
                    self._link(space, name, space[name], depth + 1)


_KEYS = (str, int, float, bytes, type, tuple, type(None))
"""Classes of keys that are looked up without running anybody's methods, of registries."""


def _is_there(mapping: dict[Any, Any], key: Any, value: Any, by_value: bool) -> bool:
    now = read(mapping, key)
    return now is value or (by_value and equal(now, value)) or (now is MISSING and value is NotImplemented)


def _has(container: Any, held: tuple[Any, ...]) -> bool:
    return size(container) == len(held) and all(map(operator.is_, elements(container), held))


def _has_tensors(value: Any) -> bool:
    import torch

    return issubclass(type(value), torch.Tensor | torch.nn.Module | torch.optim.Optimizer)
