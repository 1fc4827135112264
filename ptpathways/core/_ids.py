"""Names and numbers for things that are told apart."""

from __future__ import annotations

import itertools
import secrets
import string

MAX_NAME_BYTES = 128
"""Of a host's or client's name (csrc/wire/identity.h)."""
_ALPHABET = string.ascii_lowercase + string.digits


class Counter:
    """Numbers 1, 2, 3, ... Safe to use from several threads (``next`` on ``itertools.count`` is one C call)."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def take(self) -> int:
        return next(self._numbers)


def random_name(prefix: str, length: int = 8) -> str:
    """``prefix-xxxxxxxx`` with ``length`` random lower-case letters and digits: 41 bits by default."""
    return f"{prefix}-" + "".join(secrets.choice(_ALPHABET) for _ in range(length))
