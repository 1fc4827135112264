"""Checks of what a user gives to a function, with the words that errors have: what is required, what was got."""

from __future__ import annotations

import numbers
import operator
from typing import Any


def check_seconds(value: Any, name: str = "timeout_s") -> None:
    """
    Raises:
        TypeError: it is no number.
        ValueError: it is negative, or not a number of seconds that ends a wait (NaN).
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number of seconds, got {value!r}")
    if not float(value) >= 0:
        raise ValueError(f"{name} must be a number of seconds from 0, got {value!r}")


def whole_number(value: Any, name: str) -> int:
    """``value`` as an int, from anything that counts (NumPy's integers, too).

    Raises:
        TypeError: it is none; booleans are not.
    """
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} must be a whole number, got {value!r}")
