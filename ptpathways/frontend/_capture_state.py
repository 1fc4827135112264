"""What a training step may read and change: the tensors, options and numbers that its function can reach.

Walked from the function's closure, the globals it names and its arguments: modules, optimizers, tensors, containers and
the user's own objects. Every tensor gets a name that is the same at the next walk; every way to it becomes a *link*
that can be checked in no time: as long as all links hold, a new walk would find the same.
"""

from __future__ import annotations

import dis
import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from ptpathways import native
from ptpathways.frontend import _locator

_DEPTH_MAX = 8
_ITEMS_MAX = 10_000
_PLAIN = (bool, int, float, str, bytes, type(None))


@dataclass(slots=True)
class Surroundings:
    """What one walk found."""

    tensors: dict[str, Any] = field(default_factory=dict)
    """XLA tensors by name; those that have several names by the first."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Those of them that can have a gradient, which may be None."""
    links: list[tuple[Any, Any, Any]] = field(default_factory=list)
    """Mapping, key and the object that has to be there."""
    sequences: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    """Lists, and what they have to contain."""
    sizes: list[tuple[Any, int]] = field(default_factory=list)
    cells: list[tuple[types.CellType, Any]] = field(default_factory=list)
    settings: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    """Python numbers, texts and switches by name: mapping, key, value."""
    options: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Options of optimizers that are floats (or pairs of them), by name: group and key."""
    optimizers: list[Any] = field(default_factory=list)

    _guards: Any = None
    _others: list[tuple[Any, Any, Any]] = field(default_factory=list)

    def still_holds(self) -> bool:
        """Whether every link leads where it did, and every setting has its value."""
        if self._guards is None:
            links = [(mapping, key, value, False) for mapping, key, value in self.links]
            settings = [item for item in self.settings.values() if isinstance(item[0], dict)]
            links += [(mapping, key, value, True) for mapping, key, value in settings]
            self._others = [item for item in self.settings.values() if not isinstance(item[0], dict)]
            self._guards = native.Guards(links)  # which borrows what this object holds
        if not self._guards.hold():
            return False
        for cell, value in self.cells:
            if cell.cell_contents is not value:
                return False
        for sequence, items in self.sequences:
            if len(sequence) != len(items) or not all(map(operator.is_, sequence, items)):
                return False
        if any(len(container) != size for container, size in self.sizes):
            return False
        return all(_equal(mapping.get(key), value) for mapping, key, value in self._others)

    def changed_settings(self) -> set[str]:
        """The settings that have another value than when the walk was made."""
        return {name for name, (where, key, value) in self.settings.items() if not _equal(where.get(key), value)}

    def with_gradient(self) -> frozenset[str]:
        """The parameters that have a gradient."""
        return frozenset(name for name, parameter in self.parameters.items() if parameter.grad is not None)

    def rates(self) -> dict[str, float]:
        """What numbers follow from the optimizers' options, by an expression that says how."""
        found: dict[str, float] = {}
        for name, (group, key) in self.options.items():
            for place, value in _floats(group[key]):
                label = f"{name}{place}"
                found[label] = value
                found[f"-{label}"] = -value
                found[f"1-{label}"] = 1 - value
            if key == "lr" and isinstance(group.get("weight_decay"), float):
                rate = float(group["lr"])
                found[f"{name}*weight_decay"] = rate * group["weight_decay"]
                found[f"1-{name}*weight_decay"] = 1 - rate * group["weight_decay"]
        return found


