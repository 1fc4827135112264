"""What a walk looks at only if the code mentions it: methods of the user's classes and attributes of objects."""

from __future__ import annotations

import abc
import decimal
import enum
import gc
import types
import weakref
from collections.abc import Collection, Iterable, Mapping
from inspect import getattr_static
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.capture.objects._reachable import Link, Watched
from ptpathways.frontend.capture.objects._walk_modules import ITEMS_MAX
from ptpathways.frontend.capture.python import _code, _layout, _whose
from ptpathways.frontend.capture.python._contents import Same, is_setting, registered
from ptpathways.frontend.capture.python._places import MISSING, AttributeView, ClassView, SlotView

if TYPE_CHECKING:
    from ptpathways.frontend.capture.objects._walk import Walker

_CALLED = frozenset({"forward", "backward", "setup_context", "_missing_", "get_extra_state", "set_extra_state"})
"""Methods, beside those of operators, that are called without being named."""
_USED_BY = {"__match_args__": _CALLED, "__dataclass_fields__": frozenset({"fields"})}
"""Attributes of classes that are used by code that mentions something else, or by any code."""
_BY_TEXT = (_code.BY_TEXT | _code.BY_ANY_TEXT | {"asdict", "astuple"}) - {"dir", "hasattr"}
"""Ways to an attribute that do not mention its name."""
_IN_ORDER = frozenset({"vars", "__dict__", "dir", "asdict"})
"""Ways to go through attributes in their order."""
_COMPUTED = _BY_TEXT | {"hasattr", "copy", "deepcopy", "__reduce__", "__reduce_ex__", "__getstate__"}
"""Ways to attributes of an object of an installed package whose names nothing mentions."""


