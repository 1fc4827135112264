"""Who holds the tensors that replays write over, where the function would make new ones.

Writing over is right as long as only captured steps hold them. Somebody who has got one since the last call is seen by
the counts of references: of the Python object, of the tensor below it, which a graph of autograd saves and another
tensor has as its gradient, and of its value, which ``detach()`` and views share. Other captured
steps refer to the same tensors (the two of a GAN to the discriminator's gradients); they say how often, and that is
counted apart.
"""

from __future__ import annotations

import gc
import operator
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ptpathways import native
from ptpathways.frontend.capture.recording._results import References
from ptpathways.frontend.slices import _buffers as buffers

if TYPE_CHECKING:
    import torch

    from ptpathways.frontend.capture._variant import Variant
    from ptpathways.frontend.capture.objects._reachable import Surroundings


_ANY = 1 << 60
"""So often a tensor may be named."""
_UNKNOWN = -1
"""As a memory: none that a tensor has."""


class _Count(NamedTuple):
    """Names of a tensor, tensors that have its values, other uses of it, and which memory it had (``storage_of``).

    Torch makes one Python object of a memory, whoever asks for it: however many captured steps hold one, torch counts
    one more than there are tensors on it.
    """

    names: int
    values: int
    uses: int
    place: int


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
        self._known: dict[int, torch.Tensor] = {}  # by id
        self._counts: dict[int, _Count] = {}  # of those, in their order
        self._owners: dict[int, torch.Tensor] = {}  # parameters whose gradients some of them are, now and then
        self._columns: list[list[int]] | None = None  # of the counts
        self._aliases = 0  # ``Aliases.made`` when those were made
        self._others: tuple[int, Counter[int]] = (-1, Counter())
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
        self._counts.clear()
        self._owners.clear()
        self._covered = self._columns = None

    def begin(self) -> None:
        """A call begins: finds those that have got one more holder since the last one."""
        if self._others[0] != Holders._changes:
            if len(self._all) > 1:
                gc.collect()  # what other steps have dropped would count
            for one in list(self._all):
                one._count_others()
            self._take_over()
            self._covered = None
        self._kept = self._lent = frozenset()
        self._meet()
        if self._columns is None or self._aliases != buffers.Aliases.made:
            self._columns, self._aliases = self._expected(), buffers.Aliases.made
        now, then = self._count(), self._columns
        if now[3] != then[3] or not all(all(map(operator.le, *both)) for both in zip(now[:3], then[:3], strict=True)):
            self._compare(now)
        self._moved = self._collects = False

    def _meet(self) -> None:
        """Takes in gradients that a replay would take away and that were put there since the last call: they are ours
        if nobody has them but their parameters."""
        if fresh := self._fresh():  # which alone names them now
            for (number, tensor), place in zip(fresh.items(), native.count_holders(fresh)[3], strict=True):
                self._known[number], self._counts[number] = tensor, _Count(1, 1, 1, place)
            self._columns = None

    def meet(self, variant: Variant, surroundings: Surroundings) -> None:
        """Takes in tensors that the program has put, since the last call, where a replay would write over them: they
        are ours if nobody has them but their places. ``surroundings``: of this call, to which nothing is bound yet."""
        found = [(name, surroundings.tensors.get(name)) for name, _ in variant.renewed]
        fresh = {id(tensor): tensor for _, tensor in found if tensor is not None and id(tensor) not in self._known}
        owners = {id(tensor): surroundings.parameters.get(name.removesuffix(".grad")) for name, tensor in found}
        del found
        if not fresh:
            return
        buffers.part_from_bases(fresh.values())
        ours = Counter(map(id, (*surroundings.held(), *(one for kind in self._kinds() for one in kind.held()))))
        for number, names, values, uses, place in zip(fresh, *native.count_holders(fresh), strict=True):
            owner = owners[number]
            owned = owner is not None and owner.grad is fresh[number]  # else its place has the object
            alone = (1 + (not owned) + ours[number], 1, 1 + owned)
            if (names, values - self._ours(place), uses) == alone:
                self._known[number], self._counts[number] = fresh[number], _Count(names, 1, 1, place)
                self._columns = None
                if owner is not None and owned:
                    self._owners[number] = owner

    def _fresh(self) -> dict[int, torch.Tensor]:
        found = {}
        for variant in self._variants():
            for parameter in variant.cleared:
                gradient = parameter.grad
                if gradient is not None and id(gradient) not in self._known:
                    found[id(gradient)], self._owners[id(gradient)] = gradient, parameter
        return found

    def _count(self) -> list[list[int]]:
        """Columns of counts of what is known. That a parameter has its gradient is no use of it: it may have another
        one at the next call, and the gradient another holder."""
        columns = native.count_holders(self._known)
        if self._owners:
            for place, (number, tensor) in enumerate(self._known.items()):
                owner = self._owners.get(number)
                columns[2][place] -= owner is not None and owner.grad is tensor
        return columns

    def _expected(self) -> list[list[int]]:
        """The columns of ``_count`` if nobody has got one more."""
        names, values, uses, places = ([list(one) for one in zip(*self._counts.values(), strict=True)]) or [[]] * 4
        ours = frozenset[int]().union(*(variant.states.memory for variant in self._kinds()))
        return [names, [value + (place in ours) for value, place in zip(values, places, strict=True)], uses, places]

    def _compare(self, columns: list[list[int]]) -> None:
        """Finds those that have one more holder, and of which of them only the values are held: results of the last
        call may have those."""
        kept, itself = set(), set()
        for (number, count), names, values, uses, place in zip(self._counts.items(), *columns, strict=True):
            if names > count.names or uses > count.uses:
                itself.add(number)
            elif values - self._ours(place) > (count.values if place == count.place else 1):
                kept.add(number)
        self._kept, self._lent = frozenset(kept | itself), frozenset(kept)

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
            for number, tensor in other._known.items() if other is not self else ():
                if number not in self._known:
                    self._known[number], self._counts[number] = tensor, other._counts[number]
                    if number in other._owners:
                        self._owners[number] = other._owners[number]
                    for one in self._all:
                        one._note_name(number, self)

    def _note_name(self, number: int, by: Holders) -> None:
        """Counts that ``by`` names one more tensor."""
        if by is not self:
            self._others[1][number] += 1
        if number in self._counts:
            count = self._counts[number]
            self._counts[number], self._columns = count._replace(names=count.names + 1), None

    def held(self, variant: Variant) -> str:
        """Why a replay must not write over one of the tensors that it would; empty if it may write over all."""
        beside = variant.beside_ids
        kept = self._kept - (self._lent & beside) if beside else self._kept
        if not kept and variant is self._covered:
            return ""
        for name, tensor in variant.renewed:
            if id(tensor) not in self._known:
                return (
                    f"when {name}, which was put there since the last call, is held elsewhere, too, because a replay "
                    "would write over it; put a clone() there"
                )
        for name, tensor in variant.used_up:
            if id(tensor) not in self._known:
                return f"when {name} is a gradient of another parameter, to count who holds it"
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

    def _ours(self, place: int) -> bool:
        """Whether captured steps hold a memory, beside the tensors that have it."""
        return any(place in variant.states.memory for variant in self._kinds())

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
        old_names, names = self._others[1], Counter[int]()
        for other in self._all:
            if other is self:
                continue
            held = [tensor for variant in other._variants() for tensor in variant.held()]
            names.update(map(id, (*held, *other._left, *other._known.values())))
        self._others = (Holders._changes, names)
        for number, count in self._counts.items():
            self._counts[number] = count._replace(names=count.names - old_names[number] + names[number])
        self._columns = None

    def _measure(self, variants: Sequence[Variant], given: References) -> None:
        if self._collects:
            gc.collect()  # a cycle of ours would count
        written = {number: tensor for number, tensor in self._known.items() if _is_written(number, variants)}
        self._known = written | {id(tensor): tensor for tensor in self._left}
        latest = frozenset(map(id, self._left))
        del written
        self._left = []
        self._owners = {number: owner for number, owner in self._owners.items() if number in self._known}
        self._owners |= {number: owner for one in variants for number, owner in one.owners() if number in self._known}
        counts = dict(zip(self._known, map(_Count, *self._count()), strict=True))
        for number, tensor in self._known.items():
            names, values, uses, place = counts[number]
            if number in self._same:
                names = uses = _ANY
            values -= given.values(tensor) + self._ours(place)
            counts[number] = _Count(names - given.names[number], values, uses, place)
            if number in self._kept and number not in latest:
                counts[number] = self._still_held(number, counts[number])
        self._counts, self._columns = counts, None

    def _still_held(self, number: int, count: _Count) -> _Count:
        """Of a tensor that somebody held when the call began: we may hold it less often since, so that all who do are
        no more than they were. Its values are counted without what was before, and the tensor itself is held until it
        is another one."""
        return count._replace(place=_UNKNOWN) if number in self._lent else count._replace(names=-1)


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
