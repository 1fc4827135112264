"""What a replay takes for granted, part by part, and how two calls differ in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ptpathways.frontend.capture.objects._reachable import Surroundings
from ptpathways.frontend.capture.python import _contents
from ptpathways.frontend.capture.recording._step_arguments import ABSENT, Call, tensor_key, text_of
from ptpathways.frontend.slices import _buffers as buffers

Key = tuple[tuple[str, Any], ...]
"""What a replay takes for granted, each with what to call it."""
RETAINING = "which tensors retain their gradients"
"""Part of a key: their names."""
SHARING = "which tensors share one value"
"""Part of a key: names of those that do, of arguments and of what the step reaches."""


def key_of(call: Call, surroundings: Surroundings) -> Key:
    """What a replay of a call would take for granted: of its arguments, of torch's modes, and of what it reaches."""
    structure, leaves, alike, modes = call.granted
    parts: list[tuple[str, Any]] = [("the structure of the arguments", structure)]
    for number, leaf in enumerate(leaves):
        if f"argument {number}" not in surroundings.kinds:  # else the walk has looked into it
            parts.append((f"argument {number}", leaf))
    parts.append(("which arguments are one", alike))
    parts += modes
    parts += [(f"how argument {number} lies", way) for number, way in call.lying.items()]
    for name, (_, _, value) in surroundings.settings.items():
        parts.append((name, _contents.setting_key(value)))
    parts += [(name, float) for name in surroundings.options]  # whose values are no part of it
    parts += [(name or "the function", kind) for name, kind in surroundings.kinds.items()]
    for name, tensor in surroundings.tensors.items():
        if not name.endswith(".grad"):
            parts.append((name, tensor_key(tensor)))
    parts.append(("which parameters have gradients", surroundings.with_gradient()))
    parts.append((RETAINING, frozenset(name for name, tensor in surroundings.tensors.items() if tensor.retains_grad)))
    parts.append((SHARING, buffers.sharing({**call.tensors(), **surroundings.tensors}, call.tensors().keys())))
    return tuple(parts)


def named(key: Key) -> dict[str, Any]:
    """The parts of a key by name; where several have one name, those together."""
    found: dict[str, list[Any]] = {}
    for name, part in key:
        found.setdefault(name, []).append(part)
    return {name: parts[0] if len(parts) == 1 else tuple(parts) for name, parts in found.items()}


def differing(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The names of what differs between two keys."""
    return [name for name in {**old, **new} if old.get(name, ABSENT) != new.get(name, ABSENT)]


def nearest(known: Iterable[Key], key: Key) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """What differs between ``key`` and the known one that is most like it: names, and the parts of both by name."""
    new = named(key)
    old = min(map(named, known), key=lambda old: len(differing(old, new)))
    return differing(old, new), old, new


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
