"""What a training step may read and change: the tensors, options and numbers that its function can reach.

``_capture_walk`` finds it. Every tensor gets a name that is the same at the next walk; every way to it becomes a *link*
that can be checked in no time: as long as all links hold, a new walk would find the same. When they do not, *settings*
and *kinds* say whether what a new walk finds is computed with in the same way.
"""

from __future__ import annotations

import array
import collections
import contextvars
import functools
import operator
import random
import threading
import types
import weakref
from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ptpathways import native

_hooks = operator.attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")

PLAIN = (bool, int, float, complex, str, bytes, range, type(None))


class Same:
    """An object as a part of a key: equal to itself only, and alive as long as the key."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.of is other.of

    def __hash__(self) -> int:
        return id(self.of)

    def __repr__(self) -> str:
        name = getattr(self.of, "__qualname__", None) or getattr(self.of, "co_qualname", None)
        return name if isinstance(name, str) else f"a {type(self.of).__qualname__}"


class Contents(NamedTuple):
    """What is in a tensor of the CPU, an array, a set or the like, as a part of a key."""

    of: Any


class CellView:
    """A closure's variable, asked like a mapping."""

    __slots__ = ("_cell",)

    def __init__(self, cell: types.CellType) -> None:
        self._cell = cell

    def get(self, key: str) -> Any:
        """Its value, whatever the key; None when it has none."""
        try:
            return self._cell.cell_contents
        except ValueError:
            return None

    def __setitem__(self, key: str, value: Any) -> None:
        self._cell.cell_contents = value


class SlotView:
    """An object with ``__slots__``, asked like a mapping."""

    __slots__ = ("_of",)

    def __init__(self, of: Any) -> None:
        self._of = of

    def get(self, key: str) -> Any:
        """The attribute; None when it has none."""
        return getattr(self._of, key, None)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self._of, key, value)


