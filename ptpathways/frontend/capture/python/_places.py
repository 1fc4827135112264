"""Where a step's values lie: read and written as Python's own classes do it, whatever methods their classes have.

A list that gives other values than it holds, or an object that counts how often it is written, is as a replay left it
only if the replay goes past those methods: what they do, the call did while it was recorded.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Iterator
from typing import Any

MISSING = types.SimpleNamespace()
"""What is read where nothing is: a variable that was deleted, a slot that has not been assigned."""
_CONTAINERS = (collections.OrderedDict, dict, list, tuple, set, frozenset, collections.deque)
"""A class before those that it derives from."""


def _class_of_python(container: Any) -> Any:
    return next((kind for kind in _CONTAINERS if isinstance(container, kind)), type(container))


def elements(container: Any) -> Iterator[Any]:
    """What iterating gives, of a dictionary its keys."""
    iterator: Iterator[Any] = _class_of_python(container).__iter__(container)
    return iterator


def size(container: Any) -> int:
    """How many elements there are."""
    length: int = _class_of_python(container).__len__(container)
    return length


def items(mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """The keys and values of a dictionary."""
    return [*_class_of_python(mapping).items(mapping)]


def read(where: Any, key: Any) -> Any:
    """What a dictionary or a view has under that key, or ``MISSING``."""
    return dict.get(where, key, MISSING) if isinstance(where, dict) else where.get(key)


def write(where: Any, key: Any, value: Any) -> None:
    """Puts it into a dictionary, a list, a deque or a view."""
    _class_of_python(where).__setitem__(where, key, value)


def is_mutable(where: Any) -> bool:
    """Whether something can be put there: not into a tuple, nor what a class shows of its dictionary."""
    return isinstance(where, dict) or (isinstance(where, View) and where.is_mutable)


def are_one(first: Any, second: Any) -> bool:
    """Whether two dictionaries, or views, are of one object."""
    return first is second or (isinstance(first, View) and first.is_like(second))


class View:
    """What is not a dictionary, asked like one."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def get(self, key: Any, default: Any = MISSING) -> Any:
        """What is there, or ``default``."""
        raise NotImplementedError

    @property
    def is_mutable(self) -> bool:
        """Whether something can be put there."""
        return True

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError

    def is_like(self, other: Any) -> bool:
        """Whether the other one is a view of the same."""
        return type(self) is type(other) and self.of is other.of


class CellView(View):
    """A closure's variable, whatever the key."""

    __slots__ = ()

    def get(self, key: str, default: Any = MISSING) -> Any:
        try:
            return self.of.cell_contents
        except ValueError:
            return default

    def __setitem__(self, key: str, value: Any) -> None:
        self.of.cell_contents = value


class SlotView(View):
    """An object with ``__slots__``, or with members in C."""

    __slots__ = ()

    def get(self, key: str, default: Any = MISSING) -> Any:
        if key == "__class__":  # which a class may have a property for
            return type(self.of)
        try:
            return object.__getattribute__(self.of, key)
        except AttributeError:
            return default

    def __setitem__(self, key: str, value: Any) -> None:
        try:
            object.__setattr__(self.of, key, value)
        except TypeError:  # of a class in C that has a way of its own
            setattr(self.of, key, value)


class AttributeView(View):
    """What an object of a library gives, from wherever it has it."""

    __slots__ = ()

    def get(self, key: str, default: Any = MISSING) -> Any:
        return getattr(self.of, key, default)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self.of, key, value)


class ClassView(View):
    """What a class has itself, and not from its bases."""

    __slots__ = ()

    def get(self, key: str, default: Any = MISSING) -> Any:
        return vars(self.of).get(key, default)

    def __setitem__(self, key: str, value: Any) -> None:
        type.__setattr__(self.of, key, value)


class ItemView(View):
    """A list or a tuple."""

    __slots__ = ()

    def get(self, key: int, default: Any = MISSING) -> Any:
        kind = list if isinstance(self.of, list) else tuple
        return kind.__getitem__(self.of, key) if key < kind.__len__(self.of) else default

    @property
    def is_mutable(self) -> bool:
        return isinstance(self.of, list)

    def __setitem__(self, key: int, value: Any) -> None:
        list.__setitem__(self.of, key, value)
