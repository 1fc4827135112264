"""What a training step may read and change: the tensors, options and numbers that its function can reach.

``_capture_walk`` finds it. Every tensor gets a name that is the same at the next walk; every way to it becomes a *link*
that can be checked in no time: as long as all links hold, a new walk would find the same. When they do not, *settings*
and *kinds* say whether what a new walk finds is computed with in the same way.
"""

from __future__ import annotations

import abc
import collections
import operator
import types
import weakref
from collections.abc import Container, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ptpathways import native
from ptpathways.frontend.capture.python._contents import contents_of, equal, has_hidden_sign
from ptpathways.frontend.capture.python._places import ItemView, elements, read, size
from ptpathways.frontend.loops import _optimizer_options, _optimizer_state

_gradient, _attributes = operator.attrgetter("grad"), operator.attrgetter("__dict__")
_hooks = operator.attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")


_IN_ONE_ORDER = (dict, collections.defaultdict)
"""Classes of dictionaries whose order is that in memory."""


def free(taken: Container[str], name: str) -> str:
    """A name like ``name`` that nothing else has."""
    while name in taken:
        name += "()"
    return name


class Link(NamedTuple):
    """One way on: where, under what key, and the object that has to be there."""

    where: Any
    key: Any
    value: Any
    name: str


class Watched(NamedTuple):
    """An object whose contents have to be as they were, and what was in it."""

    of: Any
    contents: Any
    name: str