class ItemView:
    """A sequence, asked like a mapping."""

    __slots__ = ("_items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def get(self, key: int) -> Any:
        """The item at that place; None when there is none."""
        return self._items[key] if key < len(self._items) else None

    def __setitem__(self, key: int, value: Any) -> None:
        if not isinstance(self._items, MutableSequence):
            raise TypeError(f"a {type(self._items).__name__} does not change")
        self._items[key] = value


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
    versions: list[Watched] = field(default_factory=list)
    """Tensors of the CPU, and how often they had been written."""
    contents: list[Watched] = field(default_factory=list)
    """Arrays, sets and the like, with what ``contents_of`` gave."""
    moving: list[Watched] = field(default_factory=list)
    """Random generators and iterators, with what ``position_of`` gave. A call may find them anywhere."""
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
    optimizers: list[Any] = field(default_factory=list)

    unknown: str = ""
    """Why it cannot be known what a call finds; empty if it can."""
    ignored: frozenset[str] = frozenset()
    """Settings that are left out, at the user's word."""

    _guards: Any = None
    _others: list[tuple[Any, Any, Any]] = field(default_factory=list)
    _hooked: list[Any] = field(default_factory=list)
    _no_hooks: list[tuple[None, None]] = field(default_factory=list)
    _containers: list[Any] = field(default_factory=list)
    _lengths: list[int] = field(default_factory=list)

    def prepare(self) -> None:
        """Makes what ``still_holds`` needs, which has references of its own."""
        links = [(link.where, link.key, link.value, False) for link in self.links]
        links += [(mapping, key, NotImplemented, False) for mapping, key in self.absent]
        settings = [item for item in self.settings.values() if isinstance(item[0], dict)]
        links += [(mapping, key, value, True) for mapping, key, value in settings]
        # A list's elements are compared as a whole.
        self._others = [item for item in self.settings.values() if not isinstance(item[0], dict | ItemView)]
        self._hooked, self._no_hooks = [one.of for one in self.hooked], [(None, None)] * len(self.hooked)
        if any(hooks for _, hooks, _ in self.hooked):
            self._no_hooks = []  # never equal: each is looked at
        self._containers, self._lengths = [one.of for one in self.sizes], [one.contents for one in self.sizes]
        self._guards = native.Guards(links)  # which borrows what this object holds

    def still_holds(self) -> bool:
        """Whether every link leads where it did, and every setting has its value."""
        if self._guards is None:
            self.prepare()
        if not self._guards.hold():
            return False
        for sequence, items, _ in self.sequences:
            if len(sequence) != len(items) or not all(map(operator.is_, sequence, items)):
                return False
        if list(map(len, self._containers)) != self._lengths:
            return False
        if not all(
            len(mapping) == len(keys) and all(map(operator.is_, mapping, keys)) for mapping, keys, _ in self.orders
        ):
            return False
        if any(tensor._version != version for tensor, version, _ in self.versions):
            return False
        if any(where.get(key) is not value for where, key, value, _ in self.members):
            return False
        if any(contents_of(of) != contents for of, contents, _ in self.contents):
            return False
        if list(map(_hooks, self._hooked)) != self._no_hooks and any(
            hooks_of(tensor) != hooks for tensor, hooks, _ in self.hooked
        ):
            return False
        return all(equal(mapping.get(key), value) for mapping, key, value in self._others)

    def ignore(self, names: frozenset[str]) -> None:
        """Leaves settings out: they are not compared, and a replay does not change them."""
        self.ignored = names
        for name in names:
            self.settings.pop(name, None)

    def with_gradient(self) -> frozenset[str]:
        """The parameters that have a gradient."""
        return frozenset(name for name, parameter in self.parameters.items() if parameter.grad is not None)

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


def make_capturable(optimizer: Any) -> bool:
    """Lets an optimizer of torch count its steps on the device, so that its steps are all alike; whether it changed.

    That is torch's own option ``capturable``; the arithmetic is the same up to rounding.
    """
    import torch

    changed = False
    if isinstance(optimizer, torch.optim.Adadelta):  # whose option is not for these devices
        return False
    _before.setdefault(optimizer, [])
    for group in optimizer.param_groups:
        if "capturable" not in group or not group["params"] or group["params"][0].device.type != "xla":
            continue
        if not group["capturable"]:
            _before[optimizer].append((group, {key: group[key] for key in _COUNTING if key in group}))
            group["capturable"] = changed = True
            for key in ("foreach", "fused"):
                if key in group:
                    group[key] = False
        # Also of a group that is capturable already: it may be another optimizer's, too, that has no state.
        for parameter in group["params"]:
            slots: MutableMapping[str, Any] = optimizer.state.get(parameter, {})
            steps = slots.get("step")
            if isinstance(steps, torch.Tensor) and steps.device.type == "cpu":
                slots["step"] = steps.to(parameter.device)
                changed = True
    if changed and optimizer not in _counted_here:
        _counted_here.add(optimizer)
        optimizer.register_load_state_dict_post_hook(_count_in_default_type)
        if isinstance(optimizer, torch.optim.Adam):
            _stay_at_a_rate_of_zero(optimizer)
    return changed


_COUNTING = ("capturable", "foreach", "fused")

_before: weakref.WeakKeyDictionary[Any, list[tuple[dict[str, Any], dict[str, Any]]]] = weakref.WeakKeyDictionary()
"""Groups of optimizers that were made capturable, and their options before."""


def count_on_the_client(optimizers: Sequence[Any]) -> None:
    """Takes back what ``make_capturable`` has done: counting on the device costs a traced step more time, and each new
    value of an option that it computes with there a compilation. Waits for the counts."""
    import torch

    for optimizer in optimizers:
        for group, options in _before.pop(optimizer, ()):
            group.update(options)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"] if not group.get("capturable", True) else ():
                slots: MutableMapping[str, Any] = optimizer.state.get(parameter, {})
                steps = slots.get("step")
                if isinstance(steps, torch.Tensor) and steps.device.type == "xla":
                    slots["step"] = steps.cpu()


_counted_here: weakref.WeakSet[Any] = weakref.WeakSet()
"""Optimizers that were made capturable."""


def _count_in_default_type(optimizer: Any) -> None:
    """Loading gives float32 steps to capturable optimizers, which loses digits where torch counts in float64."""
    import torch

    if torch.get_default_dtype() is not torch.float64:
        return
    for slots in optimizer.state.values():
        if isinstance(slots.get("step"), torch.Tensor):
            slots["step"] = slots["step"].to(torch.float64)


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


def is_plain(value: Any) -> bool:
    """Whether a value can be compared and printed: what a guard can be put on."""
    if isinstance(value, PLAIN):
        return True
    if isinstance(value, tuple):
        return all(is_plain(item) for item in value)
    return isinstance(value, np.number | np.bool_)


def is_setting(value: Any) -> bool:
    """Whether a value is plain, or a type or device of torch."""
    import torch

    return is_plain(value) or isinstance(value, torch.dtype | torch.device)


def setting_key(value: Any) -> Any:
    """A setting as a part of a key, in which 0.0 and -0.0 are two."""
    if type(value) is float and value == 0.0:
        return "float", str(value)
    return type(value).__name__, value


def contents_of(value: Any) -> Any:
    """What is in an array, a set, a queue or bytes, to be compared; None for anything else."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return "array", value.shape, tuple(map(id, value.flat))
        mask = native.digest(np.ma.getmaskarray(value)) if isinstance(value, np.ma.MaskedArray) else None
        digest = native.digest(np.ascontiguousarray(value))
        return "array", str(value.dtype), value.shape, digest, mask, value.flags.writeable
    if isinstance(value, set | frozenset | collections.deque):
        members = [member_key(member) for member in value]
        return type(value), tuple(members) if isinstance(value, collections.deque) else frozenset(members)
    if isinstance(value, functools._lru_cache_wrapper):
        return "the cache", value.cache_info().misses, value.cache_info().currsize
    if isinstance(value, bytearray | array.array) or type(type(value)).__module__ == "_ctypes":
        return type(value), bytes(value)
    if isinstance(value, memoryview):
        return type(value), value.tobytes()
    if isinstance(value, contextvars.ContextVar):
        return "the variable", member_key(_value_of(value))
    if isinstance(value, types.MappingProxyType | collections.ChainMap):
        return type(value), tuple((member_key(key), member_key(item)) for key, item in value.items())
    if isinstance(value, threading.local):
        return type(value), tuple((key, member_key(item)) for key, item in vars(value).items())
    return None


def members_of(value: Any) -> Iterable[Any]:
    """The objects in what ``contents_of`` knows, in an order that stays as long as nobody writes there."""
    if isinstance(value, set | frozenset | collections.deque):
        return list(value)
    if isinstance(value, np.ndarray):
        return list(value.flat) if value.dtype.hasobject else ()
    if isinstance(value, contextvars.ContextVar):
        return (_value_of(value),)
    if isinstance(value, types.MappingProxyType | collections.ChainMap):
        return list(value.values())
    return list(vars(value).values()) if isinstance(value, threading.local) else ()


def _value_of(variable: contextvars.ContextVar[Any]) -> Any:
    try:
        return variable.get()
    except LookupError:
        return None


def member_key(value: Any) -> Any:
    """What a container holds, as a part of a key."""
    return value if is_plain(value) else Same(value)


def position_of(value: Any) -> Any:
    """How far a random generator or an iterator is, to be compared; None for anything else."""
    import torch

    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state())
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, types.CoroutineType) or hasattr(type(value), "__next__"):
        return _iterator_position(value, 0)
    return None


_EXACT_ITERATORS = ("builtins", "itertools")
"""Modules whose iterators say what they can be made again from, if they can."""


def _iterator_position(value: Any, depth: int) -> Any:
    """How far an iterator is, by what it can be made again from; something that equals nothing if that cannot be told,
    as of a generator or a file."""
    if type(value).__module__ not in _EXACT_ITERATORS:
        return object()
    try:
        state = value.__reduce__()
    except TypeError:
        return object()
    if not isinstance(state, tuple) or len(state) < 2 or not isinstance(state[1], tuple) or depth > 8:
        return object()
    parts: list[Any] = [len(state[1])]
    for part in (*state[1], *state[2:]):
        if hasattr(type(part), "__next__"):
            parts.append(_iterator_position(part, depth + 1))
        elif is_plain(part):
            parts.append(part)
        else:
            parts.append(len(part) if isinstance(part, list | dict | set) else None)
    return tuple(parts)


def hooks_of(tensor: Any) -> tuple[Any, ...]:
    """The hooks of a tensor that autograd calls, by their keys; empty for most."""
    found: tuple[Any, ...] = ()
    for hooks in (tensor._backward_hooks, tensor._post_accumulate_grad_hooks):
        if hooks:
            found += tuple(hooks)
    return found


def equal(one: Any, other: Any) -> bool:
    """Equal, and of one type: 1, 1.0 and True give other computations."""
    return one is other or (type(one) is type(other) and bool(one == other))


def floats(value: Any) -> Iterator[tuple[str, float]]:
    """The numbers in an option: ``("", 0.1)``, or one per element of a tuple of floats."""
    import torch

    if isinstance(value, float) or (isinstance(value, torch.Tensor) and value.device.type == "cpu"):
        yield "", float(value)
    elif isinstance(value, tuple) and value and all(isinstance(item, float) for item in value):
        for place, item in enumerate(value):
            yield f"[{place}]", item
