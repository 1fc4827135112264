"""Walks what a training step can reach: from its function's closure, the globals it names, and its arguments.

Modules, optimizers, tensors, containers, functions and the user's own objects are looked into. Of anything else it is
noted which object it is.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import decimal
import enum
import functools
import inspect
import types
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ptpathways import native
from ptpathways.frontend.capture.objects._reachable import (
    Link,
    Surroundings,
    Watched,
    free,
    hooks_of,
    of_the_cpu,
)
from ptpathways.frontend.capture.objects._walk_functions import Functions
from ptpathways.frontend.capture.objects._walk_mentioned import Mentioned
from ptpathways.frontend.capture.objects._walk_modules import DEPTH_MAX, ITEMS_MAX, SHALLOW, Modules
from ptpathways.frontend.capture.objects._walk_objects import Objects
from ptpathways.frontend.capture.objects._walk_torch import TorchObjects
from ptpathways.frontend.capture.python import _code, _whose
from ptpathways.frontend.capture.python._contents import (
    PLAIN,
    Contents,
    Same,
    contents_of,
    flushes_denormals,
    is_setting,
    mapping_of,
    member_key,
    members_of,
    object_key,
    setting_key,
)
from ptpathways.frontend.capture.python._places import MISSING, ItemView, SlotView, View, are_one, elements, items

_WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_NOT_COMPARED = {
    "_version": "how often tensors were written is",
    "initial_seed": "seeds of random generators are",
    "get_rng_state": "states of random generators are",
    "getstate": "states of random generators are",
    "get_state": "states of random generators are",
    "bit_generator": "states of random generators are",
    "clone_state": "states of random generators are",
    "jumped": "states of random generators are",
    "length_hint": "how far iterators are is",
    "__length_hint__": "how far iterators are is",
    "getweakrefcount": "how many weak references there are is",
    "getweakrefs": "which weak references there are is",
    "getrefcount": "how many references there are is",
    "__annotations__": "annotations are",
    "get_type_hints": "annotations are",
    "_getframe": "what frames have is",
    "currentframe": "what frames have is",
}
"""What functions of these names tell, of which nothing says that it has changed."""
_SHOWING = frozenset({"__copy__", "__deepcopy__", "__reduce__", "__repr__", "copy", "deepcopy", "repr", "str", "tee"})
"""Functions that tell how far an iterator is without moving it."""


def walk(
    function: Callable[..., Any],
    arguments: Any,
    leaves: Sequence[Any] = (),
    opened: Iterable[Any] = (),
    used: Mapping[type, Collection[str]] = MappingProxyType({}),
) -> Surroundings:
    """Everything that a call of ``function`` can reach; tensors among the arguments are not state.

    ``leaves`` are those of the arguments, and ``opened`` the objects among them that leaves are in. ``used``: what is
    known to be used of objects of installed packages, by their classes (``Calls.used``).
    """
    walker = Walker(home=_code.file_of(function), used=used)
    walker.visit("", function, 0)
    walker.containers(arguments)
    for value in opened:
        walker.opened(value)
    for number, value in enumerate(leaves):
        if is_setting(value):
            walker.container(type(value))
        elif not isinstance(value, walker.tensor_type):
            walker.visit(f"argument {number}", value, 0)
    return walker.finish()


def reaches(function: Callable[..., Any], kinds: tuple[type, ...]) -> bool:
    """Whether ``function``, or the user's code that it names, refers to an object of one of ``kinds``."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    walker = Walker(kinds, code.co_filename if code is not None else "")  # which is "<stdin>" at a prompt
    walker.visit("", function, 0)
    return walker.met


