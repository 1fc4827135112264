"""How PyTorch/XLA's random generators go on: at each operation that draws, and at each cut of the trace. Pure.

A cut takes the seed that the generator had at the last one, however much was drawn since.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

MASK = (1 << 64) - 1
_CUT = (7012063, 1012031)
"""The seed after a cut is ``a * seed + b`` (mod 2**64)."""
_DRAW = (214013, 2531011)
"""And the same after an operation has drawn from it."""
_CUTS_MAX, _DRAWS_MAX = 4, 128
_CUTS_BETWEEN_MAX = 16


def seed_after(seed: int, cuts: int) -> int:
    """A device's seed after so many cuts."""
    for _ in range(cuts):
        seed = (_CUT[0] * seed + _CUT[1]) & MASK
    return seed


def seed_at_cut(known: int, now: int) -> int:
    """A device's seed at the last cut, where it is ``now``.

    Args:
        known: what it was at some cut before. If ``now`` does not follow from that, somebody has set it since: then
            nothing has been drawn, as far as is known.
    """
    for _ in range(_CUTS_BETWEEN_MAX if now != known else 0):
        drawn = known
        for _ in range(_DRAWS_MAX):
            if drawn == now:
                return known
            drawn = (_DRAW[0] * drawn + _DRAW[1]) & MASK
        known = seed_after(known, 1)
    return now


@functools.lru_cache(maxsize=16)
def seed_chain(seed: int) -> Mapping[int, tuple[int, int]]:
    """Every seed that a step beginning with ``seed`` may give to a computation: multiplier and addend."""
    chain: dict[int, tuple[int, int]] = {}
    cut = (1, 0)
    for _ in range(_CUTS_MAX):
        drawn = cut
        for _ in range(_DRAWS_MAX):
            chain.setdefault((drawn[0] * seed + drawn[1]) & MASK, drawn)
            drawn = _after(drawn, _DRAW)
        cut = _after(cut, _CUT)
    return chain


def _after(first: tuple[int, int], then: tuple[int, int]) -> tuple[int, int]:
    """The affine map ``then(first(x))``."""
    return (then[0] * first[0]) & MASK, (then[0] * first[1] + then[1]) & MASK
