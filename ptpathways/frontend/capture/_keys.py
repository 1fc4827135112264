"""What a replay takes for granted, part by part, and how two calls differ in it."""

from __future__ import annotations

from typing import Any

from ptpathways.frontend.capture.recording._step_arguments import ABSENT, text_of

Key = tuple[tuple[str, Any], ...]
"""What a replay takes for granted, each with what to call it."""


def named(key: Key) -> dict[str, Any]:
    """The parts of a key by name; where several have one name, those together."""
    found: dict[str, list[Any]] = {}
    for name, part in key:
        found.setdefault(name, []).append(part)
    return {name: parts[0] if len(parts) == 1 else tuple(parts) for name, parts in found.items()}


def differing(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The names of what differs between two keys."""
    return [name for name in {**old, **new} if old.get(name, ABSENT) != new.get(name, ABSENT)]


def difference_text(names: list[str], old: dict[str, Any], new: dict[str, Any]) -> str:
    """``names`` with what they were and are; empty: everything is there, in another order."""
    if not names:
        moved = next((one for one, other in zip(new, old, strict=True) if one != other), "what it reaches")
        return f"{moved} (in another order)"
    best = []
    for name in names[:3]:
        texts = [text_of(of.get(name, ABSENT)) for of in (old, new)]
        best.append(f"{name} ({' -> '.join(texts)})" if texts[0] != texts[1] else f"{name} (another one: {texts[0]})")
    return ", ".join(best) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