class Walker:
    def __init__(
        self,
        wanted: tuple[type, ...] = (),
        home: str = "",
        used: Mapping[type, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """``home``: a file that is the user's wherever it lies. ``used``: as for ``walk``."""
        import torch

        self.home = home
        self._torch = torch
        self.tensor_type = torch.Tensor
        self._wanted = wanted
        self.met = False
        self.found = Surroundings()
        self.seen: dict[int, Any] = {}  # keeps what it has seen alive, so that ids stay their own
        self.names: dict[int, str] = {}
        self._taken: set[str] = set()
        self.noted: list[tuple[str, dict[str, Any], str]] = []  # what schedulers note in groups of optimizers
        self.library_modules: list[tuple[str, types.ModuleType]] = []  # met elsewhere than in modules
        self._asked: dict[int, set[str]] = {}  # names by module
        self.opaque: set[int] = set()  # objects that were not looked into, and those of packages that have one
        self.weak: list[tuple[str, weakref.ref[Any]]] = []
        self.mentioned = Mentioned(self, used)
        self.modules = Modules(self)
        self.objects = Objects(self)
        self._functions = Functions(self)
        self.torch_objects = TorchObjects(self)

    def finish(self) -> Surroundings:
        self.torch_objects.everywhere()
        self._look_into_modules()
        self.mentioned.visit()
        self._look_into_modules()
        self.modules.by_computed_names()
        self.mentioned.visit()
        self.mentioned.finish()
        self.torch_objects.methods_of_tensors(self.mentioned.names)
        if not self.mentioned.names.isdisjoint(("state_dict", "load_state_dict", "_non_persistent_buffers_set")):
            self.torch_objects.state_dicts()
        self._look_at_weak_references()
        self.modules.context(flushes_denormals)
        iterators = [one.name for one in self.found.moving if hasattr(type(one.of), "__next__")]
        if iterators and not self.found.unknown and not _SHOWING.isdisjoint(self.mentioned.names):
            self.found.unknown = f"it may copy or show {iterators[0]}, and how far that is is not compared"
        if "catch_warnings" in self.mentioned.names:  # which notes what the filters let through
            self.modules.context(warnings.catch_warnings)
        for name, what in _NOT_COMPARED.items():
            if name in self.mentioned.names and not self.found.unknown:
                self.found.unknown = f"it mentions {name}, and {what} not compared"
        for name, group, key in self.noted:
            if self.mentioned.has(key):
                self.setting(name, group, key, group[key])
        for name, tensor in list(self.found.tensors.items()):
            if tensor.is_leaf and (tensor.requires_grad or tensor.grad is not None):
                self.found.parameters[name] = tensor
                if tensor.grad is not None:
                    if id(tensor.grad) in self.seen:
                        self.found.shared_gradients[f"{name}.grad"] = self.names[id(tensor.grad)]
                    self.tensor(f"{name}.grad", tensor.grad)
            elif name in self.found.trainable:
                self.found.ungraded.append(tensor)
        return self.found

    def _look_into_modules(self) -> None:
        """Those that are values, as of a closure's variable: what they have under names that were not yet asked for."""
        for name, module in self.library_modules:
            asked = self._asked.setdefault(id(module), set())
            fresh = tuple(sorted(self.mentioned.names - asked))
            asked.update(fresh)
            self.modules.of_object(name, module, fresh)

    def _look_at_weak_references(self) -> None:
        """An object that is reached by one only may end between two calls, and a walk would keep it."""
        for name, reference in self.weak:
            of = reference()
            if of is None:
                continue
            if isinstance(of, self._torch.Tensor) and not native.owns_its_tensor(of):
                continue  # only autograd has it, and one of its threads may be letting it go
            if id(of) in self.seen:
                self.alias(f"{name}()", of)
            elif not self.found.unknown:
                self.found.unknown = (
                    f"it reaches {name or 'an object'} by a weak reference only, and whether that is still there is "
                    "not compared"
                )

    def containers(self, value: Any) -> None:
        """Of the arguments: they may have methods of the user's."""
        if not isinstance(value, list | tuple | dict):
            return
        self.container(type(value))
        for key in elements(value) if isinstance(value, dict) else ():
            self.container(type(key))
        for item in (item for _, item in items(value)) if isinstance(value, dict) else elements(value):
            self.containers(item)

    def opened(self, value: Any) -> None:
        """An object among the arguments of which it is compared otherwise what is in it."""
        self.found.compared[id(value)] = value
        self.container(type(value))
        self.containers(value)
        if dataclasses.is_dataclass(value):
            self.mentioned.names.update(one.name for one in dataclasses.fields(value))

    def container(self, kind: type) -> None:
        """A class whose objects hold what is looked into otherwise: it may have methods of the user's."""
        if kind not in (list, tuple, dict, *PLAIN) and _whose.is_own_class(kind, self.home):
            self.mentioned.classes.setdefault(kind, False)

    def visit(self, name: str, value: Any, depth: int) -> None:
        """Takes a value in, and what it refers to."""
        if not self._says_its_class(name, value):
            return
        if self._is_done(name, value, depth):
            return
        self.seen[id(value)] = value
        self.call(value, name)
        self.found.compared[id(value)] = value
        kinds = (self._of_torch, self._functions.take, self._container, self._compared)
        if not any(taken(name, value, depth) for taken in kinds):
            self.objects.take(name, value, depth)

    def _says_its_class(self, name: str, value: Any) -> bool:
        """Whether Python can ask an object what it is: the class may have a method for all attributes."""
        try:
            says = issubclass(type(value.__class__), type)
        except Exception:
            says = False
        if not says and not self.found.unknown:
            self.found.unknown = (
                f"it reaches {name}, and the {type(value).__qualname__}.__getattribute__ of that does not give its "
                "__class__"
            )
        return says

    def _is_done(self, name: str, value: Any, depth: int) -> bool:
        """Takes in what refers to nothing else, or was met before; whether it was that."""
        if isinstance(value, self._wanted):
            self.met = True
        elif isinstance(value, self._torch.Tensor):
            self.tensor(name, value, state=False)
        elif is_setting(value):
            self.objects.attributes_of_plain(name, value, depth)
        elif isinstance(value, enum.Enum):
            self.kind(name, Same(value))
            self.container(type(value))
            if id(value) not in self.seen:
                self.seen[id(value)] = value
                self.link(f"{name}.value", vars(value), "_value_", value._value_, depth)
                self.objects.mentioned_attributes(name, value, depth)
        elif isinstance(value, type):
            self.mentioned.of_class(name, value, depth)
        elif id(value) in self.seen:
            self.alias(name, value)
        elif isinstance(value, types.ModuleType):
            self.kind(name, Same(value))
            self.library_modules.append((name, value))
        elif depth > DEPTH_MAX:
            self.kind(name, Same(value))
            if depth < SHALLOW and not self.found.unknown:
                self.found.unknown = (
                    f"{name} lies more than {DEPTH_MAX} references deep, and what is in it is not compared"
                )
        else:
            return False
        return True

    def _of_torch(self, name: str, value: Any, depth: int) -> bool:
        """Takes in a module, an optimizer or a scheduler; whether it was one."""
        if isinstance(value, self._torch.nn.Module):
            self.torch_objects.module(name, value, depth)
        elif isinstance(value, self._torch.optim.Optimizer):
            self.torch_objects.optimizer(name, value, depth)
        elif isinstance(value, self._torch.optim.lr_scheduler.LRScheduler):
            self.torch_objects.scheduler(name, value, depth)
        elif isinstance(value, self._torch.utils.hooks.RemovableHandle):
            self.torch_objects.handle(name, value, depth)
        else:
            return False
        return True

    def _container(self, name: str, value: Any, depth: int) -> bool:
        """Takes in one of Python's containers whose members can be assigned; whether it was one."""
        if isinstance(value, dict):
            self.kind(name, type(value))
            if isinstance(value, collections.defaultdict):
                factory = value.default_factory
                self.link(f"{name}.default_factory", SlotView(value), "default_factory", factory, depth)
            self.container(type(value))
            self.mapping(name, value, depth)
            self.objects.own_attributes(name, value, depth)
        elif isinstance(value, collections.abc.MappingView):
            self.kind(name, type(value))
            self.visit(f"{name}.mapping", mapping_of(value), depth + 1)
        elif isinstance(value, collections.UserString):
            self.kind(name, type(value))
            self.container(type(value))
            self.objects.own_attributes(name, value, depth)
        elif isinstance(value, (collections.UserDict, *_WEAK)):
            self.kind(name, type(value))
            self.container(type(value))
            self.mapping(name, vars(value)["data"], depth)
            self.objects.own_attributes(name, value, depth)
        elif isinstance(value, collections.UserList | weakref.WeakSet):
            self.kind(name, type(value))
            self.container(type(value))
            self.visit(f"{name}.data", vars(value)["data"], depth + 1)
            if isinstance(value, collections.UserList):
                self.objects.own_attributes(name, value, depth)
        elif isinstance(value, list | tuple):
            self.container(type(value))
            self.kind(name, type(value))
            if isinstance(value, list):
                self.found.sequences.append(Watched(value, tuple(elements(value)), name))
            self.items(name, enumerate(elements(value)), depth, value)
            self.objects.own_attributes(name, value, depth)
        elif isinstance(value, weakref.ref):
            self.kind(name, (type(value), value() is None))
            self.weak.append((name, value))
        else:
            return False
        return True

    def _compared(self, name: str, value: Any, depth: int) -> bool:
        """Takes in what is compared by its contents, as a set or an array of NumPy; whether it was that."""
        contents = contents_of(value)
        if contents is None:
            return False
        self.found.contents.append(Watched(value, contents, name))
        if isinstance(value, np.ndarray):
            self.modules.of_numpy()
        elif isinstance(value, decimal.Decimal):
            self.modules.context(decimal.getcontext)
        self.kind(name, (type(value), Contents(contents)))
        if _whose.leads_out(type(value)):
            self.objects.cannot_look_into(name, value)
        for place, member in enumerate(members_of(value)):
            if place < ITEMS_MAX and not is_setting(member):
                self.visit(f"{name}[{place}]", member, depth + 1)
        if isinstance(value, functools._lru_cache_wrapper):
            self.visit(name, value.__wrapped__, depth + 1)
        self.container(type(value))
        self.objects.mentioned_attributes(name, value, depth)
        return True

    def call(self, value: Any, name: str) -> None:
        """Names an object, if it has no name yet: two classes may have one name, and so may what is in them."""
        if id(value) not in self.names:
            self.names[id(value)] = name = free(self._taken, name)
            self._taken.add(name)

    def kind(self, name: str, kind: Any) -> None:
        self.found.kinds[free(self.found.kinds, name)] = kind  # a method has the name of what it is bound to

    def library_function(self, name: str, value: Any) -> None:
        """What somebody may change in a function of a library, if it is one that is written in Python."""
        if isinstance(value, types.FunctionType):
            parts = _code.parts_of(value)
            self.found.functions.append(parts)
            self.kind(f"code and defaults of {name}", tuple(map(Same, parts[1:])))

    def alias(self, name: str, value: Any) -> None:
        known = self.names.get(id(value))
        if known is not None and known != name:
            self.kind(name, ("the same as", known))

    def tensor(self, name: str, tensor: Any, state: bool = True) -> None:
        """``state``: of an optimizer, or a gradient; nobody trains that, and nobody replaces it unnoticed."""
        if id(tensor) in self.seen:
            self.alias(name, tensor)
            return
        self.seen[id(tensor)] = tensor
        name = free(self.found.tensors, name)
        self.names[id(tensor)] = name
        if tensor.device.type == "xla":
            self.found.tensors[name] = tensor
            if not state and tensor.is_leaf:
                self.found.trainable[name] = tensor
        else:
            known = of_the_cpu(tensor)
            if not state:
                self.kind(name, (Same(tensor), known))
            self.found.versions.append(Watched(tensor, known, name))
        if not state:
            self._tensor_hooks(name, tensor)
            self.container(type(tensor))
            self.objects.own_attributes(name, tensor, 1)

    def _tensor_hooks(self, name: str, tensor: Any) -> None:
        self.found.hooked.append(Watched(tensor, hooks_of(tensor), name))
        for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            for place, hook in enumerate((getattr(tensor, kind) or {}).values()):
                self.visit(f"{name}.{kind}[{place}]", hook, 1)

    def link(self, name: str, mapping: Any, key: Any, value: Any, depth: int) -> None:
        """One way on from here: a setting, or something to walk into."""
        if is_setting(value):
            self.setting(name, mapping, key, value)
            self.objects.attributes_of_plain(name, value, depth)
            return
        links = self.found.links if isinstance(mapping, dict) else self.found.members
        links.append(Link(mapping, key, value, name))
        self.visit(name, value, depth + 1)

    def member(self, name: str, view: View, key: str, depth: int) -> None:
        """The same of a view, in which nothing may be."""
        held = view.get(key)
        if held is MISSING:
            self.found.members.append(Link(view, key, held, name))
        else:
            self.link(name, view, key, held, depth)

    def setting(self, name: str, mapping: Any, key: Any, value: Any) -> None:
        """A number, a text or a switch, which may have the name of another one: two classes may have one name."""
        known = self.found.settings.get(name)
        if known is not None and not (known[1] == key and are_one(known[0], mapping)):
            name = free(self.found.settings, name)
        self.found.settings[name] = (mapping, key, value)

    def items(self, name: str, items: Any, depth: int, sequence: Any = ()) -> None:
        """``sequence``: what those items are in whose keys are numbers."""
        view = ItemView(sequence)
        for place, (key, value) in enumerate(items):
            if place >= ITEMS_MAX:
                self.kind(f"{name}[{place}:]", tuple(map(member_key, [*elements(sequence)][place:])))
                return
            where = f"{name}[{key}]"
            if isinstance(sequence, list):
                self.found.items.add(where)
            if is_setting(value) and isinstance(key, int):
                self.setting(where, view, key, value)
            elif is_setting(value):
                self.kind(where, setting_key(value))
            else:
                self.visit(where, value, depth + 1)

    def keys(self, name: str, mapping: Mapping[Any, Any], first: str | None = None) -> None:
        """Takes in which keys there are, and their order, wherever among them ``first`` is."""
        keys = tuple(elements(mapping))
        self.found.sizes.append(Watched(mapping, len(keys), name))
        self.found.orders.append(Watched(mapping, keys, name))
        self.kind(
            f"the keys of {name}",
            tuple(map(object_key, sorted(keys, key=lambda key: not isinstance(key, str) or key != first))),
        )

    def mapping(self, name: str, mapping: dict[Any, Any], depth: int, attributes: bool = False) -> None:
        if not attributes:
            self.keys(name, mapping)
        for place, (key, value) in enumerate(items(mapping)):
            if isinstance(key, PLAIN):
                where = f"{name}.{key!s}" if attributes else f"{name}[{key!r}]"
            else:
                where = f"{name}[key {place}, a {type(key).__qualname__}]"
                if not isinstance(key, weakref.ref | self.tensor_type):
                    self.visit(f"key {place} of {name}", key, depth + 1)
            self.link(where, mapping, key, value, depth)
