"""Where objects of a class keep what they have: in a dictionary, in slots, or in C."""

from __future__ import annotations

import struct
import types
from typing import Any

MADE_BY_PYTHON = 1 << 9
"""Of a class's flags: it was made by a class statement (``Py_TPFLAGS_HEAPTYPE``)."""
_WORD = struct.calcsize("P")


def members_in_c(kind: type) -> list[str]:
    """The attributes that objects of a class have elsewhere than in a dictionary: in slots, or in C."""
    members = types.MemberDescriptorType
    return sorted({name for base in kind.__mro__ for name, value in vars(base).items() if isinstance(value, members)})


def has_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") or any(map(slots, type(value).__mro__))


def slots(kind: type) -> tuple[str, ...]:
    """The attributes that a class keeps in slots."""
    if "__slots__" not in vars(kind):
        return ()
    # Not by what is written there: a name may be private, the list may have been changed, or gone through.
    return tuple(name for name, value in vars(kind).items() if isinstance(value, types.MemberDescriptorType))


def is_made_of_c(kind: type) -> bool:
    """Whether objects of a class have room for more than its attributes, as those of classes written in C."""
    return any(has_more(base) for base in kind.__mro__)


def has_more(kind: type) -> bool:
    if kind.__base__ is None:
        return False
    words = len(slots(kind)) + sum(name in vars(kind) for name in ("__dict__", "__weakref__"))
    return kind.__basicsize__ - kind.__base__.__basicsize__ > words * _WORD
