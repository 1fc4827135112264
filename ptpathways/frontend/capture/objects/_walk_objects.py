"""What the walk looks at in objects: of the user's classes, and of libraries'."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import logging
import operator
import types
import weakref
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.capture.objects._reachable import Link, Watched
from ptpathways.frontend.capture.python import _layout, _whose
from ptpathways.frontend.capture.python._contents import PLAIN, Same, position_of
from ptpathways.frontend.capture.python._places import CellView, SlotView

if TYPE_CHECKING:
    from ptpathways.frontend.capture.objects._walk import Walker

_OF_LOGGERS = frozenset({"parent", "handlers", "manager", "filters", "root", "_cache"})
"""Attributes that lead on to where logs are written, of which a step hears nothing."""
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)


class Objects:
    """Those that ``walker`` meets."""

    def __init__(self, walker: Walker) -> None:
        self._walker: Walker = weakref.proxy(walker)  # no cycle, as for the objects of torch

    def take(self, name: str, value: Any, depth: int) -> None:
        """Takes in an object that is neither a function nor a container."""
        if isinstance(value, BaseException):
            members = SlotView(value)
            for part in ("args", "__cause__", "__context__", *_layout.members_in_c(type(value))):
                self._walker.member(f"{name}.{part}", members, part, depth)
        users = _whose.is_users(type(value), self._walker.home) and _layout.has_attributes(value)
        if users or isinstance(value, _NAMESPACES):
            self._object(name, value, depth)
        else:
            self._of_a_library(name, value, depth)

    def _of_a_library(self, name: str, value: Any, depth: int) -> None:
        """Takes in an object of a library: which one it is, and as much of what is in it as can be seen."""
        if _whose.leads_out(type(value)):
            self.cannot_look_into(name, value)
        position = position_of(value)
        if position is not None:
            self._walker.found.moving.append(Watched(value, position, name))
        else:
            del self._walker.found.compared[id(value)]
            self._walker.opaque.add(id(value))
        self._walker.kind(name, Same(value))
        if isinstance(value, operator.attrgetter | operator.methodcaller):
            texts = [text for text in value.__reduce__()[1] if isinstance(text, str)]
            self._walker.mentioned.names.update(part for text in texts for part in text.split("."))
        if isinstance(value, types.CellType):
            view = CellView(value)
            self._walker.member(f"{name}.cell_contents", view, "cell_contents", depth)
        elif _whose.is_record(type(value)):
            self._walker.mentioned.of_library_class(type(value))
            self._instance(name, value)
            self._slots(name, value, depth)
            self.own_attributes(name, value, depth)
        elif not _whose.is_installed(type(value)):
            self.mentioned_attributes(name, value, depth)
        elif _whose.is_container_of_c(type(value)):
            self.cannot_look_into(name, value)
        else:
            self._walker.mentioned.of_library(name, value, depth)
        wrapped = getattr(value, "__wrapped__", None)  # another captured step
        if isinstance(wrapped, types.FunctionType | types.MethodType):
            self._walker.visit(name, wrapped, depth + 1)

    def cannot_look_into(self, name: str, value: Any) -> None:
        self._walker.found.unknown = self._walker.found.unknown or (
            f"it reaches {name}, a {type(value).__qualname__}, and what is in it is not compared; take from it outside "
            "and pass the outcome as an argument"
        )

    def attributes_of_plain(self, name: str, value: Any, depth: int) -> None:
        """Of a number or text of a class of somebody's."""
        if type(value) in PLAIN or type(value) is tuple:
            return
        self._walker.container(type(value))
        if hasattr(value, "__dict__"):
            self.mentioned_attributes(name, value, depth)

    def mentioned_attributes(self, name: str, value: Any, depth: int) -> None:
        """Those that the code mentions, of an object that is not looked into otherwise."""
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._walker.found.sizes.append(Watched(attributes, len(attributes), f"{name}.__dict__"))
            names = tuple(key for key in attributes if not isinstance(value, logging.Logger) or key not in _OF_LOGGERS)
            self._walker.mentioned.records.append((name, attributes, names, depth))

    def own_attributes(self, name: str, value: Any, depth: int) -> None:
        """Of a container of a class of somebody's, or of a tensor."""
        attributes = getattr(value, "__dict__", None)
        if attributes is not None:
            self._walker.found.sizes.append(Watched(attributes, len(attributes), f"{name}.__dict__"))
            self._walker.mapping(name, attributes, depth, attributes=True)

    def _object(self, name: str, value: Any, depth: int) -> None:
        self._walker.kind(name, type(value))
        attributes = getattr(value, "__dict__", {})
        if not isinstance(attributes, dict) or _whose.is_container_of_c(type(value)):
            self.cannot_look_into(name, value)
            return
        known = len(self._walker.opaque)
        if not hasattr(type(value), "__next__") and (position := position_of(value)) is not None:
            self._walker.found.moving.append(Watched(value, position, name))
        self._slots(name, value, depth)
        self._instance(name, value)
        self._walker.mentioned.attributes.append(Watched(attributes, tuple(attributes), f"{name}.__dict__"))
        if _whose.is_own_class(type(value), self._walker.home):
            self._walker.mentioned.classes.setdefault(type(value), False)
            if dataclasses.is_dataclass(value):  # Python has written methods that use all of it
                self._walker.mentioned.names.update(one.name for one in dataclasses.fields(value))
            if all(base is object or self._is_plain_base(base) for base in type(value).__mro__):
                self._walker.mentioned.records.append((name, attributes, tuple(attributes), depth))
                self._walker.mentioned.hiding.append((attributes, type(value)))
                return
        self._walker.mapping(name, attributes, depth, attributes=True)
        if type(value) in self._walker.mentioned.classes:
            return
        # Part of what is in it may be written in C, as in a data frame.
        if _layout.is_made_of_c(type(value)) or len(self._walker.opaque) > known:
            self._walker.opaque.add(id(value))
            self._walker.found.compared.pop(id(value), None)
        call = inspect.getattr_static(type(value), "__call__", None)
        if isinstance(call, types.FunctionType):
            self._walker.visit(name, call, depth + 1)

    def _slots(self, name: str, value: Any, depth: int) -> None:
        view = SlotView(value)
        for slot in (slot for base in type(value).__mro__ for slot in _layout.slots(base)):
            self._walker.member(f"{name}.{slot}", view, slot, depth)

    def _instance(self, name: str, value: Any) -> None:
        """That it keeps its class and its attributes' dictionary, and gets no further attribute: code may ask for one
        that is not there."""
        view = SlotView(value)
        self._walker.found.members.append(Link(view, "__class__", type(value), f"{name}.__class__"))
        attributes = view.get("__dict__", None)  # an alias such as list[int] would give that of the class
        if attributes is not None:
            self._walker.found.members.append(Link(view, "__dict__", attributes, f"{name}.__dict__"))
            self._walker.found.sizes.append(Watched(attributes, len(attributes), f"{name}.__dict__"))

    def _is_plain_base(self, base: type) -> bool:
        """Whether the methods of a class are walked, so that it is known which attributes they use."""
        return _whose.module_of(base) in ("abc", "typing") or _whose.is_own_class(base, self._walker.home)