def walk(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Surroundings:
    """Everything that a call ``function(*args, **kwargs)`` can reach; tensors among the arguments are not state."""
    walker = _Walker(home=_file_of(function))
    walker.visit("", function, 0)
    for number, value in [*enumerate(args), *kwargs.items()]:
        if _is_root(value, walker.home):
            walker.visit(f"argument {number}", value, 0)
    return walker.finish()


def reaches(function: Callable[..., Any], kinds: tuple[type, ...]) -> bool:
    """Whether ``function``, or the user's code that it names, refers to an object of one of ``kinds``."""
    walker = _Walker(kinds)
    walker.visit("", function, 0)
    return walker.met


class _Walker:
    def __init__(self, kinds: tuple[type, ...] = (), home: str = "") -> None:
        """``home``: a file that is the user's wherever it lies."""
        import torch

        self.home = home

        self._torch = torch
        self._kinds = kinds
        self.met = False
        self.found = Surroundings()
        self._seen: dict[int, Any] = {}  # keeps what it has seen alive, so that ids stay their own

    def finish(self) -> Surroundings:
        for name, tensor in list(self.found.tensors.items()):
            if tensor.requires_grad and tensor.is_leaf:
                self.found.parameters[name] = tensor
                if tensor.grad is not None:
                    self._tensor(f"{name}.grad", tensor.grad)
        return self.found

    def visit(self, name: str, value: Any, depth: int) -> None:
        torch = self._torch
        if isinstance(value, self._kinds):
            self.met = True
            return
        if isinstance(value, torch.Tensor):
            self._tensor(name, value)
            return
        if depth > _DEPTH_MAX or id(value) in self._seen or isinstance(value, type | types.ModuleType):
            return
        if isinstance(value, (*_PLAIN, torch.device, torch.dtype)):
            return
        self._seen[id(value)] = value
        if isinstance(value, torch.nn.Module):
            self._module(name, value, depth)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizer(name, value, depth)
        elif isinstance(value, torch.optim.lr_scheduler.LRScheduler | torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.visit(f"{name}.optimizer", value.optimizer, depth + 1)
        elif isinstance(value, types.FunctionType):
            self._function(name, value, depth)
        elif isinstance(value, types.MethodType):
            self.visit(name, value.__self__, depth + 1)
            self.visit(name, value.__func__, depth + 1)
        elif isinstance(value, functools.partial):
            self.visit(name, value.func, depth + 1)
            self._items(name, [*enumerate(value.args), *value.keywords.items()], depth)
        elif isinstance(value, dict):
            self._mapping(name, value, depth)
        elif isinstance(value, list | tuple):
            if isinstance(value, list):
                self.found.sequences.append((value, tuple(value)))
            self._items(name, enumerate(value), depth)
        elif _is_users(type(value), self.home) and hasattr(value, "__dict__"):
            self._mapping(name, vars(value), depth, attributes=True)
            call = inspect.getattr_static(type(value), "__call__", None)
            if isinstance(call, types.FunctionType):
                self.visit(name, call, depth + 1)

    def _tensor(self, name: str, tensor: Any) -> None:
        if tensor.device.type == "xla" and id(tensor) not in self._seen:
            self._seen[id(tensor)] = tensor
            self.found.tensors[name] = tensor

    def _link(self, name: str, mapping: Any, key: Any, value: Any, depth: int) -> None:
        """One way on from here: a setting, or something to walk into."""
        if _is_setting(value):
            self.found.settings[name] = (mapping, key, value)
        elif not isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
            self.found.links.append((mapping, key, value))
            self.visit(name, value, depth + 1)

    def _items(self, name: str, items: Any, depth: int) -> None:
        for place, (key, value) in enumerate(items):
            if place >= _ITEMS_MAX:
                return
            self.visit(f"{name}[{key}]", value, depth + 1)

    def _mapping(self, name: str, mapping: dict[Any, Any], depth: int, attributes: bool = False) -> None:
        for key, value in list(mapping.items())[:_ITEMS_MAX]:
            if isinstance(key, _PLAIN):
                where = f"{name}.{key!s}" if attributes else f"{name}[{key!r}]"
                self._link(where, mapping, key, value, depth)

    def _function(self, name: str, function: types.FunctionType, depth: int) -> None:
        filename = function.__code__.co_filename
        if filename != self.home and _locator.is_library(filename):
            return
        prefix = f"{name}." if name else ""
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not yet assigned
                continue
            self.found.cells.append((cell, value))
            if _is_setting(value):
                self.found.settings[prefix + variable] = (_CellView(cell), variable, value)
            else:
                self.visit(prefix + variable, value, depth + 1)
        for variable in _global_names(function.__code__):
            if variable in function.__globals__:
                self._link(prefix + variable, function.__globals__, variable, function.__globals__[variable], depth)

    def _module(self, name: str, module: Any, depth: int) -> None:
        for path, part in module.named_modules(remove_duplicate=True):
            self._seen[id(part)] = part
            where = f"{name}.{path}" if path else name
            for tensors in (part._parameters, part._buffers):
                for key, tensor in tensors.items():
                    if tensor is not None:
                        self.found.links.append((tensors, key, tensor))
                        self._tensor(f"{where}.{key}", tensor)
            for key, child in part._modules.items():
                self.found.links.append((part._modules, key, child))
            for key, value in vars(part).items():
                if key == "training" or not key.startswith("_"):
                    if _is_setting(value):
                        self.found.settings[f"{where}.{key}"] = (vars(part), key, value)
                    elif isinstance(value, self._torch.Tensor | list | tuple | dict):
                        self._link(f"{where}.{key}", vars(part), key, value, depth)

    def _optimizer(self, name: str, optimizer: Any, depth: int) -> None:
        self.found.optimizers.append(optimizer)
        for key in ("state", "param_groups"):
            self.found.links.append((vars(optimizer), key, vars(optimizer)[key]))
        self.found.sequences.append((optimizer.param_groups, tuple(optimizer.param_groups)))
        self.found.sizes.append((optimizer.state, len(optimizer.state)))
        for number, group in enumerate(optimizer.param_groups):
            where = f"{name}.{number}"
            for key, value in group.items():
                if key == "params":
                    self.found.sequences.append((value, tuple(value)))
                    self._items(where, enumerate(value), depth)
                elif isinstance(value, self._torch.Tensor):
                    self.found.links.append((group, key, value))
                    self._tensor(f"{where}.{key}", value)
                    if value.device.type == "cpu" and value.dim() == 0:
                        self.found.options[f"{where}.{key}"] = (group, key)
                elif any(True for _ in _floats(value)):
                    self.found.options[f"{where}.{key}"] = (group, key)
                elif _is_setting(value):
                    self.found.settings[f"{where}.{key}"] = (group, key, value)
        for number, (parameter, slots) in enumerate(optimizer.state.items()):
            self.found.links.append((optimizer.state, parameter, slots))
            for key, value in slots.items():
                where = f"{name}.state[{number}].{key}"
                if isinstance(value, self._torch.Tensor):
                    self.found.links.append((slots, key, value))
                    self._tensor(where, value)
                elif _is_setting(value):
                    self.found.settings[where] = (slots, key, value)


class _CellView:
    """A closure's variable, asked like a mapping."""

    __slots__ = ("_cell",)

    def __init__(self, cell: types.CellType) -> None:
        self._cell = cell

    def get(self, key: str) -> Any:
        return self._cell.cell_contents


def make_capturable(optimizer: Any) -> bool:
    """Lets an optimizer of torch count its steps on the device, so that its steps are all alike; whether it changed.

    That is torch's own option ``capturable``; the arithmetic is the same up to rounding.
    """
    import torch

    changed = False
    for group in optimizer.param_groups:
        if group.get("capturable", True) or not group["params"]:
            continue
        device = group["params"][0].device
        if device.type != "xla":
            continue
        group["capturable"] = changed = True
        for key in ("foreach", "fused"):
            if key in group:
                group[key] = False
        for parameter in group["params"]:
            slots: MutableMapping[str, Any] = optimizer.state.get(parameter, {})
            steps = slots.get("step")
            if isinstance(steps, torch.Tensor) and steps.device.type == "cpu":
                slots["step"] = steps.to(parameter.device)
    return changed


def is_plain(value: Any) -> bool:
    """Whether a value can be compared and printed: what a guard can be put on."""
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(is_plain(item) for item in value))


def _is_setting(value: Any) -> bool:
    import torch

    return is_plain(value) or isinstance(value, torch.dtype | torch.device)


def _equal(one: Any, other: Any) -> bool:
    """Equal, and of one type: 1, 1.0 and True give other computations."""
    return one is other or (type(one) is type(other) and bool(one == other))


def _floats(value: Any) -> Iterator[tuple[str, float]]:
    """The numbers in an option: ``("", 0.1)``, or one per element of a tuple of floats."""
    import torch

    if isinstance(value, float) or (isinstance(value, torch.Tensor) and value.device.type == "cpu"):
        yield "", float(value)
    elif isinstance(value, tuple) and value and all(isinstance(item, float) for item in value):
        for place, item in enumerate(value):
            yield f"[{place}]", item


def _is_root(value: Any, home: str) -> bool:
    import torch

    return isinstance(value, torch.nn.Module | torch.optim.Optimizer) or (
        hasattr(value, "__dict__") and _is_users(type(value), home)
    )


def _file_of(function: Any) -> str:
    """Where a function, a bound method, a partial call or an object that can be called is written; empty if unknown."""
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, types.FunctionType | types.MethodType):
        function = inspect.getattr_static(type(function), "__call__", None)
    code = getattr(function, "__code__", None)
    return code.co_filename if code is not None else ""


@functools.lru_cache(maxsize=256)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """The global variables that a function, or one inside it, reads. Its attributes' names are not among them: a loop's
    own counter ``step`` is no business of a function that says ``optimizer.step()``."""
    reads = ("LOAD_GLOBAL", "LOAD_NAME")
    names = {instruction.argval for instruction in dis.get_instructions(code) if instruction.opname in reads}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_global_names(constant))
    return tuple(sorted(names))


def _is_users(kind: type, home: str) -> bool:
    """Whether a class is the user's own, or written in the file ``home``, and not Python's or a library's."""
    module = sys.modules.get(kind.__module__)
    filename = getattr(module, "__file__", None)
    if kind.__module__ == "__main__" or filename == home:
        return True
    return filename is not None and not _locator.is_library(filename)
