"""What the walk looks at in functions: their code, and what that refers to."""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.base import _locator
from ptpathways.frontend.capture.objects._reachable import Link, Watched
from ptpathways.frontend.capture.python import _code, _whose
from ptpathways.frontend.capture.python._contents import Same, is_setting
from ptpathways.frontend.capture.python._places import CellView, SlotView

if TYPE_CHECKING:
    from ptpathways.frontend.capture.objects._walk import Walker

_OF_PARTIALS = ("func", "args", "keywords")


class Functions:
    """Those that ``walker`` meets."""

    def __init__(self, walker: Walker) -> None:
        self._walker: Walker = weakref.proxy(walker)  # no cycle, as for the objects of torch

    def take(self, name: str, value: Any, depth: int) -> bool:
        """Takes in a function, a method or a partial call; whether it was one."""
        if isinstance(value, types.FunctionType):
            self._function(name, value, depth)
        elif isinstance(value, types.MethodType):
            self._walker.visit(name or "self", value.__self__, depth + 1)
            self._walker.visit(name, value.__func__, depth + 1)
        elif isinstance(value, functools.partial):
            self._walker.kind(name, functools.partial)
            view = SlotView(value)
            self._walker.found.members += [
                Link(view, part, getattr(value, part), f"{name}.{part}") for part in _OF_PARTIALS
            ]
            self._walker.visit(f"{name}.func", value.func, depth + 1)
            self._walker.items(name, enumerate(value.args), depth, value.args)
            self._walker.mapping(name, value.keywords, depth)
            self._walker.objects.mentioned_attributes(name, value, depth)
        elif isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            self._walker.kind(name, value.__name__)
            self._walker.mentioned.names.add(value.__name__)  # such as getattr
            if not isinstance(value.__self__, types.ModuleType | type | None):
                self._walker.link(f"{name}.__self__", SlotView(value), "__self__", value.__self__, depth)
        else:
            return False
        return True

    def _function(self, name: str, function: types.FunctionType, depth: int) -> None:
        code = function.__code__
        if (
            code.co_filename != self._walker.home
            and _locator.is_library(code.co_filename)
            and not _whose.is_made_by_exec(function)
        ):
            self._walker.kind(name, Same(function))
            self._walker.objects.mentioned_attributes(name, function, depth)
            if code.co_filename.startswith("<"):  # Python has made it, as of a data class
                prefix = f"{name}." if name else ""
                self._defaults(prefix, function, depth)
                self._closure(prefix, function, depth)
            wrapped = getattr(function, "__wrapped__", None)  # torch.no_grad, torch.autocast
            if wrapped is not None:
                self._walker.visit(name, wrapped, depth + 1)
            for place, cell in enumerate(function.__closure__ or ()):
                maker = getattr(cell, "cell_contents", None)
                if maker is not None and is_setting(maker):  # as torch.optim.swa_utils.get_ema_avg_fn keeps its decay
                    variable = code.co_freevars[place]
                    self._walker.link(f"{name}.{variable}".lstrip("."), CellView(cell), variable, maker, depth)
                if isinstance(maker, contextlib.ContextDecorator):  # a function below @contextmanager, as a decorator
                    self._walker.visit(name, getattr(maker, "func", maker), depth + 1)
            registry = getattr(function, "registry", None)  # functools.singledispatch
            if isinstance(registry, types.MappingProxyType):
                self._walker.found.sizes.append(Watched(registry, len(registry), f"{name}.registry"))
                for kind, one in registry.items():
                    where = f"{name}.registry[{kind.__qualname__}]"
                    self._walker.found.members.append(Link(registry, kind, one, where))
                    self._walker.visit(where, one, depth + 1)
            return
        self._walker.kind(name, Same(code))
        self._walker.found.codes.add(code)
        prefix = f"{name}." if name else ""
        self._defaults(prefix, function, depth)
        self._closure(prefix, function, depth)
        names = _code.all_names(code)
        self._walker.mentioned.names.update(names)
        attributes = vars(function)
        self._walker.mentioned.records.append((name or "the function", attributes, tuple(attributes), depth))
        self._walker.found.sizes.append(Watched(attributes, len(attributes), f"{name or 'the function'}.__dict__"))
        self._walker.modules.of_function(prefix, function, depth)

    def _closure(self, prefix: str, function: types.FunctionType, depth: int) -> None:
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not yet assigned
                continue
            self._walker.link(prefix + variable, CellView(cell), variable, value, depth)

    def _defaults(self, prefix: str, function: types.FunctionType, depth: int) -> None:
        """Of a function's arguments, and its code."""
        view = SlotView(function)
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            self._walker.found.members.append(Link(view, part, getattr(function, part), f"{prefix}{part}"))
        self._walker.items(
            f"{prefix}default", enumerate(function.__defaults__ or ()), depth, function.__defaults__ or ()
        )
        for key, value in (function.__kwdefaults__ or {}).items():
            self._walker.link(f"{prefix}default[{key}]", function.__kwdefaults__, key, value, depth)