@dataclass(slots=True)
class Surroundings:
    """What one walk found."""

    tensors: dict[str, Any] = field(default_factory=dict)
    """XLA tensors by name; those that have several names by the first."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Those of them that can have a gradient, which may be None."""
    shared_gradients: dict[str, str] = field(default_factory=dict)
    """Names of gradients that have been met by another name, and that."""
    links: list[Link] = field(default_factory=list)
    """In dictionaries."""
    absent: list[tuple[dict[Any, Any], Any]] = field(default_factory=list)
    """Dictionaries, and keys that must not be there: an attribute would hide that of the class."""
    sequences: list[Watched] = field(default_factory=list)
    """Lists, and what they have to contain, as tuples."""
    sizes: list[Watched] = field(default_factory=list)
    """Containers, and how much is in them."""
    orders: list[Watched] = field(default_factory=list)
    """Dictionaries, and their keys in order."""
    compared: dict[int, Any] = field(default_factory=dict)
    """Objects by identity whose contents are compared, here or by what leads on from them."""
    codes: set[types.CodeType] = field(default_factory=set)
    """Of the functions that were looked into."""
    members: list[Link] = field(default_factory=list)
    """Links of classes, of closures' variables and of slots."""
    functions: list[tuple[types.FunctionType, types.CodeType, Any, Any]] = field(default_factory=list)
    """Methods of installed packages' classes, with what ``_code.parts_of`` gave."""
    versions: list[Watched] = field(default_factory=list)
    """Tensors of the CPU, and how often they had been written."""
    contents: list[Watched] = field(default_factory=list)
    """Arrays, sets and the like, with what ``contents_of`` gave."""
    contexts: list[Watched] = field(default_factory=list)
    """Functions that tell what libraries compute with, with their answers."""
    moving: list[Watched] = field(default_factory=list)
    """Random generators and iterators, with what ``position_of`` gave. A call may find them anywhere."""
    classes: list[Watched] = field(default_factory=list)
    """Modules and optimizers, and of what class they are."""
    ungraded: list[Any] = field(default_factory=list)
    """Tensors that do not require a gradient, and have none."""
    hooked: list[Watched] = field(default_factory=list)
    """Tensors, and their hooks."""
    settings: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    """Python numbers, texts and switches by name: mapping, key, value."""
    kinds: dict[str, Any] = field(default_factory=dict)
    """Of everything else, by name, what decides what is computed with it, as a part of a key: the class of a module,
    a function's code, the other name of what has been met already; ``Same`` for what cannot be looked into."""
    items: set[str] = field(default_factory=set)
    """The names that belong to elements of lists."""
    trainable: dict[str, Any] = field(default_factory=dict)
    """Tensors by name that may be told to require a gradient, or not."""
    options: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Options of optimizers that are floats (or pairs of them), by name: group and key."""
    optimizers: dict[str, Any] = field(default_factory=dict)
    """By name."""
    libraries: list[Any] = field(default_factory=list)
    """Objects of installed packages, of which only what is used is compared."""

    unknown: str = ""
    """Why it cannot be known what a call finds; empty if it can."""
    ignored: frozenset[str] = frozenset()
    """Settings that are left out, at the user's word."""

    _guards: Any = None
    _token: object = None
    """Changes when a class is registered with an abstract one."""
    _others: list[tuple[Any, Any, Any]] = field(default_factory=list)
    _hooked: list[Any] = field(default_factory=list)
    _no_hooks: list[tuple[None, None]] = field(default_factory=list)
    _instances: list[Any] = field(default_factory=list)
    _types: list[type] = field(default_factory=list)
    _attributes: list[dict[str, Any]] = field(default_factory=list)
    _keyed: list[tuple[Any, tuple[Any, ...], bool]] = field(default_factory=list)
    """Dictionaries of classes that may have an order of their own, their keys, and whether those are texts."""

    def prepare(self) -> None:
        """Makes what ``still_holds`` needs, which has references of its own."""
        links = [(link.where, link.key, link.value, False) for link in self.links]
        links += [(mapping, key, NotImplemented, False) for mapping, key in self.absent]
        # A list's elements are compared as a whole.
        settings = [item for item in self.settings.values() if not isinstance(item[0], ItemView)]
        self._others = [item for item in settings if not isinstance(item[0], dict) or has_hidden_sign(item[2])]
        links += [(*item, True) for item in settings if isinstance(item[0], dict) and not has_hidden_sign(item[2])]
        self._hooked, self._no_hooks = [one.of for one in self.hooked], [(None, None)] * len(self.hooked)
        if any(hooks for _, hooks, _ in self.hooked):
            self._no_hooks = []  # never equal: each is looked at
        self._instances, self._types = [one.of for one in self.classes], [one.contents for one in self.classes]
        self._attributes = list(map(_attributes, self._instances))
        self._keyed = [
            (one.of, one.contents, all(type(key) is str for key in one.contents))
            for one in self.orders
            if type(one.of) not in _IN_ONE_ORDER
        ]
        self._token = abc.get_cache_token()
        orders = [one[:2] for one in self.orders if type(one.of) in _IN_ONE_ORDER]
        sizes = [one[:2] for one in self.sizes]
        self._guards = native.Guards(links, orders, sizes, self.functions)  # which borrows what is held here

    def still_holds(self) -> bool:
        """Whether every link leads where it did, and every setting has its value."""
        if self._guards is None:
            self.prepare()
        if not self._guards.hold() or abc.get_cache_token() != self._token:
            return False
        for sequence, items, _ in self.sequences:
            if list.__len__(sequence) != len(items) or not all(map(operator.is_, list.__iter__(sequence), items)):
                return False
        if list(map(type, self._instances)) != self._types:
            return False
        if not all(map(operator.is_, map(_attributes, self._instances), self._attributes)):
            return False
        if any(gradient is not None for gradient in map(_gradient, self.ungraded)):
            return False
        if any(
            size(mapping) != len(keys) or not all(map(operator.eq if named else operator.is_, elements(mapping), keys))
            for mapping, keys, named in self._keyed
        ):
            return False
        if any(of_the_cpu(tensor) != known for tensor, known, _ in self.versions):
            return False
        if any(where.get(key) is not value for where, key, value, _ in self.members):
            return False
        if any(contents_of(of) != contents for of, contents, _ in self.contents):
            return False
        if any(ask() != answer for ask, answer, _ in self.contexts):
            return False
        if list(map(_hooks, self._hooked)) != self._no_hooks and any(
            hooks_of(tensor) != hooks for tensor, hooks, _ in self.hooked
        ):
            return False
        return all(equal(read(where, key), value) for where, key, value in self._others)

    def held(self) -> Iterator[Any]:
        """What this refers to, as often as it does, of tensors of the devices; more of others."""
        for named in (self.tensors, self.parameters, self.trainable, self.compared):
            yield from named.values()
        for link in (*self.links, *self.members):
            yield link.value
        for watched in self.sequences:
            yield from watched.contents
        for watched in self.hooked:
            yield watched.of
        yield from self.ungraded
        yield from self._hooked

    def ignore(self, names: frozenset[str]) -> frozenset[str]:
        """Leaves settings out: they are not compared, and a replay does not change them. Gives those that there are."""
        self.ignored = names
        return frozenset(name for name in names if self.settings.pop(name, None) is not None)

    def with_gradient(self) -> frozenset[str]:
        """The parameters that have a gradient."""
        return frozenset(name for name, parameter in self.parameters.items() if parameter.grad is not None)

    def written_by_training(self) -> dict[str, Any]:
        """The parameters of modules, and all gradients, by name."""
        import torch

        found = {name: tensor for name, tensor in self.trainable.items() if isinstance(tensor, torch.nn.Parameter)}
        return found | {name: tensor for name, tensor in self.tensors.items() if name.endswith(".grad")}

    def required(self) -> dict[str, bool]:
        """Which tensors require a gradient, by name."""
        return {name: tensor.requires_grad for name, tensor in self.trainable.items()}

    def rates(self) -> dict[str, float]:
        """What numbers follow from the optimizers' options, by an expression that says how."""
        found: dict[str, float] = {}
        for name, (group, key) in self.options.items():
            option = group.get(key)
            for place, value in floats(float(option) if type(option) is int else option):
                label = f"{name}{place}"
                found[label] = value
                found[f"-{label}"] = -value
                found[f"1-{label}"] = 1 - value
            if key == "lr" and isinstance(group.get("weight_decay"), float):
                rate = float(group["lr"])
                found[f"{name}*weight_decay"] = rate * group["weight_decay"]
                found[f"1-{name}*weight_decay"] = 1 - rate * group["weight_decay"]
        return found


