"""What the walk looks at in modules, optimizers and schedulers of torch."""

from __future__ import annotations

import functools
import gc
import operator
import sys
import types
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.capture.objects._reachable import Link, Watched, floats
from ptpathways.frontend.capture.python import _whose
from ptpathways.frontend.capture.python._contents import Same, is_setting
from ptpathways.frontend.capture.python._places import AttributeView

if TYPE_CHECKING:
    from ptpathways.frontend.capture.objects._walk import Walker

_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
)
"""Of all modules."""
_OPTIMIZER_HOOKS = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
_STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
"""Of one optimizer."""
_OF_OPTIMIZERS_STATE = tuple(
    f"_optimizer_{what}_{when}_hooks" for what in ("state_dict", "load_state_dict") for when in ("pre", "post")
)
_OWN_OF_TORCH = frozenset(
    (
        *_STEP_HOOKS,
        *_OF_OPTIMIZERS_STATE,
        "_zero_grad_profile_name",
        "_warned_capturable_if_run_uncaptured",
        "_step_supports_amp_scaling",
        "_need_device_dtype_check_for_fused",
        "_opt_called",
        "_step_count",
    )
)
"""Attributes of an optimizer in which torch keeps what no step computes with."""
SHARED_HOOKS = frozenset((*_GLOBAL_HOOKS, *_OPTIMIZER_HOOKS, *_STEP_HOOKS))
"""Where this package has hooks, too."""
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_STATE_DICT_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_SCHEDULERS = frozenset({"initial_lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum"})
"""What schedulers of torch note in an optimizer's groups for themselves; a step that computes with it names it."""
_OPTIMIZER_METHODS = ("step", "zero_grad")
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property)


def _is_noting(method: Any, optimizer: Any) -> bool:
    """Whether torch's schedulers have put this in the place of the optimizer's step, to note that there was one."""
    if not (isinstance(method, types.FunctionType) and hasattr(method, "_wrapped_by_lr_sched")):
        return False
    cells = dict(zip(method.__code__.co_freevars, method.__closure__ or (), strict=True))
    if cells.keys() != {"func", "opt_ref"} or method.__module__ != type(optimizer).step.__module__:
        return False
    func, refers = cells["func"].cell_contents, cells["opt_ref"].cell_contents
    return func is getattr(method, "__wrapped__", None) and refers() is optimizer


