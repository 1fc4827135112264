"""Reading the variables of functions that are running."""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

_REFERENCES = 3
"""To a dictionary that a frame and one variable have, and the argument of the function that counts."""


def variables_of(frame: FrameType) -> dict[str, Any]:
    """What the variables of a frame are now, by name, in a dictionary of its own.

    Until Python 3.13 a frame keeps the dictionary that it was asked for, and that keeps what the variables had then
    alive, when they have got other values. So it is emptied, unless somebody has it (``locals()``) or a debugger may
    write the variables from it.
    """
    kept = frame.f_locals
    found = dict(kept)
    own = bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED) and sys.version_info < (3, 13)
    if own and sys.gettrace() is None and sys.getrefcount(kept) == _REFERENCES:
        kept.clear()
    return found
