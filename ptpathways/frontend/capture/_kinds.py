"""The kinds of calls that a captured step has met: which variant is each one's, and when they are too many."""

from __future__ import annotations

from typing import Any

from ptpathways.frontend.capture import _keys
from ptpathways.frontend.capture._keys import Key
from ptpathways.frontend.capture._variant import Variant
from ptpathways.frontend.capture.recording._step_arguments import advice_for

VARIANTS_MAX = 8
"""Kinds of calls that are known at a time."""
KINDS_MAX = 2 * VARIANTS_MAX
"""New kinds of calls, beside one in so many replays as follow: the first calls of a loop are often of kinds of their
own, before the optimizer has its state and parameters have gradients."""
KINDS_WITHOUT_REPLAY = 12
"""After so many and no replay that is said; a loop may be over before ``KINDS_MAX``."""
REPLAYS_PER_KIND = 20


class Kinds:
    """Variants by what each takes for granted, and how many kinds there were."""

    def __init__(self) -> None:
        self.variants: dict[Key, Variant] = {}
        self.changing: set[str] = set()
        """Settings that the step itself changes."""
        self.calls = 0
        self.met = 0
        """Kinds that were met as new ones."""

    def others(self, variant: Variant, granted: Any) -> list[tuple[Key, Variant]]:
        """Variants for such arguments, to which a step that changes its own settings may have gone from ``variant``."""
        if not self.changing:
            return []
        return [
            (key, other)
            for key, other in self.variants.items()
            if other is not variant and other.ready and other.granted == granted
        ]

    def too_many(self, key: Key, replays: int) -> str:
        """Counts a new kind of call; why it is one too many, or empty. ``replays``: how many there were."""
        self.met += 1
        few = self.met <= KINDS_MAX + replays // REPLAYS_PER_KIND
        return "" if few and not self._counts(key) else self.why_so_many(key)

    def make_room(self) -> None:
        """Forgets the variant that is worth least, if there is no room for another one."""
        if len(self.variants) >= VARIANTS_MAX:
            del self.variants[min(self.variants, key=lambda one: self.variants[one].worth())]

    def nearest(self, key: Key) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
        """What differs between ``key`` and the known one that is most like it: names, and the parts of both by name.

        The first calls are not asked unless there are no others.
        """
        lately = [one for one, kind in self.variants.items() if kind.ready or self.calls - kind.used < VARIANTS_MAX]
        return _keys.nearest(lately or self.variants, key)

    def why_so_many(self, key: Key) -> str:
        """In what the calls differed, and what to do about it."""
        if not self.variants:
            return f"its calls were of {self.met} kinds, in which it used its arguments in another way each time"
        new = _keys.named(key)
        differing = [name for known in self.variants for name in _keys.differing(_keys.named(known), new)]
        own = sorted(self.changing & set(differing))
        if own:
            return (
                f"it changes {own[0]} itself, and its calls were of {self.met} kinds (a counter that comes round "
                f"after at most {VARIANTS_MAX} is replayed); if nothing that it computes depends on that, say so: "
                f"pw.program(..., ignore=[{own[0]!r}])"
            )
        difference = _keys.difference_text(*self.nearest(key))
        return f"its calls were of {self.met} kinds; the last one differed in {difference}" + "".join(
            f"; {advice}" for name in dict.fromkeys(differing) if (advice := advice_for(name, new.get(name)))
        )

    def _counts(self, key: Key) -> bool:
        """Whether the step itself has given something another value at each call, more of them than are known."""
        if len(self.variants) < VARIANTS_MAX:
            return False
        seen = [_keys.named(one) for one in (*self.variants, key)]
        return any(len({one.get(name) for one in seen}) == len(seen) for name in self.changing)
