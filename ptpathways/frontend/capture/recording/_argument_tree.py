"""Batches among the arguments that are objects of some class: what is in them is given to a replay, as of a tuple.

An object that is made anew for each call (a data class, a tokenizer's ``BatchEncoding``) is a batch. One that stays
from call to call may be state of the program: the walk looks into it.
"""

from __future__ import annotations

import argparse
import collections
import functools
import types
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from ptpathways.frontend.capture.python import _layout, _whose
from ptpathways.frontend.capture.python._contents import PLAIN, Same, attributes_key, attributes_of, object_key
from ptpathways.frontend.capture.python._places import elements, items

if TYPE_CHECKING:
    from torch.utils._pytree import TreeSpec

_CONTAINERS = frozenset({dict, list, tuple, collections.OrderedDict, collections.defaultdict})
_NODES = (dict, list, tuple)
_NAMES = frozenset({str})
_KNOWN = (collections.UserDict, types.SimpleNamespace, argparse.Namespace)


class Opened(NamedTuple):
    """The structure of arguments among which are opened ones, as a part of a key."""

    of: TreeSpec
    objects: tuple[tuple[int, Same, int, Any], ...]
    """Place among its leaves, class, the first that is the same object, and structure of what is in it."""
    containers: tuple[Any, ...]
    """What pytrees do not compare: attributes of its containers, and keys of dictionaries that are objects."""


class Arguments:
    """The leaves of a tree of arguments, with those of the objects in it that are batches.

    Args:
        batches: which objects are.
        places: among the leaves of the tree, of those that were at another look; without, it is looked at them.
    """

    def __init__(self, tree: Any, batches: Batches, places: frozenset[int] | None = None) -> None:
        self._home = batches.home
        self.opened: list[Any] = []
        """The objects that are opened."""
        self.contents: list[Any] = []
        """What is in each of them."""
        leaves, structure, noted = _flatten(tree)
        if places is None:
            batches.look(leaves)
        self.places = frozenset(batches.places) if places is None else places
        self.leaves: list[Any] = [] if self.places else leaves
        self.structure: TreeSpec | Opened
        if self.places:
            self.structure = self._open(leaves, structure, noted, self.places)
        else:
            self.structure = Opened(structure, (), noted) if noted else structure

    def _open(
        self, leaves: list[Any], structure: TreeSpec, noted: tuple[Any, ...], places: frozenset[int] | None
    ) -> Opened:
        """``places``: None for all objects that have tensors."""
        found = []
        for place, leaf in enumerate(leaves):
            fields = None
            if place in places if places is not None else not isinstance(leaf, PLAIN):
                fields = fields_of(leaf, self._home)
            if fields is None or (places is None and not _has_tensors(fields)):
                self.leaves.append(leaf)
                continue
            first = next((number for number, one in enumerate(self.opened) if one is leaf), len(self.opened))
            self.opened.append(leaf)
            self.contents.append(fields)
            inside = None if first < len(self.opened) - 1 else self._open(*_flatten(fields), None)
            found.append((place, Same(type(leaf)), first, inside))
        return Opened(structure, tuple(found), noted)


def _flatten(tree: Any) -> tuple[list[Any], TreeSpec, tuple[Any, ...]]:
    """The leaves of a tree, its structure, and what that does not say of its containers."""
    from torch.utils import _pytree as pytree

    noted: list[Any] = []
    met: list[int] = []
    leaves, structure = pytree.tree_flatten(tree, is_leaf=functools.partial(_note, noted, met))
    if len(set(met)) < len(met):
        noted.append(("which are one", tuple(map(met.index, met))))
    found = tuple(noted)
    noted.clear()  # torch's recursive function keeps the list until the garbage is collected
    return leaves, structure, found


def _note(noted: list[Any], met: list[int], node: Any) -> bool:
    """Of a container, to ``noted``, what its structure does not say; to ``met`` the ids of those that can change."""
    if not isinstance(node, _NODES):
        return False
    if isinstance(node, list | dict):
        met.append(id(node))
    if isinstance(node, dict) and not _NAMES.issuperset(map(type, elements(node))):
        noted.append(tuple(map(object_key, elements(node))))
    if type(node) not in _CONTAINERS and (attributes := attributes_key(node)):
        noted.append(attributes)
    return False


class Batches:
    """Which arguments are batches, as far as the calls until now have shown."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.places: set[int] = set()
        self._last: dict[int, Callable[[], Any]] = {}

    def look(self, leaves: Collection[Any]) -> None:
        """At the arguments of one more call."""
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, PLAIN) or place in self.places:
                continue
            last = self._last.get(place)
            if last is not None and last() is leaf:
                continue
            fields = fields_of(leaf, self.home)
            if fields is None:
                continue
            if last is not None:
                self.places.add(place)
                del self._last[place]
            else:
                self._last[place] = _reference(leaf)


def _reference(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:  # of a class with slots
        return lambda: value


def fields_of(value: Any, home: str) -> Any:
    """What an object consists of, as containers that pytrees know; None for one that is not a mere record."""
    import torch

    kind = type(value)
    if isinstance(value, _KNOWN):
        return dict(vars(value))
    if isinstance(value, dict):
        attributes = getattr(value, "__dict__", None)
        return [items(value), None if attributes is value else dict(attributes or {})]
    if isinstance(value, types.MappingProxyType):
        return list(value.items())
    if isinstance(value, collections.ChainMap):
        return [list(value.maps), dict(vars(value))]
    if (
        isinstance(value, torch.Tensor | torch.nn.Module | torch.optim.Optimizer | BaseException | type)
        or callable(value)
        or hasattr(kind, "__next__")
        or not _whose.is_users(kind, home)
        or _layout.is_made_of_c(kind)
    ):
        return None
    return attributes_of(value)


def _has_tensors(fields: Any) -> bool:
    import torch
    from torch.utils import _pytree as pytree

    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(fields))