_HOOKS = {"_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_load_state_dict_post_hooks"}
"""What an optimizer of torch makes for those that are to hear of it."""


def make_capturable(optimizer: Any) -> bool:
    """Lets an optimizer of torch count its steps on the device, so that its steps are all alike; whether it changed.

    That is torch's own option ``capturable``; the arithmetic is the same up to rounding.
    """
    import torch

    changed = False
    if isinstance(optimizer, torch.optim.Adadelta):  # whose option is not for these devices
        return False
    if not vars(optimizer).keys() >= _HOOKS:  # it wraps another one, as timm's Lookahead does
        return False
    for group in optimizer.param_groups:
        if "capturable" not in group or not group["params"] or group["params"][0].device.type != "xla":
            continue
        if not group["capturable"]:
            changed = True
            for key in _optimizer_options.COUNTING:
                if key in group:
                    _optimizer_options.choose_option(optimizer, group, key, key == "capturable")
        # Also of a group that is capturable already: it may be another optimizer's, too, that has no state.
        for parameter in group["params"]:
            slots: MutableMapping[str, Any] = optimizer.state.get(parameter, {})
            for key in _optimizer_options.ON_THE_CLIENT & set(slots):
                count = slots[key]
                if isinstance(count, torch.Tensor) and count.device.type == "cpu":
                    _optimizer_options.put(slots, key, count.to(parameter.device, torch.float64))
                    changed = True
    if changed and optimizer not in _counted_here:
        _counted_here.add(optimizer)
        optimizer.register_step_pre_hook(_count_precisely)
        optimizer.register_step_post_hook(lambda optimizer, *_: _widen_counts(optimizer))  # what this step has made
        optimizer.register_load_state_dict_post_hook(_count_precisely)
        if isinstance(optimizer, torch.optim.Adam):
            _stay_at_a_rate_of_zero(optimizer)
    return changed


