"""What a captured step returns, and which of it is not new: the program's own objects, and tensors that share memory.

A replay gives new tensors and containers. Where the function gives an object of the program's own, or another tensor
on the memory of a parameter, the replay gives that, too. Where it cannot, the step is not replayed.
"""

from __future__ import annotations

import collections
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.capture.objects._reachable import Surroundings
from ptpathways.frontend.capture.python._contents import Same, is_setting
from ptpathways.frontend.capture.recording._probe import Probe
from ptpathways.frontend.plans._wiring import Again, Alias, Feed, Held, Option, Own, State, Uncapturable
from ptpathways.frontend.slices import _buffers as buffers

if TYPE_CHECKING:
    import torch

_CONTAINERS = (list, dict, collections.deque)
"""Classes of containers that can be written, and so can contain themselves."""


def flatten(result: Any, own: Collection[int] = ()) -> tuple[list[Any], Any, list[Any]]:
    """The leaves of what a call returned, their tree, and its lists and dictionaries.

    A container that was met before is a leaf. A ``torch.Size`` is one, too: pytrees would make a tuple of it.

    Args:
        own: ids of the program's own objects, which are not looked into.
    """
    import torch
    from torch.utils import _pytree as pytree

    met: dict[int, Any] = {}

    def is_leaf(node: Any) -> bool:
        if id(node) in own or isinstance(node, torch.Size):
            return True
        if not isinstance(node, _CONTAINERS):
            return False
        if id(node) in met:
            return True
        met[id(node)] = node
        return False

    leaves, tree = pytree.tree_flatten(result, is_leaf=is_leaf)
    containers = list(met.values())
    met.clear()  # torch's recursive function and ``is_leaf`` stay until the garbage is collected, and results with them
    return leaves, tree, containers


def objects(surroundings: Surroundings) -> dict[str, Any]:
    """The program's own objects by name, without tensors."""
    import torch

    found: dict[str, Any] = {}
    for link in (*surroundings.links, *surroundings.members):
        if not isinstance(link.value, torch.Tensor):
            found.setdefault(link.name, link.value)
    for watched in (*surroundings.sequences, *surroundings.sizes):
        found.setdefault(watched.name, watched.of)
    return found


class References:
    """How often a result holds each tensor: what its caller has of it."""

    def __init__(self, result: Any = (), own: Collection[int] = ()) -> None:
        import torch

        leaves = [leaf for leaf in flatten(result, own)[0] if isinstance(leaf, torch.Tensor)]
        self.names = Counter(map(id, leaves))
        storages = {id(leaf): buffers.storage_of(leaf) for leaf in leaves}
        self._storages = Counter(storages.values())
        self._by_id = storages

    def values(self, tensor: torch.Tensor) -> int:
        """How many other tensors in it have this one's memory."""
        if not self._storages:
            return 0
        return self._storages[buffers.storage_of(tensor)] - (id(tensor) in self._by_id)


@dataclass(slots=True)
class Known:
    """Tensors that a call began with or has left behind, and its arguments."""

    states: Mapping[str, torch.Tensor]
    renewed: Collection[str]
    moved: Collection[str]
    """Those of ``renewed`` that stay the same objects, with other memory."""
    leaves: Sequence[Any]
    containers: Collection[int]
    """The lists, dictionaries and opened objects among the arguments, by id."""
    own: Mapping[int, str]
    """Names of the program's own objects, by id."""
    began: Collection[int]
    """The memory of tensors that were there when the call began (``_buffers.storage_of``)."""


def classify(returned: Sequence[Any], containers: Sequence[Any], known: Known) -> tuple[list[Any], dict[str, int]]:
    """What each leaf of a result is, for the wiring, and by name the tensors that the call has made and left behind on
    the memory of a result, with the place of that result among the leaves.

    Raises:
        Uncapturable: a replay would return something else.
    """
    return _Classifier(known).go(returned, containers)


