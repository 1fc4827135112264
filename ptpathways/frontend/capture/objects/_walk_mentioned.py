"""What a walk looks at only if the code mentions it: methods of the user's classes and attributes of objects."""

from __future__ import annotations

import abc
import decimal
import enum
import types
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ptpathways.frontend.capture.objects import _code
from ptpathways.frontend.capture.objects._contents import Same, is_setting, registered
from ptpathways.frontend.capture.objects._reachable import ClassView, Link, SlotView, Watched
from ptpathways.frontend.capture.objects._walk_modules import DEPTH_MAX, ITEMS_MAX

if TYPE_CHECKING:
    from ptpathways.frontend.capture.objects._walk import Walker

_CALLED = frozenset({"forward", "backward", "setup_context"})
"""Methods, beside those of operators, that are called without being named."""
_BY_TEXT = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple", "attrgetter", "methodcaller"})
"""Ways to an attribute that do not mention its name."""
_IN_ORDER = frozenset({"vars", "__dict__", "dir", "asdict"})
"""Ways to go through attributes in their order."""


class Mentioned:
    """What ``walker`` has met, and the names in the code that it has met."""

    def __init__(self, walker: Walker) -> None:
        self._walker: Walker = weakref.proxy(walker)  # no cycle, as for the objects of torch
        self.names: set[str] = set(_CALLED)
        """Of global variables and attributes, also as texts."""
        self.read: set[str] = set()
        """Of attributes that are read, and not called."""
        self.classes: dict[type, bool] = {}
        """The user's, and whether code names them, so that it may make objects."""
        self._enums: set[type] = set()
        self.records: list[tuple[str, dict[str, Any], tuple[str, ...], int]] = []
        """Objects, by what they consist of."""
        self.library_records: list[tuple[str, dict[str, Any]]] = []
        """Attributes of objects of installed packages."""
        self.hiding: list[tuple[dict[str, Any], type]] = []
        """Attributes of objects, which hide those of their class."""
        self.attributes: list[Watched] = []
        """Of objects and classes, and their order."""
        # Methods that are running now, which call the step: a loop that is called `train` is not what the step means by
        # `model.train()`. Should the step call one, it runs what was not looked into, and is told.
        self._callers = _code.running()

    def of_class(self, name: str, kind: type, depth: int) -> None:
        """A class that is reached under ``name``."""
        walker = self._walker
        walker.kind(name, Same(kind))
        if getattr(kind, "_is_protocol", False):  # an instance of it has what is named there
            self.names.update(member for base in kind.__mro__ for member in vars(base))
        if isinstance(kind, abc.ABCMeta):  # what is registered with it is an instance, too
            walker.kind(f"what is registered with {name}", frozenset(map(Same, registered(kind))))
        if kind is decimal.Decimal:
            walker.modules.context(decimal.getcontext)
        if issubclass(kind, enum.Enum) and kind not in self._enums:  # whose members can be had without naming them
            self._enums.add(kind)
            members = kind._member_map_
            walker.found.sizes.append(Watched(members, len(members), f"{name}.__members__"))
            for key, member in [*members.items()][:ITEMS_MAX]:
                walker.visit(f"{name}.{key}", member, depth + 1)
        if _code.is_own_class(kind, walker.home):
            self.classes[kind] = True
        walker.container(type(kind))

    def visit(self) -> None:
        """Walks on into all of it that the code mentions."""
        self._visit_classes()
        self._look_at_records_of_libraries()

    def _visit_classes(self) -> None:
        """The methods of the user's classes, and the attributes of their objects, that the code mentions. Any code may:
        a loop's history that hangs on the same object as the step is none of the step's business."""
        done: set[tuple[int, str]] = set()
        while True:
            before = len(done)
            bases = {base for kind in self.classes for base in kind.__mro__}
            made = {base for kind, named in self.classes.items() if named for base in kind.__mro__}
            own = [base for base in bases if _code.is_own_class(base, self._walker.home)]
            for base in sorted(own, key=lambda base: (base.__module__, base.__qualname__)):
                for name, value in sorted(vars(base).items()):
                    called = _code.is_operator(name, value) or (base in made and name in _code.CONSTRUCTORS)
                    if getattr(value, "__code__", None) in self._callers:
                        continue
                    if (id(base), name) not in done and (called or self.has(name)):
                        done.add((id(base), name))
                        self._member(f"{base.__qualname__}.{name}", base, name, value)
            for place, (where, attributes, names, depth) in enumerate(self.records):
                for name in names:
                    if (place, name) not in done and self.has(name):
                        done.add((place, name))
                        self._walker.link(f"{where}.{name}", attributes, name, attributes[name], depth)
            if len(done) == before:
                break
        for base in own:
            self._walker.found.sizes.append(Watched(vars(base), len(vars(base)), base.__qualname__))
            self._walker.found.members.append(
                Link(SlotView(base), "__mro__", base.__mro__, f"{base.__qualname__}.__mro__")
            )
            self._walker.kind(f"{base.__qualname__}.__mro__", tuple(map(Same, base.__mro__)))
            self.attributes.append(Watched(vars(base), tuple(vars(base)), base.__qualname__))
        if not self.names.isdisjoint(_IN_ORDER):
            self._walker.found.orders += self.attributes
            for one in self.attributes:
                self._walker.kind(f"the order of what is in {one.name}", one.contents)
        for attributes, kind in self.hiding:
            inherited = {name for base in kind.__mro__ for name in vars(base)}
            absent = [name for name in inherited - set(attributes) if self.has(name)]
            self._walker.found.absent += [(attributes, name) for name in absent]

    def has(self, name: str) -> bool:
        return name in self.names or not self.names.isdisjoint(_BY_TEXT)

    def _member(self, where: str, base: type, name: str, value: Any) -> None:
        self._walker.link(where, ClassView(base), name, value, 0)
        for part in ("__func__", "fget", "fset", "fdel", "func"):  # static methods, properties, cached ones
            inner = getattr(value, part, None)
            if isinstance(inner, types.FunctionType):
                self._walker.visit(where, inner, 0)

    def _look_at_records_of_libraries(self) -> None:
        """Numbers, texts and arrays in objects of installed packages that the code reads; what these count for
        themselves is no business of the step."""
        for where, attributes in self.library_records:
            for name in sorted(self.read & set(attributes)):
                value = attributes[name]
                if isinstance(name, str) and (is_setting(value) or isinstance(value, np.ndarray)):
                    self._walker.link(f"{where}.{name}", attributes, name, value, DEPTH_MAX - 1)