_counted_here: weakref.WeakSet[Any] = weakref.WeakSet()
"""Optimizers that were made capturable."""


def _count_precisely(optimizer: Any, *step: Any) -> Any:
    """Counts, and what follows from them, are float64, as Python's numbers are that torch computes with elsewhere:
    ``1 - 0.999 ** step`` has four digits in float32. Torch makes and loads float32.

    A hook of steps, which may have a closure, and of loading.
    """
    _widen_counts(optimizer)
    return _optimizer_state.after_closure(step[0], step[1], lambda: _widen_counts(optimizer)) if step else None


def _widen_counts(optimizer: Any) -> None:
    import torch

    for group in optimizer.param_groups:
        for parameter in group["params"] if group.get("capturable") else ():
            slots = optimizer.state.get(parameter, {})
            for key in _optimizer_options.COUNTS & set(slots):
                value = slots[key]
                if isinstance(value, torch.Tensor) and value.device.type == "xla" and value.dtype is torch.float32:
                    _optimizer_options.put(slots, key, value.to(torch.float64))


def _stay_at_a_rate_of_zero(optimizer: Any) -> None:
    """Parameters of Adam stay what they are while their rate is 0, as at the first step of most warm-ups.

    Torch's capturable arithmetic divides by the rate, so an element whose gradients were all 0 would become NaN; the
    other arithmetic of torch multiplies by it.
    """
    import torch

    before: list[tuple[torch.Tensor, torch.Tensor, Any]] = []

    def keep(optimizer: Any, *_: Any) -> None:
        before.clear()
        for group in optimizer.param_groups:
            rate = group["lr"]
            told_later = isinstance(rate, torch.Tensor) and rate.device.type != "cpu"
            if told_later or rate == 0:
                before.extend((parameter, parameter.detach().clone(), rate) for parameter in group["params"])

    def restore(*_: Any) -> None:
        with torch.no_grad():
            for parameter, value, rate in before:
                if isinstance(rate, torch.Tensor) and rate.device.type != "cpu":
                    value = torch.where(rate == 0, value, parameter)
                parameter.copy_(value)
        before.clear()

    optimizer.register_step_pre_hook(keep)
    optimizer.register_step_post_hook(restore)


class OfTheCpu(NamedTuple):
    """What a step may ask of a tensor of the CPU, beside its values."""

    version: int
    trained: bool
    has_gradient: bool
    names: tuple[str | None, ...]
    """Of its dimensions, if any has one."""

    def __str__(self) -> str:
        return f"written {self.version} times{', trained' * self.trained}{', with a gradient' * self.has_gradient}"


def of_the_cpu(tensor: Any) -> OfTheCpu:
    version = 0 if tensor.is_inference() else tensor._version
    names = tensor.names if tensor.has_names() else ()
    return OfTheCpu(version, tensor.requires_grad, tensor.is_leaf and tensor.grad is not None, names)


def hooks_of(tensor: Any) -> tuple[Any, ...]:
    """The hooks of a tensor that autograd calls, by their keys; empty for most."""
    found: tuple[Any, ...] = ()
    for hooks in (tensor._backward_hooks, tensor._post_accumulate_grad_hooks):
        if hooks:
            found += tuple(hooks)
    return found


def floats(value: Any) -> Iterator[tuple[str, float]]:
    """The numbers in an option: ``("", 0.1)``, or one per element of a tuple of floats."""
    import torch

    if isinstance(value, float) or (isinstance(value, torch.Tensor) and value.device.type == "cpu"):
        yield "", float(value)
    elif isinstance(value, tuple) and value and all(isinstance(item, float) for item in value):
        for place, item in enumerate(value):
            yield f"[{place}]", item
