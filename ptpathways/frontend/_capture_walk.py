"""Walks what a training step can reach: from its function's closure, the globals it names, and its arguments.

Modules, optimizers, tensors, containers, functions and the user's own objects are looked into. Of anything else it is
noted which object it is.
"""

from __future__ import annotations

import argparse
import builtins
import collections
import dataclasses
import enum
import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from ptpathways import native
from ptpathways.frontend import _capture_code as _code
from ptpathways.frontend import _locator
from ptpathways.frontend._capture_state import (
    PLAIN,
    CellView,
    Contents,
    ItemView,
    Link,
    Same,
    SlotView,
    Surroundings,
    Watched,
    contents_of,
    floats,
    hooks_of,
    is_plain,
    is_setting,
    members_of,
    position_of,
)

_DEPTH_MAX = 16
_ITEMS_MAX = 10_000
_CALLED = frozenset({"forward", "backward", "setup_context"})
"""Methods, beside those of operators, that are called without being named."""
_BY_TEXT = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple", "attrgetter", "methodcaller"})
"""Ways to an attribute that do not mention its name."""
_GLOBALS_BY_TEXT = frozenset({"globals", "eval", "exec", "vars"})
"""Ways to a global variable that do not name it in the code."""
_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
)
"""Of all modules."""
_FIRST_FORWARD = "_global_forward_pre_hooks"
"""Where a hook of ours comes and goes."""
_WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_SCHEDULERS = frozenset({"initial_lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum"})
"""What schedulers of torch note in an optimizer's groups for themselves; a step that computes with it names it."""
_OPTIMIZER_METHODS = ("step", "zero_grad")
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)


