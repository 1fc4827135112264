"""Global variables that functions of installed packages, and of torch, read while a step is recorded: their settings,
functions that they call by name, and registries (``torch.distributions.register_kl``). Somebody may put something else
there between two calls.

What a package changes itself whenever it runs, such as a cache, says nothing about what a step computes.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ptpathways import native
from ptpathways.frontend.capture.objects._library_values import Address, Names, Place, Values
from ptpathways.frontend.capture.objects._walk_torch import SHARED_HOOKS
from ptpathways.frontend.capture.python import _code, _whose
from ptpathways.frontend.capture.python._places import MISSING

_PARTS_MAX = 3
"""How far down in a package's modules: ``torch.nn.functional.gelu``."""
_CHANGES_MAX = 2
"""How often calls have changed a value themselves, or a dictionary has got more entries, after which that is left out:
the first calls may have filled a cache, and others add to it."""
_OF_TORCH = frozenset({"torch", "numpy"})
_NOT_LOOKED_INTO = frozenset({"ptpathways", "torch_xla"})
"""Packages whose own variables follow what is traced."""
_BY_DEFAULT = frozenset({"getattr", "hasattr"})
"""Ways to ask a module for what may be absent."""
_SPACE_BY_CALL = frozenset({"globals", "vars"})
_ENVIRONMENT = frozenset({"environ", "getenv"})

Space = dict[str, object]
"""The variables of a module."""


class Seen:
    """Which variables the functions read that ran in one call."""

    def __init__(self) -> None:
        self.variables: dict[tuple[int, str], Space] = {}
        self.names = {True: Names(), False: Names()}
        """What the functions mention, of torch and of other packages."""
        self._codes: dict[int, types.CodeType] = {}

    def take(self, space: Space, code: types.CodeType) -> None:
        """A function of a package runs, whose module's variables are ``space``."""
        if id(code) in self._codes:
            return
        self._codes[id(code)] = code
        root = _root(space)
        if root in _NOT_LOOKED_INTO:
            return
        mentioned, loaded = _code.all_names(code), _code.global_names(code)
        computed = _code.computes_attribute_names(code)
        self.names[root in _OF_TORCH].add(mentioned, computed)
        names: Collection[str] = loaded if _SPACE_BY_CALL.isdisjoint(loaded) else mentioned
        if root not in _OF_TORCH and "globals" in loaded and _code.computes_global_names(code):
            names = list(space)
        self._take(space, names, mentioned, 0, computed and root not in _OF_TORCH)
        for name in names:
            if name not in space:
                self.variables[id(space), name] = space
                self.variables[id(vars(builtins)), name] = vars(builtins)
        for name in _code.imported_names(code):
            if _whose.is_library_module(module := sys.modules.get(name)):
                self._take(vars(module), mentioned, mentioned, 1)
        if not _ENVIRONMENT.isdisjoint(mentioned):
            self.variables[id(vars(os)), "environ"] = vars(os)

    def _take(
        self, space: Space, names: Collection[str], attributes: Collection[str], depth: int, whole: bool = False
    ) -> None:
        """``attributes``: names of what is read of modules among them; ``whole``: of these, anything may be."""
        for name in names:
            value = space.get(name, MISSING)
            if value is MISSING:
                if depth == 1 and not _BY_DEFAULT.isdisjoint(names) and _root(space) not in _OF_TORCH:
                    self.variables[id(space), name] = space
            elif not isinstance(value, types.ModuleType):
                if name not in SHARED_HOOKS:  # which the walk compares
                    self.variables[id(space), name] = space
            elif depth < _PARTS_MAX and (depth == 0 or value.__name__ == f"{space.get('__name__')}.{name}"):
                self.variables[id(space), name] = space
                if _whose.is_library_module(value):
                    inner = vars(value)
                    self._take(inner, list(inner) if whole else attributes, attributes, depth + 1)


class Variables:
    """Those that a step's calls have read so far, and what was in them after the last recorded call."""

    def __init__(self) -> None:
        self._spaces: dict[tuple[int, str], Space] = {}
        self._names = {True: Names(), False: Names()}
        self._changes = Counter[Address]()
        self._changed: dict[int, object] = {}  # what has, alive, so that identities stay their own
        self._values: list[Values] = []
        self._others: list[Values] = []
        self._guards: native.Guards | None = None

    def begin(self) -> None:
        """A call is about to be recorded."""
        for one in self._values:
            one.begin()

    def learn(self, seen: Seen) -> str:
        """After a recorded call. What that has drawn from, if it was a random generator or an iterator."""
        moved = next((one.name for one in self._values if one.has_moved()), "")
        self._count(place for one in self._values for place in one.changed())
        self._spaces |= seen.variables
        for of_torch, names in seen.names.items():
            self._names[of_torch].join(names)
        self._look()
        return moved

    def changed(self) -> str:
        """What of them is no longer what it was; empty: nothing is. It is that from now on."""
        if self._guards is None or (self._guards.hold() and all(one.others_hold() for one in self._others)):
            return ""
        name = next((one.name for one in self._values if one.changed()), "")
        self._count(place for one in self._values for place in one.grown())
        self._look()
        return name

    def _count(self, places: Iterable[Place]) -> None:
        found = {(id(of), key): of for of, key in places}
        self._changed.update((id(of), of) for of in found.values())
        self._changes.update(found.keys())

    def _look(self) -> None:
        left_out = {address for address, count in self._changes.items() if count >= _CHANGES_MAX}
        met: dict[int, tuple[int, object]] = {}
        self._values = []
        for (_, name), space in self._spaces.items():
            names = self._names[_root(space) in _OF_TORCH]
            self._values.append(Values(space, name, names, _root(space) in _OF_TORCH, left_out, met))
        parts = self._values
        self._others = [one for one in parts if one.has_others()]
        self._guards = native.Guards(
            [link for one in parts for link in one.links],
            [],
            [size for one in parts for size in one.sizes],
            [function for one in parts for function in one.functions],
        )


def _root(space: Mapping[str, object]) -> str:
    return str(space.get("__name__", "")).partition(".")[0]
