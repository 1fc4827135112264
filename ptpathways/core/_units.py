"""Amounts as text."""

from __future__ import annotations

import re

from ptpathways.core._errors import InvalidOption

_TOO_MUCH = 2**63


def parse_bytes(text: str) -> int:
    """``"1048576"``, ``"512MiB"`` or ``"1.5 GiB"`` in bytes.

    Raises:
        InvalidOption: it is none of these, or not positive.
    """
    units = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    size = float(match[1]) * units.get(match[2].lower(), 0) if match else 0.0
    if not 1 <= size < _TOO_MUCH:
        raise InvalidOption(f"an amount of memory must be bytes or a number with KiB, MiB, GiB or TiB, got {text!r}")
    return int(size)


def memory_limit(text: str) -> int:
    """A device's limit of memory in bytes; 0 for none, which is the empty text.

    Raises:
        InvalidOption: as ``parse_bytes``, or less than a mebibyte, which no program fits in.
    """
    found = parse_bytes(text) if text else 0
    if 0 < found < 2**20:
        raise InvalidOption(
            f"option memory_per_device must be at least 1MiB, got {text!r}, which is {found} bytes; give a unit, as in "
            "512MiB or 16GiB"
        )
    return found


def format_bytes(count: int) -> str:
    """``parse_bytes`` the other way, for people: ``"512 B"``, ``"1.5 GiB"``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