class TorchObjects:
    """Those that ``walker`` meets."""

    def __init__(self, walker: Walker) -> None:
        import torch

        self._walker: Walker = weakref.proxy(walker)  # no cycle: what a walk has seen is let go with it, at once
        self._torch = torch
        self._own_private = frozenset(vars(torch.nn.Module())) - {"training"}
        self._modules: list[tuple[str, Any, int]] = []
        self._classes: set[type] = set()
        self._looked_into: set[str] = set()
        self.known: set[type] = set()
        """Classes all of whose functions are looked at."""

    def scheduler(self, name: str, scheduler: Any, depth: int) -> None:
        """A step that takes one of its steps, or asks for its rate, uses where it is."""
        self._walker.kind(name, type(scheduler))
        self._walker.mentioned.of_library(name, scheduler, depth)
        if _whose.is_own_class(type(scheduler), self._walker.home):
            self._walker.mentioned.classes.setdefault(type(scheduler), False)
        self._walker.visit(f"{name}.optimizer", scheduler.optimizer, depth + 1)

    def has_rules_for(self, kind: type) -> bool:
        """Whether it is known which methods of a class torch calls: not if it derives from a layer of a library."""
        if issubclass(kind, self._torch.nn.Module):
            return not _whose.extends_layer(kind)
        return issubclass(kind, (self._torch.optim.Optimizer, self._torch.Tensor))

    def module(self, name: str, module: Any, depth: int) -> None:
        for path, part in module.named_modules(remove_duplicate=True):
            where = f"{name}.{path}" if path else name
            if part is not module and id(part) in self._walker.seen:
                self._walker.alias(where, part)
                continue
            self._walker.seen[id(part)] = part
            self._walker.call(part, where)
            self._walker.kind(where, type(part))
            self._walker.found.classes.append(Watched(part, type(part), where))
            if not _whose.is_installed(type(part)):
                self._methods(type(part), ("forward", "__call__"))
            self.functions_of_classes(type(part))
            self._walker.mentioned.of_library_class(type(part))
            self._walker.found.compared[id(part)] = part
            self._walker.found.sizes.append(Watched(vars(part), len(vars(part)), f"{where}.__dict__"))
            if _whose.is_own_class(type(part), self._walker.home):
                self._walker.mentioned.classes.setdefault(type(part), False)
            for tensors in (part._parameters, part._buffers):
                for key, tensor in tensors.items():
                    self._walker.found.links.append(Link(tensors, key, tensor, f"{where}.{key}"))
                    if tensor is not None:
                        self._walker.tensor(f"{where}.{key}", tensor, state=False)
            children: tuple[dict[str, Any], ...] = (part._parameters, part._buffers, part._modules)
            self._walker.found.sizes += [Watched(container, len(container), where) for container in children]
            for container in children:
                if len(container) > 1:  # code goes through them in their order
                    keys = tuple(container)
                    self._walker.found.orders.append(Watched(container, keys, where))
                    self._walker.kind(f"the order of what is in {where}", keys)
            for key, child in part._modules.items():
                self._walker.found.links.append(Link(part._modules, key, child, f"{where}.{key}"))
            if type(part) in self._walker.mentioned.classes:
                self._walker.mentioned.hiding.append((vars(part), type(part)))
            self._hooks(where, vars(part), _HOOKS, depth)
            self._modules.append((where, part, depth))
            for key, value in vars(part).items():
                if key in self._own_private:
                    if isinstance(value, dict):  # in whose place somebody may put another one
                        self._walker.found.links.append(Link(vars(part), key, value, f"{where}.{key}"))
                    continue
                if isinstance(value, list | dict) and type(part) in self._walker.mentioned.classes:
                    self._walker.mentioned.records.append((where, vars(part), (key,), depth))
                else:
                    self._attribute(f"{where}.{key}", vars(part), key, value, depth)

    def state_dicts(self) -> None:
        """What ``state_dict()`` and ``load_state_dict()`` use beside parameters, buffers, parts and options."""
        for where, module, depth in self._modules:
            self._hooks(where, vars(module), _STATE_DICT_HOOKS, depth)
            left_out = module._non_persistent_buffers_set
            self._walker.found.sizes.append(Watched(left_out, len(left_out), f"{where}._non_persistent_buffers_set"))
            if left_out:
                self._walker.visit(f"{where}._non_persistent_buffers_set", left_out, depth + 1)
        for name, optimizer in self._walker.found.optimizers.items():
            self._hooks(name, vars(optimizer), _OF_OPTIMIZERS_STATE, 0)

    def everywhere(self) -> None:
        """What any step uses: hooks for all modules and optimizers, and functions in whose place somebody may put
        another one."""
        modules, optimizers = vars(self._torch.nn.modules.module), vars(sys.modules["torch.optim.optimizer"])
        self._hooks("torch.nn.Module", modules, _GLOBAL_HOOKS, 0)
        self._hooks("torch.optim.Optimizer", optimizers, _OPTIMIZER_HOOKS, 0)
        space = vars(self._torch.nn.functional)
        public = tuple(name for name in space if not name.startswith("_"))
        self._walker.modules.library("torch.nn.functional.", space, public, quiet=True)
        self._methods(self._torch.Tensor, ("backward",))
        self._functions_of_class(self._torch.nn.Module)
        for module in ("torch.autograd", "torch.autograd.graph"):
            self._functions(module)

    def methods_of_tensors(self, names: Collection[str]) -> None:
        """Those that the code names, and those of operators, are torch's: most are a base's, and whoever replaces one
        puts his own before it."""
        own = gc.get_referents(vars(self._torch.Tensor))[0]  # the dictionary itself, which guards ask fast
        self._walker.found.sizes.append(Watched(own, len(own), "torch.Tensor"))  # one may come
        for name in sorted(_operators() | set(names)):
            if name in own:
                self._walker.found.links.append(Link(own, name, own[name], f"torch.Tensor.{name}"))
                self._walker.kind(f"torch.Tensor.{name}", Same(own[name]))
            elif hasattr(self._torch.Tensor, name):
                self._walker.found.absent.append((own, name))

    def functions_of_classes(self, kind: type) -> None:
        """Those of a class of an installed package, and of its bases there, are what they are."""
        for base in kind.__mro__:
            if _whose.is_installed(base) and not _whose.is_ours(base):
                self._functions_of_class(base)

    def handle(self, name: str, handle: Any, depth: int) -> None:
        """Of a hook: it refers weakly to tables of hooks, which belong to a module, an optimizer or a tensor."""
        self._walker.kind(name, type(handle))
        own = vars(handle)
        for key in ("id", "hooks_dict_ref", "extra_dict_ref"):
            self._walker.found.links.append(Link(own, key, own[key], f"{name}.{key}"))
        for place, reference in enumerate((handle.hooks_dict_ref, *handle.extra_dict_ref)):
            table = reference()
            self._walker.kind(f"{name}.table[{place}]", table is None)
            if table is not None:
                self._walker.visit(f"{name}.table[{place}]", table, depth + 1)

    def functions_of_layers(self, kind: type) -> None:
        """Those of a class that a step may make modules of."""
        if issubclass(kind, self._torch.nn.Module):
            self.functions_of_classes(kind)

    def _functions_of_class(self, kind: type) -> None:
        """What a class of an installed package has is what it is: its functions, and the settings of a module's."""
        if kind in self.known:
            return
        self.known.add(kind)
        own = gc.get_referents(vars(kind))[0]
        of_modules = issubclass(kind, self._torch.nn.Module)
        for name, value in own.items():
            if isinstance(value, _FUNCTIONS) or (of_modules and is_setting(value) and not name.startswith("__")):
                self._walker.found.links.append(Link(own, name, value, f"{kind.__qualname__}.{name}"))
                self._walker.kind(f"{kind.__qualname__}.{name}", Same(value))
                self._walker.library_function(f"{kind.__qualname__}.{name}", getattr(value, "__func__", value))
            elif of_modules and isinstance(value, list | dict | set) and not name.startswith("__"):
                self._walker.found.links.append(Link(own, name, value, f"{kind.__qualname__}.{name}"))
                self._walker.modules.shallow(f"{kind.__qualname__}.{name}", value)
            code = getattr(value, "__code__", None)
            if code is not None and _whose.is_own_file(code.co_filename, self._walker.home):
                # Somebody has put it there.
                self._walker.visit(f"{kind.__qualname__}.{name}", value, 0)

    def _functions(self, module: str) -> None:
        """Those of a module of torch, which its classes call, are what they are."""
        space = vars(sys.modules[module])
        if module not in self._looked_into:
            self._looked_into.add(module)
            own = (name for name, value in space.items() if getattr(value, "__module__", "") == module)
            self._walker.modules.library(f"{module}.", space, tuple(own), quiet=True)

    def _methods(self, kind: type, names: tuple[str, ...]) -> None:
        """Those of a class, its own or inherited, are what they are."""
        if kind in self._classes:
            return
        self._classes.add(kind)
        for name in names:
            value = AttributeView(kind).get(name)
            where = f"{kind.__qualname__}.{name}"
            self._walker.found.members.append(Link(AttributeView(kind), name, value, where))
            self._walker.kind(where, Same(value))

    def _attribute(self, name: str, mapping: Any, key: str, value: Any, depth: int) -> None:
        """Of a module. What an installed package keeps there is looked into only if it is a record of settings: a
        trainer has counters that change at each step."""
        kind = type(value)
        if not hasattr(value, "__dict__") or isinstance(value, type | types.FunctionType | types.ModuleType):
            record = True
        elif _whose.is_users(kind, self._walker.home) and not _whose.is_own_class(kind, self._walker.home):
            record = all(is_setting(item) or isinstance(item, list | tuple | dict) for item in vars(value).values())
        else:
            record = True
        if record:
            self._walker.link(name, mapping, key, value, depth)
        else:
            self._walker.found.links.append(Link(mapping, key, value, name))
            self._walker.kind(name, Same(value))

    def _hooks(self, name: str, attributes: Mapping[str, Any], kinds: tuple[str, ...], depth: int) -> None:
        for kind in kinds:
            hooks = attributes.get(kind)
            if isinstance(hooks, dict):
                users = _UsersHooks(hooks) if kind in SHARED_HOOKS else hooks
                self._walker.found.sizes.append(Watched(users, len(users), f"{name}.{kind}"))
                if len(users) > 1:
                    self._walker.found.orders.append(Watched(users, tuple(users), f"{name}.{kind}"))
                for place, key in enumerate(tuple(users)):
                    self._walker.link(f"{name}.{kind}[{place}]", hooks, key, hooks[key], depth)

    def optimizer(self, name: str, optimizer: Any, depth: int) -> None:
        name = self._walker.names[id(optimizer)]  # which is no other's
        self._walker.kind(name, type(optimizer))
        self._walker.found.classes.append(Watched(optimizer, type(optimizer), name))
        if "param_groups" not in vars(optimizer):  # accelerate's, which steps or does not as its own state says
            self._walker.found.unknown = (
                f"{name or 'an optimizer'} ({type(optimizer).__qualname__}) wraps another optimizer, and what it does "
                "depends on what is not compared; use the optimizer itself in the step"
            )
            return
        self._walker.found.optimizers[name] = optimizer
        self._methods(type(optimizer), _OPTIMIZER_METHODS)
        self._walker.mentioned.of_library_class(type(optimizer))
        for kind in type(optimizer).__mro__:
            if _whose.module_of(kind).startswith("torch.optim."):
                self._functions(_whose.module_of(kind))
                self._functions_of_class(kind)
        for key in _OPTIMIZER_METHODS:  # a scheduler puts its own step there
            where, method = f"{name}.{key}", vars(optimizer).get(key)
            if key not in vars(optimizer):
                self._walker.found.absent.append((vars(optimizer), key))
            elif _is_noting(method, optimizer):  # a further optimizer's is another function that does the same
                self._walker.found.links.append(Link(vars(optimizer), key, method, where))
                self._walker.kind(where, Same(method.__code__))
                self._walker.objects.mentioned_attributes(where, method, depth)
                self._walker.visit(where, method.__wrapped__, depth + 1)
            else:
                self._walker.link(where, vars(optimizer), key, method, depth)
        if _whose.is_own_class(type(optimizer), self._walker.home):
            self._walker.mentioned.classes.setdefault(type(optimizer), False)
            for key, value in vars(optimizer).items():
                if key not in _OWN_OF_TORCH and key not in ("defaults", "state", "param_groups"):
                    self._walker.link(f"{name}.{key}", vars(optimizer), key, value, depth)
        else:
            known = ("defaults", "state", "param_groups", *_OPTIMIZER_METHODS)
            names = tuple(key for key in vars(optimizer) if key not in known and key not in _OWN_OF_TORCH)
            self._walker.mentioned.records.append((name, vars(optimizer), names, depth))
        self._hooks(name, vars(optimizer), _STEP_HOOKS, depth)
        for key in ("state", "param_groups", *(key for key in _STEP_HOOKS if key in vars(optimizer))):
            self._walker.found.links.append(Link(vars(optimizer), key, vars(optimizer)[key], f"{name}.{key}"))
        self._walker.mentioned.records.append((name, vars(optimizer), ("defaults",), depth))  # which no step reads
        groups = f"{name}.param_groups"
        self._walker.found.sequences.append(Watched(optimizer.param_groups, tuple(optimizer.param_groups), groups))
        self._walker.found.sizes.append(Watched(optimizer.state, len(optimizer.state), f"{name}.state"))
        self._walker.found.orders.append(Watched(optimizer.state, tuple(optimizer.state), f"{name}.state"))
        self._walker.found.sizes.append(Watched(vars(optimizer), len(vars(optimizer)), f"{name}.__dict__"))
        for number, group in enumerate(optimizer.param_groups):
            where = f"{name}.{number}"
            self._walker.keys(where, group, "params")  # which are the last ones after load_state_dict()
            for key, value in group.items():
                if key in _SCHEDULERS:
                    if is_setting(value):
                        self._walker.noted.append((f"{where}.{key}", group, key))
                    continue
                if key == "params":
                    self._walker.found.links.append(Link(group, key, value, f"{where}.params"))
                    self._walker.found.sequences.append(Watched(value, tuple(value), f"{where}.params"))
                    self._walker.items(where, enumerate(value), depth)
                elif isinstance(value, self._torch.Tensor):
                    self._walker.found.links.append(Link(group, key, value, f"{where}.{key}"))
                    self._walker.tensor(f"{where}.{key}", value)
                    if value.device.type == "cpu" and value.dim() == 0:
                        self._walker.found.options[f"{where}.{key}"] = (group, key)
                elif any(True for _ in floats(value)):
                    self._walker.found.options[f"{where}.{key}"] = (group, key)
                elif is_setting(value):
                    self._walker.setting(f"{where}.{key}", group, key, value)
                else:
                    self._walker.link(f"{where}.{key}", group, key, value, depth)
        for number, (parameter, slots) in enumerate(optimizer.state.items()):
            self._walker.found.links.append(Link(optimizer.state, parameter, slots, f"{name}.state[{number}]"))
            of = self._walker.names.get(id(parameter)) if id(parameter) in self._walker.seen else None
            self._walker.kind(f"{name}.state[{number}]", of or Same(parameter))
            self._walker.keys(f"{name}.state[{number}]", slots)
            for key, value in slots.items():
                where = f"{name}.state[{number}].{key}"
                if isinstance(value, self._torch.Tensor):
                    self._walker.found.links.append(Link(slots, key, value, where))
                    self._walker.tensor(where, value)
                elif is_setting(value):
                    self._walker.setting(where, slots, key, value)
                else:
                    self._walker.link(where, slots, key, value, depth)


@functools.cache
def _operators() -> frozenset[str]:
    """The methods of tensors that are called without being named, as by ``+``."""
    import torch

    names = {name for name in vars(operator) if name.startswith("__")}
    names |= {f"__r{name[2:]}" for name in names} | {"__bool__", "__float__", "__int__", "__iter__", "__len__"}
    return frozenset(name for name in names if callable(getattr(torch._C.TensorBase, name, None)))


class _UsersHooks:
    """The keys of hooks that are not of this package, whose own come and go: also while a step runs, as when a thread
    that feeds it asks for a device."""

    def __init__(self, hooks: Mapping[Any, Any]) -> None:
        self._hooks = hooks

    def __len__(self) -> int:
        return sum(1 for _ in self) if self._hooks else 0

    def __iter__(self) -> Iterator[Any]:
        for key, hook in tuple(self._hooks.items()):
            if str(getattr(hook, "__module__", "")).partition(".")[0] != "ptpathways":
                yield key