def walk(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Surroundings:
    """Everything that a call ``function(*args, **kwargs)`` can reach; tensors among the arguments are not state."""
    from torch.utils import _pytree as pytree

    walker = _Walker(home=_code.file_of(function))
    walker.visit("", function, 0)
    walker.containers((args, kwargs))
    for number, value in enumerate(pytree.tree_leaves((args, kwargs))):
        if not isinstance(value, walker.tensor_type) and not is_setting(value):
            walker.visit(f"argument {number}", value, 0)
    return walker.finish()


def reaches(function: Callable[..., Any], kinds: tuple[type, ...]) -> bool:
    """Whether ``function``, or the user's code that it names, refers to an object of one of ``kinds``."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    walker = _Walker(kinds, code.co_filename if code is not None else "")  # which is "<stdin>" at a prompt
    walker.visit("", function, 0)
    return walker.met


class _Walker:
    def __init__(self, wanted: tuple[type, ...] = (), home: str = "") -> None:
        """``home``: a file that is the user's wherever it lies."""
        import torch

        self.home = home

        self._torch = torch
        self.tensor_type = torch.Tensor
        self._wanted = wanted
        self.met = False
        self.found = Surroundings()
        self._seen: dict[int, Any] = {}  # keeps what it has seen alive, so that ids stay their own
        self._names: dict[int, str] = {}
        self._mentioned: set[str] = set(_CALLED)
        self._classes: dict[type, bool] = {}  # the user's, and whether code names them, so that it may make objects
        self._noted: list[tuple[str, dict[str, Any], str]] = []  # what schedulers note in groups of optimizers
        self._records: list[tuple[str, dict[str, Any], tuple[str, ...], int]] = []  # objects, by what they consist of
        self._hiding: list[tuple[dict[str, Any], type]] = []  # attributes of objects, which hide those of their class
        # Methods that are running now, which call the step: a loop that is called `train` is not what the step means by
        # `model.train()`. Should the step call one, it runs what was not looked into, and is told.
        self._callers = _code.running()
        self._own_private = frozenset(vars(torch.nn.Module())) - {"training"}
        self._layers: set[type] = set()

    def finish(self) -> Surroundings:
        self._visit_classes()
        for name, group, key in self._noted:
            if self._is_mentioned(key):
                self.found.settings[name] = (group, key, group[key])
        for name, tensor in list(self.found.tensors.items()):
            if tensor.is_leaf and (tensor.requires_grad or tensor.grad is not None):
                self.found.parameters[name] = tensor
                if tensor.grad is not None:
                    self._tensor(f"{name}.grad", tensor.grad)
        return self.found

    def containers(self, value: Any) -> None:
        """Of the arguments: they may have methods of the user's."""
        if not isinstance(value, list | tuple | dict):
            return
        self._container(type(value))
        for item in value.values() if isinstance(value, dict) else value:
            self.containers(item)

    def _container(self, kind: type) -> None:
        if kind not in (list, tuple, dict) and _code.is_own(kind.__module__, self.home):
            self._classes.setdefault(kind, False)

    def visit(self, name: str, value: Any, depth: int) -> None:
        torch = self._torch
        if isinstance(value, self._wanted):
            self.met = True
            return
        if isinstance(value, torch.Tensor):
            self._tensor(name, value, state=False)
            return
        if is_setting(value):
            return
        if isinstance(value, enum.Enum):
            self._kind(name, Same(value))
            return
        if isinstance(value, type):
            self._kind(name, Same(value))
            if _code.is_own(value.__module__, self.home):
                self._classes[value] = True
            return
        if id(value) in self._seen:
            self._alias(name, value)
            return
        if depth > _DEPTH_MAX or isinstance(value, types.ModuleType):
            self._kind(name, Same(value))
            return
        self._seen[id(value)] = value
        self._names[id(value)] = name
        self.found.compared[id(value)] = value
        if isinstance(value, torch.nn.Module):
            self._module(name, value, depth)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizer(name, value, depth)
        elif isinstance(value, torch.optim.lr_scheduler.LRScheduler):
            self._scheduler(name, value, depth)
        elif isinstance(value, types.FunctionType):
            self._function(name, value, depth)
        elif isinstance(value, types.MethodType):
            self.visit(name or "self", value.__self__, depth + 1)
            self.visit(name, value.__func__, depth + 1)
        elif isinstance(value, functools.partial):
            self._kind(name, functools.partial)
            self.visit(f"{name}.func", value.func, depth + 1)
            self._items(name, enumerate(value.args), depth, value.args)
            self._mapping(name, value.keywords, depth)
        elif isinstance(value, dict):
            self._container(type(value))
            self._mapping(name, value, depth)
            self._own_attributes(name, value, depth)
        elif isinstance(value, (collections.UserDict, *_WEAK)):
            self._kind(name, type(value))
            self._mapping(name, vars(value)["data"], depth)
            self._own_attributes(name, value, depth)
        elif isinstance(value, collections.UserList):
            self._kind(name, type(value))
            self.visit(f"{name}.data", value.data, depth + 1)
            self._own_attributes(name, value, depth)
        elif isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            self._kind(name, value.__name__)
            if not isinstance(value.__self__, types.ModuleType | type | None):
                self.visit(f"{name}.__self__", value.__self__, depth + 1)
        elif isinstance(value, list | tuple):
            self._container(type(value))
            self._kind(name, type(value))
            if isinstance(value, list):
                self.found.sequences.append(Watched(value, tuple(value), name))
            self._items(name, enumerate(value), depth, value)
            self._own_attributes(name, value, depth)
        elif isinstance(value, weakref.ref):
            self._kind(name, type(value))
            of = value()
            if isinstance(of, torch.Tensor) and not native.owns_its_tensor(of):
                of = None  # only autograd has it, and one of its threads may be letting it go
            self.visit(f"{name}()", of, depth + 1)
        elif (contents := contents_of(value)) is not None:
            self.found.contents.append(Watched(value, contents, name))
            self._kind(name, (type(value), Contents(contents)))
            for place, member in enumerate(members_of(value)):
                if place < _ITEMS_MAX and not is_setting(member):
                    self.visit(f"{name}[{place}]", member, depth + 1)
            if isinstance(value, functools._lru_cache_wrapper):
                self.visit(name, value.__wrapped__, depth + 1)
        elif isinstance(value, _NAMESPACES) or (_code.is_users(type(value), self.home) and _code.has_attributes(value)):
            self._object(name, value, depth)
        else:
            position = position_of(value)
            if position is not None:
                self.found.moving.append(Watched(value, position, name))
            else:
                del self.found.compared[id(value)]
            self._kind(name, Same(value))
            wrapped = getattr(value, "__wrapped__", None)  # another captured step
            if isinstance(wrapped, types.FunctionType | types.MethodType):
                self.visit(name, wrapped, depth + 1)

    def _own_attributes(self, name: str, value: Any, depth: int) -> None:
        """Of a container of a class of somebody's, or of a tensor."""
        attributes = getattr(value, "__dict__", None)
        if attributes is not None:
            self.found.sizes.append(Watched(attributes, len(attributes), f"{name}.__dict__"))
            self._mapping(name, attributes, depth, attributes=True)

    def _kind(self, name: str, kind: Any) -> None:
        while name in self.found.kinds:  # a method has the name of what it is bound to
            name += "()"
        self.found.kinds[name] = kind

    def _alias(self, name: str, value: Any) -> None:
        known = self._names.get(id(value))
        if known is not None and known != name:
            self._kind(name, ("the same as", known))

    def _tensor(self, name: str, tensor: Any, state: bool = True) -> None:
        """``state``: of an optimizer, or a gradient; nobody trains that, and nobody replaces it unnoticed."""
        if id(tensor) in self._seen:
            self._alias(name, tensor)
            return
        self._seen[id(tensor)] = tensor
        self._names[id(tensor)] = name
        if tensor.device.type == "xla":
            self.found.tensors[name] = tensor
            if not state and tensor.is_leaf:
                self.found.trainable[name] = tensor
        else:
            version = 0 if tensor.is_inference() else tensor._version
            if not state:
                self._kind(name, (Same(tensor), version))
            if not tensor.is_inference():
                self.found.versions.append(Watched(tensor, version, name))
        if not state:
            self._tensor_hooks(name, tensor)
            self._own_attributes(name, tensor, 1)

    def _tensor_hooks(self, name: str, tensor: Any) -> None:
        self.found.hooked.append(Watched(tensor, hooks_of(tensor), name))
        for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            for place, hook in enumerate((getattr(tensor, kind) or {}).values()):
                self.visit(f"{name}.{kind}[{place}]", hook, 1)

    def _link(self, name: str, mapping: Any, key: Any, value: Any, depth: int) -> None:
        """One way on from here: a setting, or something to walk into."""
        if is_setting(value):
            self.found.settings[name] = (mapping, key, value)
            return
        links = self.found.links if isinstance(mapping, dict) else self.found.members
        links.append(Link(mapping, key, value, name))
        self.visit(name, value, depth + 1)

    def _items(self, name: str, items: Any, depth: int, sequence: Any = ()) -> None:
        """``sequence``: what those items are in whose keys are numbers."""
        view = ItemView(sequence)
        for place, (key, value) in enumerate(items):
            if place >= _ITEMS_MAX:
                self._kind(f"{name}[{place}:]", tuple(v if is_plain(v) else Same(v) for v in [*sequence][place:]))
                return
            where = f"{name}[{key}]"
            if isinstance(sequence, list):
                self.found.items.add(where)
            if is_setting(value) and isinstance(key, int):
                self.found.settings[where] = (view, key, value)
            elif is_setting(value):
                self._kind(where, (type(value), value))
            else:
                self.visit(where, value, depth + 1)

    def _mapping(self, name: str, mapping: dict[Any, Any], depth: int, attributes: bool = False) -> None:
        if not attributes:
            self.found.sizes.append(Watched(mapping, len(mapping), name))
            self.found.orders.append(Watched(mapping, tuple(mapping), name))
            self._kind(f"the keys of {name}", tuple(key if is_plain(key) else Same(key) for key in mapping))
        for place, (key, value) in enumerate(list(mapping.items())):
            if isinstance(key, PLAIN):
                where = f"{name}.{key!s}" if attributes else f"{name}[{key!r}]"
            else:
                where = f"{name}[key {place}, a {type(key).__qualname__}]"
            self._link(where, mapping, key, value, depth)

    def _object(self, name: str, value: Any, depth: int) -> None:
        self._kind(name, type(value))
        if not hasattr(type(value), "__next__") and (position := position_of(value)) is not None:
            self.found.moving.append(Watched(value, position, name))
        slots = [slot for base in type(value).__mro__ for slot in _code.slots(base)]
        if slots:
            view = SlotView(value)
            for slot in slots:
                if hasattr(value, slot):
                    self._link(f"{name}.{slot}", view, slot, getattr(value, slot), depth)
                else:
                    self.found.members.append(Link(view, slot, None, f"{name}.{slot}"))
        self._instance(name, value)
        attributes = getattr(value, "__dict__", {})
        if _code.is_own(type(value).__module__, self.home):
            self._classes.setdefault(type(value), False)
            if dataclasses.is_dataclass(value):  # Python has written methods that use all of it
                self._mentioned.update(one.name for one in dataclasses.fields(value))
            if all(base is object or self._is_plain_base(base) for base in type(value).__mro__):
                self._records.append((name, attributes, tuple(attributes), depth))
                self._hiding.append((attributes, type(value)))
                return
        self._mapping(name, attributes, depth, attributes=True)
        if type(value) in self._classes:
            return
        call = inspect.getattr_static(type(value), "__call__", None)
        if isinstance(call, types.FunctionType):
            self.visit(name, call, depth + 1)

    def _instance(self, name: str, value: Any) -> None:
        """That it keeps its class and its attributes' dictionary, and gets no further attribute: code may ask for one
        that is not there."""
        view = SlotView(value)
        self.found.members.append(Link(view, "__class__", type(value), f"{name}.__class__"))
        attributes = getattr(value, "__dict__", None)
        if attributes is not None:
            self.found.members.append(Link(view, "__dict__", attributes, f"{name}.__dict__"))
            self.found.sizes.append(Watched(attributes, len(attributes), f"{name}.__dict__"))

    def _is_plain_base(self, base: type) -> bool:
        """Whether the methods of a class are walked, so that it is known which attributes they use."""
        return base.__module__ in ("abc", "typing") or _code.is_own(base.__module__, self.home)

    def _function(self, name: str, function: types.FunctionType, depth: int) -> None:
        code = function.__code__
        if code.co_filename != self.home and _locator.is_library(code.co_filename):
            self._kind(name, Same(function))
            wrapped = getattr(function, "__wrapped__", None)  # torch.no_grad, torch.autocast
            if wrapped is not None:
                self.visit(name, wrapped, depth + 1)
            registry = getattr(function, "registry", None)  # functools.singledispatch
            if isinstance(registry, types.MappingProxyType):
                self.found.sizes.append(Watched(registry, len(registry), f"{name}.registry"))
                for kind, one in registry.items():
                    where = f"{name}.registry[{kind.__qualname__}]"
                    self.found.members.append(Link(registry, kind, one, where))
                    self.visit(where, one, depth + 1)
            return
        self._kind(name, Same(code))
        self.found.codes.add(code)
        prefix = f"{name}." if name else ""
        view = SlotView(function)
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            self.found.members.append(Link(view, part, getattr(function, part), f"{prefix}{part}"))
        self._items(f"{prefix}default", enumerate(function.__defaults__ or ()), depth, function.__defaults__ or ())
        for key, value in (function.__kwdefaults__ or {}).items():
            self._link(f"{prefix}default[{key}]", function.__kwdefaults__, key, value, depth)
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not yet assigned
                continue
            self._link(prefix + variable, CellView(cell), variable, value, depth)
        names = _code.all_names(code)
        self._mentioned.update(names)
        attributes = vars(function)
        self._records.append((name or "the function", attributes, tuple(attributes), depth))
        self.found.sizes.append(Watched(attributes, len(attributes), f"{name or 'the function'}.__dict__"))
        variables = _code.global_names(code) if _GLOBALS_BY_TEXT.isdisjoint(names) else names
        self._space(prefix, function.__globals__, variables, names, depth, absent=True)
        for imported in _code.imported_names(code):
            module = sys.modules.get(imported)
            if module is not None and _code.is_own(imported, self.home):
                self._space(f"{prefix}{imported}.", vars(module), names, names, depth + 1)
            elif module is not None:
                self._library(f"{prefix}{imported}.", vars(module), names)

    def _space(
        self,
        prefix: str,
        space: dict[str, Any],
        names: tuple[str, ...],
        attributes: tuple[str, ...],
        depth: int,
        absent: bool = False,
    ) -> None:
        """The variables of a module that code names, and ``attributes`` of the user's modules among them. ``absent``:
        those that are not there must not come."""
        for name in names:
            if absent and name not in space and not hasattr(builtins, name):
                self.found.absent.append((space, name))
            if name not in space or depth > _DEPTH_MAX:
                continue
            value = space[name]
            self._link(prefix + name, space, name, value, depth)
            if not isinstance(value, types.ModuleType) or vars(value) is space:
                continue
            if _code.is_own(value.__name__, self.home):
                self._space(f"{prefix}{name}.", vars(value), attributes, attributes, depth + 1)
            else:
                self._library(f"{prefix}{name}.", vars(value), attributes)

    def _library(self, prefix: str, space: dict[str, Any], names: tuple[str, ...]) -> None:
        """What a library's module has under names that the code mentions: somebody may put something else there."""
        for name in names:
            value = space.get(name)
            if callable(value) and not isinstance(value, type):
                self.found.links.append(Link(space, name, value, prefix + name))
                if prefix + name not in self.found.kinds:
                    self._kind(prefix + name, Same(value))

    def _visit_classes(self) -> None:
        """The methods of the user's classes, and the attributes of their objects, that the code mentions. Any code may:
        a loop's history that hangs on the same object as the step is none of the step's business."""
        done: set[tuple[int, str]] = set()
        while True:
            before = len(done)
            bases = {base for kind in self._classes for base in kind.__mro__}
            made = {base for kind, named in self._classes.items() if named for base in kind.__mro__}
            own = [base for base in bases if _code.is_own(base.__module__, self.home)]
            for base in sorted(own, key=lambda base: (base.__module__, base.__qualname__)):
                for name, value in sorted(vars(base).items()):
                    called = _code.is_operator(name, value) or (base in made and name in _code.CONSTRUCTORS)
                    if getattr(value, "__code__", None) in self._callers:
                        continue
                    if (id(base), name) not in done and (called or self._is_mentioned(name)):
                        done.add((id(base), name))
                        self._member(f"{base.__qualname__}.{name}", base, name, value)
            for place, (where, attributes, names, depth) in enumerate(self._records):
                for name in names:
                    if (place, name) not in done and self._is_mentioned(name):
                        done.add((place, name))
                        self._link(f"{where}.{name}", attributes, name, attributes[name], depth)
            if len(done) == before:
                break
        self.found.sizes += [Watched(vars(base), len(vars(base)), base.__qualname__) for base in own]
        for attributes, kind in self._hiding:
            inherited = {name for base in kind.__mro__ for name in vars(base)}
            absent = [name for name in inherited - set(attributes) if self._is_mentioned(name)]
            self.found.absent += [(attributes, name) for name in absent]

    def _is_mentioned(self, name: str) -> bool:
        return name in self._mentioned or not self._mentioned.isdisjoint(_BY_TEXT)

    def _member(self, where: str, base: type, name: str, value: Any) -> None:
        self._link(where, vars(base), name, value, 0)
        for part in ("__func__", "fget", "fset", "fdel", "func"):  # static methods, properties, cached ones
            inner = getattr(value, part, None)
            if isinstance(inner, types.FunctionType):
                self.visit(where, inner, 0)

    def _scheduler(self, name: str, scheduler: Any, depth: int) -> None:
        """Where it is: a step that takes one of its steps counts there."""
        self._kind(name, type(scheduler))
        for key, value in vars(scheduler).items():
            if is_setting(value):
                self.found.settings[f"{name}.{key}"] = (vars(scheduler), key, value)
        self.visit(f"{name}.optimizer", scheduler.optimizer, depth + 1)

    def _module(self, name: str, module: Any, depth: int) -> None:
        for path, part in module.named_modules(remove_duplicate=True):
            where = f"{name}.{path}" if path else name
            if part is not module and id(part) in self._seen:
                self._alias(where, part)
                continue
            self._seen[id(part)] = part
            self._names.setdefault(id(part), where)
            self._kind(where, type(part))
            self._layer(type(part))
            self.found.compared[id(part)] = part
            self.found.sizes.append(Watched(vars(part), len(vars(part)), f"{where}.__dict__"))
            if _code.is_own(type(part).__module__, self.home):
                self._classes.setdefault(type(part), False)
            for tensors in (part._parameters, part._buffers):
                for key, tensor in tensors.items():
                    self.found.links.append(Link(tensors, key, tensor, f"{where}.{key}"))
                    if tensor is not None:
                        self._tensor(f"{where}.{key}", tensor, state=False)
            if not _code.uses_what_it_has(type(part)):
                children: tuple[dict[str, Any], ...] = (part._parameters, part._buffers, part._modules)
                self.found.sizes += [Watched(container, len(container), where) for container in children]
            for key, child in part._modules.items():
                self.found.links.append(Link(part._modules, key, child, f"{where}.{key}"))
            if type(part) in self._classes:
                self._hiding.append((vars(part), type(part)))
            self._hooks(where, vars(part), _HOOKS, depth)
            for key, value in vars(part).items():
                if key in self._own_private:
                    continue
                if isinstance(value, list | dict) and type(part) in self._classes:
                    self._records.append((where, vars(part), (key,), depth))
                else:
                    self._attribute(f"{where}.{key}", vars(part), key, value, depth)

    def _layer(self, kind: type) -> None:
        """Somebody may put another method into a class of torch's, or a hook for all modules."""
        if not self._layers:
            self._hooks("torch.nn.Module", vars(self._torch.nn.modules.module), _GLOBAL_HOOKS, 0)
            space = vars(self._torch.nn.functional)
            self._library("torch.nn.functional.", space, tuple(name for name in space if not name.startswith("_")))
        self._methods(kind, ("forward", "__call__"))

    def _methods(self, kind: type, names: tuple[str, ...]) -> None:
        """Those of a class, its own or inherited, are what they are."""
        if kind in self._layers:
            return
        self._layers.add(kind)
        for name in names:
            value = getattr(kind, name, None)
            where = f"{kind.__qualname__}.{name}"
            self.found.members.append(Link(SlotView(kind), name, value, where))
            self._kind(where, Same(value))

    def _attribute(self, name: str, mapping: Any, key: str, value: Any, depth: int) -> None:
        """Of a module. What an installed package keeps there is looked into only if it is a record of settings: a
        trainer has counters that change at each step."""
        kind = type(value)
        if not hasattr(value, "__dict__") or isinstance(value, type | types.FunctionType | types.ModuleType):
            record = True
        elif _code.is_users(kind, self.home) and not _code.is_own(kind.__module__, self.home):
            record = all(is_setting(item) or isinstance(item, list | tuple | dict) for item in vars(value).values())
        else:
            record = True
        if record:
            self._link(name, mapping, key, value, depth)
        else:
            self.found.links.append(Link(mapping, key, value, name))
            self._kind(name, Same(value))

    def _hooks(self, name: str, attributes: Mapping[str, Any], kinds: tuple[str, ...], depth: int) -> None:
        for kind in kinds:
            hooks = attributes.get(kind)
            if isinstance(hooks, dict):
                users = [(key, hook) for key, hook in hooks.items() if not _is_ours(hook)]
                if kind != _FIRST_FORWARD or len(users) == len(hooks):
                    self.found.sizes.append(Watched(hooks, len(hooks), f"{name}.{kind}"))
                for place, (key, hook) in enumerate(users):
                    self._link(f"{name}.{kind}[{place}]", hooks, key, hook, depth)

    def _optimizer(self, name: str, optimizer: Any, depth: int) -> None:
        self._kind(name, type(optimizer))
        if not self.found.optimizers:
            hooks = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
            self._hooks("torch.optim.Optimizer", vars(sys.modules["torch.optim.optimizer"]), hooks, depth)
            self._methods(self._torch.Tensor, ("backward",))
        self.found.optimizers.append(optimizer)
        self._methods(type(optimizer), _OPTIMIZER_METHODS)
        for key in _OPTIMIZER_METHODS:  # a scheduler puts its own step there
            if key in vars(optimizer):
                self._link(f"{name}.{key}", vars(optimizer), key, vars(optimizer)[key], depth)
            else:
                self.found.absent.append((vars(optimizer), key))
        if _code.is_own(type(optimizer).__module__, self.home):
            self._classes.setdefault(type(optimizer), False)
            for key, value in vars(optimizer).items():
                if not key.startswith("_") and key not in ("defaults", "state", "param_groups"):
                    self._link(f"{name}.{key}", vars(optimizer), key, value, depth)
        self._hooks(name, vars(optimizer), ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"), depth)
        for key in ("state", "param_groups"):
            self.found.links.append(Link(vars(optimizer), key, vars(optimizer)[key], f"{name}.{key}"))
        groups = f"{name}.param_groups"
        self.found.sequences.append(Watched(optimizer.param_groups, tuple(optimizer.param_groups), groups))
        self.found.sizes.append(Watched(optimizer.state, len(optimizer.state), f"{name}.state"))
        for number, group in enumerate(optimizer.param_groups):
            where = f"{name}.{number}"
            for key, value in group.items():
                if key in _SCHEDULERS:
                    if is_setting(value):
                        self._noted.append((f"{where}.{key}", group, key))
                    continue
                if key == "params":
                    self.found.sequences.append(Watched(value, tuple(value), f"{where}.params"))
                    self._items(where, enumerate(value), depth)
                elif isinstance(value, self._torch.Tensor):
                    self.found.links.append(Link(group, key, value, f"{where}.{key}"))
                    self._tensor(f"{where}.{key}", value)
                    if value.device.type == "cpu" and value.dim() == 0:
                        self.found.options[f"{where}.{key}"] = (group, key)
                elif isinstance(value, list | dict):
                    self._link(f"{where}.{key}", group, key, value, depth)
                elif any(True for _ in floats(value)):
                    self.found.options[f"{where}.{key}"] = (group, key)
                elif is_setting(value):
                    self.found.settings[f"{where}.{key}"] = (group, key, value)
        for number, (parameter, slots) in enumerate(optimizer.state.items()):
            self.found.links.append(Link(optimizer.state, parameter, slots, f"{name}.state[{number}]"))
            for key, value in slots.items():
                where = f"{name}.state[{number}].{key}"
                if isinstance(value, self._torch.Tensor):
                    self.found.links.append(Link(slots, key, value, where))
                    self._tensor(where, value)
                elif is_setting(value):
                    self.found.settings[where] = (slots, key, value)


def _is_ours(hook: Any) -> bool:
    """Whether a hook for all modules or optimizers is one of this package, which come and go."""
    return str(getattr(hook, "__module__", "")).partition(".")[0] == "ptpathways"
