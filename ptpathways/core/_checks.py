"""Checks of what a user gives to a function, with the words that errors have: what is required, what was got."""

from __future__ import annotations

import numbers
import operator
import os
from collections.abc import Iterable
from typing import Any

SECONDS_MAX = 1e9
"""Thirty years: clocks count nanoseconds in 64 bits, and infinity is not among them."""


def check_seconds(value: Any, name: str = "timeout_s") -> float:
    """``value``, as a number of seconds that every clock can wait for: infinity becomes ``SECONDS_MAX``.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative, or not a number of seconds that ends a wait (NaN).
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number of seconds, got {value!r}")
    number = float(value)
    if not number >= 0:
        raise ValueError(f"{name} must be a number of seconds from 0, got {value!r}")
    return min(number, SECONDS_MAX)


def whole_number(value: Any, name: str, least: int | None = None) -> int:
    """``value`` as an int, from anything that counts (NumPy's integers, too).

    Raises:
        TypeError: it is none; booleans are not.
        ValueError: it is less than ``least``.
    """
    if not isinstance(value, bool):
        try:
            number = operator.index(value)
        except TypeError:
            pass
        else:
            if least is not None and number < least:
                raise ValueError(f"{name} must be at least {least}, got {value!r}")
            return number
    raise TypeError(f"{name} must be a whole number, got {value!r}")


def check_text(value: Any, name: str) -> None:
    """Raises TypeError unless it is a text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, got {value!r}")


def check_switch(value: Any, name: str) -> None:
    """Raises TypeError unless it is True or False (NumPy's, too)."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def texts(value: Any, name: str) -> tuple[str, ...]:
    """Some texts. Raises TypeError if they are none, among them a single text, which also is a row of texts."""
    found = None if isinstance(value, str | bytes) or not isinstance(value, Iterable) else tuple(value)
    if found is None or not all(isinstance(one, str) for one in found):
        raise TypeError(f"{name} must be a list of texts, got {value!r}")
    return found


def path_text(value: Any, name: str = "path") -> str:
    """A path as text.

    Raises:
        TypeError: it is neither a text nor a ``pathlib.Path``, or one of bytes.
        ValueError: it is empty, has a NUL in it, or cannot be written in UTF-8.
    """
    found = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(found, str):
        raise TypeError(f"{name} must be a text or a pathlib.Path, got {value!r}")
    if not found or "\0" in found:
        raise ValueError(f"{name} must name a file or a folder, got {value!r}")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be a name in UTF-8, got {value!r}") from None
    return found
