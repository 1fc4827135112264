"""Who holds the tensors that replays write over, where the function would make new ones.

Writing over is right as long as only captured steps hold them. Somebody who has got one since the last call is seen by
the counts of references: of the Python object, of the tensor below it, which a graph of autograd saves and another
tensor has as its gradient, and of its value, which ``detach()`` and views share. Other captured
steps refer to the same tensors (the two of a GAN to the discriminator's gradients); they say how often, and that is
counted apart.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ptpathways.frontend.capture.recording._results import References
from ptpathways.frontend.slices import _buffers as buffers

if TYPE_CHECKING:
    import torch

    from ptpathways.frontend.capture._variant import Variant


_ANY = 1 << 60
"""So often a tensor may be named."""


_Counts = tuple[int, int, int, int]
"""Names of a tensor, tensors that have its values, other uses of it, and which memory it had (``storage_of``)."""


class Holders:
    """Counts before and after the calls of one step. ``begin`` and ``end`` are around each of them, ``close`` is last.

    Args:
        variants: those of the step.
    """

    _all: ClassVar[weakref.WeakSet[Holders]] = weakref.WeakSet()
    _changes: ClassVar[int] = 0  # how often any step has come to hold others

    def __init__(self, variants: Callable[[], Sequence[Variant]]) -> None:
        self._variants = variants
        self._all.add(self)
        self._known: dict[int, tuple[torch.Tensor, _Counts]] = {}  # by id
        self._others: tuple[int, Counter[int], Counter[int]] = (-1, Counter(), Counter())
        self._kept = self._lent = frozenset[int]()
        self._left: list[torch.Tensor] = []
        self._moved = self._collects = False
        self._has_collected = self._frozen = False
        self._covered: Variant | None = None
        self._own: Collection[int] = ()
        self._same: frozenset[int] = frozenset()

    def clear(self) -> None:
        """Forgets all: any of them may be held."""
        Holders._changes += 1
        self._known.clear()
        self._covered = None

    def begin(self) -> None:
        """A call begins: finds those that have got one more holder since the last one."""
        import torch

        if self._others[0] != Holders._changes:
            if len(self._all) > 1:
                gc.collect()  # what other steps have dropped would count
            for one in list(self._all):
                one._count_others()
            self._take_over()
            self._covered = None
        names_of, values_of = sys.getrefcount, torch._C._storage_Use_Count  # there may be thousands
        self._kept = frozenset(
            number
            for number, (tensor, (names, values, uses, place)) in self._known.items()
            if names_of(tensor) > names
            or values_of(now := tensor.untyped_storage()._cdata) > (values if now == place else 1 + self._ours(now))
            or _uses(tensor) > uses
        )
        self._lent = frozenset(number for number in self._kept if not self._is_held_itself(number))
        self._moved = self._collects = False

    def _is_held_itself(self, number: int) -> bool:
        """Whether more than the values of a tensor are held: results of the last call may have those."""
        tensor, (names, _, uses, _) = self._known[number]
        return sys.getrefcount(tensor) > names or _uses(tensor) > uses

    def bound(self) -> None:
        """We hold others, or more, than before."""
        Holders._changes += 1
        self._moved, self._covered = True, None

    def record(self) -> None:
        """The function is about to run: what garbage of it is, ``end`` looks for.

        Only among what is made from here on, as there may be millions of objects. But the first call looks at all:
        what the program has let go before must not count as held.
        """
        if self._has_collected and gc.get_freeze_count() == 0:
            gc.freeze()
            self._frozen = True
        self._has_collected = True

    def close(self) -> None:
        """The call has ended, with or without ``end``."""
        if self._frozen:
            gc.unfreeze()
            self._frozen = False

    def recorded(self) -> None:
        """The same as ``bound``, after the function has run."""
        self.bound()
        self._collects = True

    def leave(
        self, tensors: Iterable[torch.Tensor], own: Collection[int] = (), moved: frozenset[int] = frozenset()
    ) -> None:
        """The call leaves these behind, new or written over; the step's caller has got those that it returns.

        ``own``: ids of the program's own objects, which may be among what it returns. ``moved``: of tensors that stay
        the same objects, so that only their memory counts.
        """
        self._left, self._own, self._same = list(tensors), own, moved

    def _take_over(self) -> None:
        """What other steps write over may be written over by this one, too: each makes gradients of one model."""
        for other in self._all:
            for number, known in other._known.items():
                self._known.setdefault(number, known)

    def held(self, variant: Variant) -> str:
        """Why a replay must not write over one of the tensors that it would; empty if it may write over all."""
        beside = variant.beside_ids
        kept = self._kept - (self._lent & beside) if beside else self._kept
        if not kept and variant is self._covered:
            return ""
        for name, tensor in variant.renewed:
            if id(tensor) not in self._known:
                return f"when {name} is a new tensor, to count who holds it"
        for name, tensor in (*variant.renewed, *variant.used_up):
            if id(tensor) in kept:
                return (
                    f"when {name} of an earlier call is still held, because a replay would write over it; hold, or "
                    "return, a copy (clone())"
                )
        self._covered = variant
        return ""

    def part(self, variant: Variant) -> bool:
        """Gives tensors that a replay would write over, and that have the memory of what another kind of call has
        returned, memory of their own, with the same values; whether there were any. This is traced."""
        beside = {number for one in self._kinds() for number in one.beside_ids} - variant.beside_ids
        parted = set()
        for _, tensor in variant.renewed if beside else ():
            if id(tensor) in beside and _values(tensor) > 1 + self._ours(buffers.storage_of(tensor)):
                tensor.data = tensor.detach().clone()
                parted.add(id(tensor))
        self._kept -= self._lent & parted
        return bool(parted)

    def _kinds(self) -> Iterator[Variant]:
        """The variants of all steps."""
        return (variant for holders in self._all for variant in holders._variants())

    def _ours(self, place: int) -> int:
        """How often captured steps hold a memory, beside the tensors that have it."""
        return sum(list(variant.held_storages()).count(place) for variant in self._kinds())

    def given(self, result: Any) -> References:
        """What the caller gets of a call."""
        return References(result, self._own) if self._moved else References()

    def end(self, given: References) -> None:
        """The call ends. Those that are held are ours, but for what somebody had got before it, and gets now."""
        if self._moved:
            self._measure(self._variants(), given)
        self._left, self._own = [], ()

    def _count_others(self) -> None:
        """Counts anew what other steps hold; what they let go, or came to hold, is nobody else's."""
        _, old_names, old_values = self._others
        names: Counter[int] = Counter()
        values: Counter[int] = Counter()
        for other in self._all:
            if other is self:
                continue
            held = [tensor for variant in other._variants() for tensor in variant.held()]
            names.update(map(id, (*held, *other._left, *(tensor for tensor, _ in other._known.values()))))
            for variant in other._variants():
                values.update(variant.held_storages())
        self._others = (Holders._changes, names, values)
        for number, (tensor, (all_names, all_values, uses, place)) in list(self._known.items()):
            counts = (
                all_names - old_names[number] + names[number],
                all_values - old_values[place] + values[place],
                uses,
                place,
            )
            self._known[number] = tensor, counts

    def _measure(self, variants: Sequence[Variant], given: References) -> None:
        if self._collects:
            gc.collect()  # a cycle of ours would count
        latest, self._left = {id(tensor): (tensor, (0, 0, 0, 0)) for tensor in self._left}, []
        self._known = {number: one for number, one in self._known.items() if _is_written(number, variants)} | latest
        counts = {
            number: (
                _ANY if number in self._same else sys.getrefcount(tensor) - given.names[number],
                _values(tensor) - given.values(tensor),
                _ANY if number in self._same else _uses(tensor),
                buffers.storage_of(tensor),
            )
            for number, (tensor, _) in self._known.items()
        }
        for number, (tensor, _) in list(self._known.items()):
            if number in latest or number not in self._kept:
                self._known[number] = tensor, counts[number]


def _is_written(number: int, variants: Collection[Variant]) -> bool:
    return any(
        id(tensor) == number
        for variant in variants
        for tensor in (*variant.made, *(tensor for _, tensor in variant.renewed))
    )


def _values(tensor: torch.Tensor) -> int:
    """How many tensors have this one's value."""
    import torch

    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))


def _uses(tensor: torch.Tensor) -> int:
    """How many hold this one beside Python's names of it: as a gradient, or saved for a backward pass."""
    return int(tensor._use_count())  # type: ignore[attr-defined]