def check_parts(left: Mapping[str, torch.Tensor], repeating: Collection[str]) -> None:
    """Raises Uncapturable when two of the tensors that a call has made and left behind are views of one, or one has an
    element at several places: a replay writes each place by itself.

    Args:
        left: those tensors, by name.
        repeating: names of tensors for which ``_views.repeats`` holds.
    """
    first: dict[int, str] = {}
    for name, tensor in left.items():
        if name in repeating:
            raise Uncapturable(
                f"it leaves a view behind, as {name}, which may repeat elements (expand()), and a replay would give "
                "each its own memory; leave a copy (clone())"
            )
        other = first.setdefault(buffers.storage_of(tensor), name)
        if other != name and not _is_whole(tensor, buffers.token_of(tensor), left[other]):
            raise Uncapturable(
                f"it leaves two parts or views of one tensor behind, as {other} and {name}, and a replay would write "
                "each by itself; leave copies (clone())"
            )


class _Classifier:
    def __init__(self, known: Known) -> None:
        import torch

        self._known = known
        self._name_of = {id(tensor): name for name, tensor in reversed(list(known.states.items()))}
        self._states: dict[int, list[str]] = {}  # by storage
        for name, tensor in known.states.items():
            self._states.setdefault(buffers.storage_of(tensor), []).append(name)
        self._feeds: dict[int, int] = {}
        self._arguments: dict[int, int] = {}  # by storage
        for number, leaf in enumerate(known.leaves):
            if isinstance(leaf, torch.Tensor):
                self._feeds.setdefault(id(leaf), number)
                if leaf.device.type == "xla":
                    self._arguments.setdefault(buffers.storage_of(leaf), number)
        self._results: dict[int, int] = {}
        self._beside: dict[str, int] = {}

    def go(self, returned: Sequence[Any], containers: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
        from torch.utils import _pytree as pytree

        for node in (*containers, *returned):
            if id(node) in self._known.containers:
                raise Uncapturable(
                    f"it returns a {type(node).__name__} that it was given, and a replay would return another one; "
                    "return what is in it"
                )
        met = set(map(id, containers))
        for node in returned:
            if isinstance(node, _CONTAINERS) and id(node) in met and type(node) in pytree.SUPPORTED_NODES:
                raise Uncapturable(
                    f"it returns one {type(node).__name__} at two places of its result, or in itself, and a replay "
                    f"would return two; return a copy ({type(node).__name__}(...)) at one of them"
                )
        items = [self._item(place, item, returned) for place, item in enumerate(returned)]
        places: dict[int, int] = {}
        for place, item in enumerate(items):
            first = places.setdefault(id(returned[place]), place)
            if isinstance(item, Alias) and first < place:
                items[place] = Again(first)
        return items, self._beside

    def _item(self, place: int, item: Any, returned: Sequence[Any]) -> Any:
        import torch

        if isinstance(item, Probe):
            return Option(item._text, item._compute)
        if not isinstance(item, torch.Tensor):
            name = self._known.own.get(id(item))
            if name is not None and not is_setting(item):
                return Own(name)
            return item if is_setting(item) else Same(item)
        if id(item) in self._name_of:
            return State(self._name_of[id(item)])
        if id(item) in self._feeds:
            return Feed(self._feeds[id(item)])
        token = buffers.token_of(item) if item.device.type == "xla" else None
        if token is None:
            raise Uncapturable(f"it returns a tensor on {item.device}; return the one on the device")
        if lost := _lost(item):
            raise Uncapturable(f"it returns {lost}")
        storage = buffers.storage_of(item)
        if storage in self._states:
            lasting = [name for name in self._states[storage] if name not in self._known.renewed]
            if lasting:
                if not _is_whole(item, token, self._known.states[lasting[0]]):
                    raise Uncapturable(f"it returns a view of {lasting[0]}, {OWN}")
                return Alias(State(lasting[0]))
            self._check_beside(item, token, returned)
            self._beside.update(dict.fromkeys(self._states[storage], self._results.get(storage, place)))
        elif storage in self._arguments:
            number = self._arguments[storage]
            if not _is_whole(item, token, self._known.leaves[number]):
                raise Uncapturable(f"it returns a view of argument {number}, {OWN}")
            return Alias(Feed(number))
        first = self._results.setdefault(storage, place)
        if first == place or returned[first] is item:
            return Held(token)
        if _is_whole(item, token, returned[first]):
            return Alias(first)
        raise Uncapturable(
            "it returns two tensors that share memory, one of them a part or another view of the other, and a replay "
            "would return two with memory of their own; return a copy (clone()) of one"
        )

    def _check_beside(self, item: torch.Tensor, token: int, returned: Sequence[Any]) -> None:
        """Raises Uncapturable when a result shares memory with something that the call has left behind in a way that a
        replay would not: it lets both have the memory of the result."""
        storage = buffers.storage_of(item)
        for name in self._states[storage]:
            state = self._known.states[name]
            if any(one is state for one in returned):
                raise Uncapturable(f"it returns {name} and a view of it, {OWN}")
            if name in self._known.moved:
                raise Uncapturable(f"it returns what it gives {name} for its memory (.data = ...), {OWN}")
            if storage in self._known.began or not _is_whole(item, token, state):
                raise Uncapturable(f"it returns a view of {name}, {OWN}")


OWN = "and a replay would return a tensor with memory of its own; return a copy (clone()), or the tensor itself"


def _lost(item: torch.Tensor) -> str:
    """What a tensor that the call has made has beside its values, so that a replay would return another one; empty if
    it has nothing else."""
    import torch

    if type(item) is not torch.Tensor:
        return (
            f"a {type(item).__qualname__} that it makes, and a replay would return a plain tensor; return a tensor, "
            f"and make the {type(item).__qualname__} outside"
        )
    if attributes := vars(item):
        return (
            f"a tensor with the attribute {next(iter(attributes))!r}, and a replay would return one without it; return "
            "the value of the attribute beside the tensor, or set it outside"
        )
    if (item.is_leaf or item.retains_grad) and item.grad is not None:
        return (
            "a tensor with a gradient, and a replay would return one without it; return the gradient beside the tensor "
            "(tensor.grad)"
        )
    if item.is_leaf and item.requires_grad:
        return (
            "a tensor that requires a gradient, and a replay would return one that requires none; call "
            "requires_grad_() outside"
        )
    return ""


def _is_whole(item: torch.Tensor, token: int | None, other: torch.Tensor) -> bool:
    """Whether a tensor is another one's ``detach()``, and no part of it."""
    return item.shape == other.shape and item.dtype == other.dtype and buffers.token_of(other) == token


def has_live_graph(returned: Sequence[Any]) -> bool:
    """Whether a result has a gradient history that no backward pass has used up.

    One that keeps no tensors, as of a sum, cannot be used up: a step that writes gradients need not be asked.
    """
    import torch

    roots = [item.grad_fn for item in returned if isinstance(item, torch.Tensor) and item.grad_fn is not None]
    return any(True not in _freed(root) for root in roots)


def keeps_values(tensor: Any) -> bool:
    """Whether the gradient history of a tensor keeps others' values, and no backward pass has used it up."""
    return set(_freed(tensor.grad_fn)) == {False}


def has_own_gradient(tensor: Any) -> bool:
    """Whether a tensor that was computed has or retains a gradient, as a parameter has one."""
    if tensor.grad_fn is None:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, where it has none
        return tensor.retains_grad or tensor.grad is not None


def _freed(root: Any) -> Iterator[bool]:
    """Of each tensor that a gradient history keeps, whether a backward pass has freed it."""
    import torch
    from torch.utils import _pytree as pytree

    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        for name in dir(node):
            if not name.startswith("_saved_") and name != "saved_tensors":
                continue
            try:
                kept = getattr(node, name)
            except RuntimeError:  # its saved tensors are freed
                yield True
            else:
                yield from (False for one in pytree.tree_leaves(kept) if isinstance(one, torch.Tensor))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
