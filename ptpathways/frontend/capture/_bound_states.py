"""Where the state of a captured step lies: its tensors, their buffers, and which of them share memory."""

from __future__ import annotations

import itertools
import operator
import sys
from array import array
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ptpathways import native
from ptpathways.frontend.capture._exclusive import are_at, has_view
from ptpathways.frontend.slices import _buffers as buffers

if TYPE_CHECKING:
    import torch


class Stale(Exception):
    """What a replay relies on has moved; the step has to be looked at anew."""


class BoundStates:
    """The tensors that a replay reads and writes, bound to it.

    ``bind`` takes them from where they are, ``follow`` looks again before each replay.

    Args:
        replay: what they are bound to.
        places: their numbers there, by name.
        written: the names of those that a replay writes over.
    """

    def __init__(
        self,
        replay: native.Replay | None = None,
        places: Mapping[str, int] | None = None,
        written: Collection[str] = (),
    ) -> None:
        self._replay = replay
        self._places = places if places is not None else {}
        self._written = written
        self._tensors: list[torch.Tensor] = []
        self._lasting: list[bool] = []
        """Whether each is there between the calls; gradients need not be, and some are made anew by each call."""
        self._handles = array("q")
        self._aliases = buffers.Aliases([])
        self.loose = False
        """Whether it has let go of the memory of what is written."""
        self._order: list[int] | None = None
        """Of the buffers that are written, by age, when a call began that was recorded."""
        self._memory: list[tuple[int, buffers.Part]] | None = None
        """Which of the tensors had one memory then (``_buffers.memory_of``)."""
        self._views: list[int] | None = None
        """Which of them were views of tensors that others have."""
        self.moved = False
        """Whether, since a call was recorded, one was replaced or came to lie elsewhere. What is traced then may be
        another computation with the same results, so it proves nothing of replays."""

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def forget(self) -> None:
        """How the tensors lay: a call is recorded, and what holds from it on counts."""
        self._order = self._memory = self._views = None

    def settle(self, ages: Mapping[str, int]) -> None:
        """Goes on from a recorded call, at whose begin the tensors had these ages, by name."""
        self._order = self._order_of_written(ages)
        self.moved = False

    def let_go(self) -> None:
        """Of the memory of what is written: a call that gives a tensor other memory would else compute what was in the
        old one, too. Binding takes it again."""
        self._aliases = buffers.Aliases([])
        self.loose = True

    def held(self) -> Iterator[torch.Tensor]:
        """What this refers to, as often as it does."""
        yield from self._tensors
        yield from self._aliases.tensors

    @property
    def memory(self) -> Collection[int]:
        """That of what is written, which this holds beside the tensors that have it (``storage_of``)."""
        return self._aliases.memory

    def take(self, tensors: Mapping[str, torch.Tensor], renewed: Collection[str]) -> None:
        """Takes the tensors by these names; ``renewed`` are made anew by each call.

        Raises:
            Stale: they are views, or were made in an order, in which they were not when a call was recorded.
        """
        former, self._tensors = self._tensors, [tensors[name] for name in self._places]
        self._lasting = [not name.endswith(".grad") and name not in renewed for name in self._places]
        changed = map(operator.is_not, former, self._tensors)
        self.moved = self.moved or any(map(operator.and_, changed, self._lasting))
        self._part_from_bases()
        self._check_views()
        order = self._order_of_written()
        if self._order not in (None, order):
            # One that is younger now comes later; what had been before it is where it was.
            pairs = itertools.zip_longest(self._order or (), order, fillvalue=-1)
            first = next(then for then, now in pairs if then != now)
            raise Stale(
                f"{self.names[first]}, which it writes, was made in another order among those that it writes: "
                "PyTorch/XLA orders results by their tensors' age; what the loop writes or replaces of them between "
                "two calls, let it do so before every call"
            )

    def bind(self) -> None:
        """Binds the tensors that were taken. Raises Stale as ``follow`` does."""
        known, self._handles = self._handles, array("q")
        self._bind_moved()
        others = map(operator.ne, known, self._handles)
        self.moved = self.moved or any(map(operator.and_, others, self._lasting))

    def follow(self, traced: bool) -> None:
        """Binds what has moved. Assigning to ``.data`` moves a tensor to another buffer, and nothing counts that.

        Args:
            traced: whether operations were traced since the last step, so that any tensor may have been written.

        Raises:
            Stale: a tensor has no value, or shares memory with others than it did.
        """
        views = self._views or ()
        if has_view([one for place, one in enumerate(self._tensors) if place not in views] if views else self._tensors):
            self._aliases = buffers.Aliases([])  # which has their memory, too
            self._part_from_bases()
            self._bind_moved()
        if not (traced or self.loose) and are_at(self._tensors, self._handles):
            return
        if traced or self.loose or buffers.handles(self._tensors) != self._handles:
            self._bind_moved()

    def rebind(self, name: str, tensor: torch.Tensor) -> None:
        """The state of that name lies where ``tensor`` does from now on."""
        place = self._places[name]
        self._bind(place, tensor)
        self._handles[place] = (buffers.handles([tensor]) or [0])[0]

    def refresh(self) -> None:
        """Has what shares memory with what was written read it anew, after a replay."""
        self._aliases.refresh()

    def _bind_moved(self) -> None:
        """Binds every state whose tensor has another buffer than before."""
        buffers.take_writes(self._tensors)
        self._aliases = buffers.Aliases(
            [self._tensors[place] for name, place in self._places.items() if name in self._written]
        )
        handles = buffers.handles(self._tensors)
        if handles is None:
            buffers.submit_pending()
            handles = buffers.handles(self._tensors)
        if handles is None:
            raise Stale("a tensor of the step has no value on the devices")
        memory = buffers.memory_of(self._tensors)
        self._memory = self._memory or memory
        if memory != self._memory:
            raise Stale(
                "two tensors of the step have come to share memory or to share it no longer, or are other parts of it"
            )
        known = self._handles or [0] * len(handles)
        for place, (handle, old) in enumerate(zip(handles, known, strict=True)):
            if handle != old:
                self.moved = self.moved or (old != 0 and self._lasting[place])
                self._bind(place, self._tensors[place])
        self._handles, self.loose = handles, False

    def _bind(self, place: int, tensor: torch.Tensor) -> None:
        assert self._replay is not None
        with native.translated():
            self._replay.bind(place, buffers.cell_of(tensor))

    def _part_from_bases(self) -> None:
        views = buffers.part_from_bases(self._tensors)
        if self._views not in (None, views):  # to write one is to write the other, too
            name = self.names[min({*views} ^ {*(self._views or ())})]
            raise Stale(f"{name} has come to be a view of another tensor, or is one no longer; put a clone() there")
        self._views = views

    def _check_views(self) -> None:
        """Raises Stale when a tensor that it writes is a view of one that it does not write: what is derived from the
        view later would be computed from that one."""
        written = [name in self._written for name in self._places]
        bases = {
            buffers.storage_of(tensor)
            for place, tensor in enumerate(self._tensors)
            if written[place] and place not in (self._views or ())
        }
        for place in self._views or ():
            if written[place] and buffers.storage_of(self._tensors[place]) not in bases:
                name = self.names[place]
                raise Stale(f"{name}, which it writes, is a view of another tensor; put a clone() there")

    def _order_of_written(self, then: Mapping[str, int] | None = None) -> list[int]:
        """Which of the buffers that it writes was made first, which then, and so on; now, or by other ages by name.

        Batch normalisation writes its statistics without making them new tensors, and PyTorch/XLA gives a computation's
        results in the order of their tensors' age: with another one an audit would find another computation.
        """
        import torch

        written = [
            place
            for place, name in enumerate(self._places)
            if name in self._written
            and not name.endswith(".grad")
            and not isinstance(self._tensors[place], torch.nn.Parameter)
        ]
        if then is not None:
            names = self.names
            return sorted(written, key=lambda place: then.get(names[place], sys.maxsize))
        ages = buffers.ages([self._tensors[place] for place in written])
        return sorted(written, key=dict(zip(written, ages, strict=True)).__getitem__)