class Mentioned:
    """What ``walker`` has met, and the names in the code that it has met."""

    def __init__(self, walker: Walker, used: Mapping[type, Collection[str]]) -> None:
        """``used``: what functions of installed packages mention that were given an object of a class."""
        self._walker: Walker = weakref.proxy(walker)  # no cycle, as for the objects of torch
        self._used = used
        self._all_used = frozenset[str]().union(*used.values())
        self.names: set[str] = set(_CALLED)
        """Of global variables and attributes, also as texts."""
        self.classes: dict[type, bool] = {}
        """The user's, and whether code names them, so that it may make objects."""
        self._enums: set[type] = set()
        self.records: list[tuple[str, dict[str, Any], tuple[str, ...], int]] = []
        """Objects, by what they consist of."""
        self._library_records: list[tuple[str, Any, int]] = []
        """Objects of installed packages."""
        self._library_classes: dict[type, None] = {}
        """Classes of libraries, of which attributes are what they are."""
        self.hiding: list[tuple[dict[str, Any], type]] = []
        """Attributes of objects, which hide those of their class."""
        self.attributes: list[Watched] = []
        """Of objects and classes, and their order."""
        self._done: set[tuple[Any, ...]] = set()  # what was visited
        # Methods that are running now, which call the step: a loop that is called `train` is not what the step means by
        # `model.train()`. Should the step call one, it runs what was not looked into, and is told.
        self._callers = _code.running()

    def of_class(self, name: str, kind: type, depth: int) -> None:
        """A class that is reached under ``name``."""
        walker = self._walker
        walker.kind(name, Same(kind))
        protocol = (vars(base)["_is_protocol"] for base in kind.__mro__ if "_is_protocol" in vars(base))
        if next(protocol, False):  # an instance of it has what is named there
            self.names.update(member for base in kind.__mro__ for member in _members_of(base))
        positions = getattr_static(kind, "__match_args__", ())  # which `case Kind(x)` reads without naming them
        self.names.update(positions if isinstance(positions, tuple) else ())
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
        if _whose.is_own_class(kind, walker.home):
            self.classes[kind] = True
        else:
            self.of_library_class(kind)
            walker.torch_objects.functions_of_layers(kind)
        walker.container(type(kind))

    def of_library(self, name: str, value: Any, depth: int) -> None:
        """An object of an installed package. What it counts for itself is no business of the step."""
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._walker.found.classes.append(Watched(value, type(value), name))
            self._walker.found.orders.append(Watched(attributes, tuple(attributes), f"{name}.__dict__"))
        elif not _layout.members_in_c(type(value)):  # written in C, or without anything
            return
        self._library_records.append((name, value, depth))
        self._walker.found.libraries.append(value)
        self._walker.torch_objects.functions_of_classes(type(value))
        self.of_library_class(type(value))

    def of_library_class(self, kind: type) -> None:
        """A class of a library, or one of the user's that derives from some."""
        for base in kind.__mro__:
            if base.__flags__ & _layout.MADE_BY_PYTHON and not _whose.is_own_class(base, self._walker.home):
                self._library_classes.setdefault(base)

    def is_given_to_packages(self, kind: type) -> bool:
        """Whether functions of installed packages were given an object of such a class."""
        return kind in self._used

    def visit(self) -> None:
        """Walks on into all of it that the code mentions. Any code may: a loop's history that hangs on the same object
        as the step is none of the step's business. May be called again, when more has been met."""
        before = -1
        while len(self._done) != before:
            before = len(self._done)
            for kind in list(self.classes):
                self.of_library_class(kind)
            self._visit_members_of_classes()
            self._visit_records()
            self._visit_records_of_libraries()

    def finish(self) -> None:
        """Takes in, of all that was met, that nothing comes, and in which order it is."""
        own = self._own(base for kind in self.classes for base in kind.__mro__)
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
        for kind in self._library_classes:
            dictionary = gc.get_referents(vars(kind))[0]
            of_bases = {name for base in kind.__mro__[1:] for name in vars(base)} & self.names
            self._walker.found.absent += [(dictionary, name) for name in of_bases - dictionary.keys()]
            where = f"{_whose.module_of(kind)}.{kind.__qualname__}"
            self._walker.found.sizes.append(Watched(vars(kind), len(vars(kind)), where))  # one may come
        for attributes, kind in self.hiding:
            inherited = {name for base in kind.__mro__ for name in vars(base)}
            absent = [name for name in inherited - set(attributes) if self.has(name)]
            self._walker.found.absent += [(attributes, name) for name in absent]

    def _own(self, bases: Iterable[type]) -> list[type]:
        """Those that the user has written, in an order that stays."""
        own = [base for base in dict.fromkeys(bases) if _whose.is_own_class(base, self._walker.home)]
        return sorted(own, key=lambda base: (_whose.module_of(base), base.__qualname__))

    def _visit_members_of_classes(self) -> None:
        """The methods of the user's classes that the code mentions."""
        made = {base for kind, named in self.classes.items() if named for base in kind.__mro__}
        for base in self._own(base for kind in self.classes for base in kind.__mro__):
            asked = self._asked(base) if self._is_called_by_packages(base) else ()
            whole = _whose.has_methods_of_python(base)
            for name, value in sorted(vars(base).items()):
                called = _code.is_operator(name, value) or (base in made and name in _code.CONSTRUCTORS)
                called = called or (name in _USED_BY and not _USED_BY[name].isdisjoint(self.names))
                if getattr(value, "__code__", None) in self._callers:
                    continue
                called = called or self.has(name) or ((whole or name in asked) and not name.startswith("__"))
                if (base, name) not in self._done and called:
                    self._done.add((base, name))
                    self._member(f"{base.__qualname__}.{name}", base, name, value)

    def _asked(self, kind: type) -> Collection[str]:
        """Methods of a class of the user's that functions of packages may call."""
        if not _whose.extends_layer(kind):
            return self._all_used
        return frozenset[str]().union(*(names for one, names in self._used.items() if issubclass(one, kind)))

    def _is_called_by_packages(self, kind: type) -> bool:
        """Whether a class derives from one of a package, whose functions call methods of it by names of their own."""
        return any(map(_whose.is_installed, kind.__mro__)) and not self._walker.torch_objects.has_rules_for(kind)

    def _visit_records(self) -> None:
        """The attributes that the code mentions, of objects."""
        for place, (where, attributes, names, depth) in enumerate(self.records):
            for name in names:
                if ("object", place, name) not in self._done and self.has(name):
                    self._done.add(("object", place, name))
                    self._walker.link(f"{where}.{name}", attributes, name, attributes[name], depth)

    def _visit_records_of_libraries(self) -> None:
        """Those of objects and classes of installed packages, that the step's code mentions, or theirs has used."""
        everything = not self.names.isdisjoint(_COMPUTED)
        for place, (where, of, depth) in enumerate(self._library_records):
            attributes = getattr(of, "__dict__", {})
            kind = type(of)
            for name in attribute_names(of):
                if ("library", place, name) in self._done or not isinstance(name, str):
                    continue
                computed = not _whose.is_ours(kind) and (everything or self._is_used(name, kind))
                if computed or name in self.names:
                    self._done.add(("library", place, name))
                    value = attributes[name] if name in attributes else AttributeView(of).get(name)
                    if value is MISSING or isinstance(
                        value, weakref.ref
                    ):  # such as a transform's inverse, made when it is asked for
                        continue
                    space: Any = attributes if name in attributes else AttributeView(of)
                    self._walker.link(f"{where}.{name}", space, name, value, depth)
        for kind in list(self._library_classes):
            own = gc.get_referents(vars(kind))[0]  # the dictionary itself, which guards ask fast
            for name in sorted(own if _whose.has_methods_of_python(kind) else self.names & own.keys()):
                if (kind, name) in self._done:
                    continue
                self._done.add((kind, name))
                value, where = own[name], f"{_whose.module_of(kind)}.{kind.__qualname__}.{name}"
                if isinstance(value, types.FunctionType) and kind in self._walker.torch_objects.known:
                    continue
                if is_setting(value):
                    self._walker.link(where, ClassView(kind), name, value, 0)
                else:
                    self._walker.found.links.append(Link(own, name, value, where))
                    self._walker.kind(where, Same(value))

    def _is_used(self, name: str, kind: type) -> bool:
        """Whether a function of an installed package uses the attribute of an object of such a class."""
        return name in self._all_used or not _BY_TEXT.isdisjoint(self._used.get(kind, ()))

    def has(self, name: str) -> bool:
        return name in self.names or not self.names.isdisjoint(_BY_TEXT)

    def _member(self, where: str, base: type, name: str, value: Any) -> None:
        self._walker.link(where, ClassView(base), name, value, 0)
        for part in ("__func__", "fget", "fset", "fdel", "func"):  # static methods, properties, cached ones
            inner = getattr(value, part, None)
            if isinstance(inner, types.FunctionType):
                self._walker.visit(where, inner, 0)


def _members_of(protocol: type) -> set[str]:
    """What an object must have to be an instance of a protocol, of what one class says."""
    annotations = vars(protocol).get("__annotations__", {})
    return {*vars(protocol), *annotations} - {"__annotations__"}


def attribute_names(value: Any) -> list[str]:
    """Of the attributes of an object, also of those in slots or in C."""
    return [*getattr(value, "__dict__", {}), *_layout.members_in_c(type(value))]
