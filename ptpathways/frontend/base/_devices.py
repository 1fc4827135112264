"""Logical devices: the fixed number of devices that PyTorch/XLA knows, and which slices they stand for now.

PyTorch/XLA asks for its devices once and autograd starts a thread for each, so a process has a fixed number of them.
They are bound to slices when those are first used as torch devices, and free again when the slices are released. While
there are tensors of a released slice, its torch device stands for no other one: they would be taken for that one's.
"""

from __future__ import annotations

import enum
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

from ptpathways import core

if TYPE_CHECKING:
    from ptpathways.frontend.slices._slice import VirtualSlice


class Left(enum.IntEnum):
    """What there still is on a torch device whose slice was released."""

    NOTHING = 0
    NUMBERS = 1
    """That PyTorch/XLA keeps for computations to come. A tensor of one number that the user keeps looks alike."""
    TENSORS = 2


class LogicalDevices:
    """Which slice each of this process's torch devices stands for. Number 0 is kept for the slice of everything.

    Threads: whoever changes it holds ``_state.lock``.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._unused = list(range(1, count))
        self._left: list[int] = []  # by released slices, in the order of time
        self._bound: dict[int, VirtualSlice] = {}

    def bind(
        self, slice: VirtualSlice, index: int | None = None, left_on: Callable[[int], Left] = lambda _: Left.NOTHING
    ) -> int:
        """Makes a torch device stand for ``slice``, from now on until ``unbind``; its number.

        Args:
            left_on: what there is on a torch device of a released slice; only asked when no other is left.

        Raises:
            SliceUnavailable: every logical device stands for another slice, or has tensors of a released one.
        """
        index = self._choose(left_on) if index is None else index
        self._bound[index] = slice
        return index

    def _choose(self, left_on: Callable[[int], Left]) -> int:
        if self._unused:
            return self._unused.pop(0)
        for collect in (False, True):
            if collect and self._left:
                gc.collect()  # models are often cycles
            left = {index: left_on(index) for index in self._left}
            best = min(self._left, key=left.__getitem__, default=0)
            if best and left[best] < Left.TENSORS:
                self._left.remove(best)
                return best
        names = [one.name for one in self._bound.values()][1:6]
        kept = f", or has tensors of a released one that are still there ({len(self._left)} do)" if self._left else ""
        raise core.SliceUnavailable(
            f"this process has {self.count} torch devices, and each stands for a slice "
            f"({', '.join([*names, '...'])}){kept}; release slices{' and drop tensors' if kept else ''} that are no "
            "longer needed, or set PTPATHWAYS_LOGICAL_DEVICES to a larger number"
        )

    def unbind(self, index: int) -> None:
        """The torch device stands for nothing any more; its number may be used again."""
        if self._bound.pop(index, None) is not None and index != 0:
            self._left.append(index)

    def bound(self) -> list[int]:
        """Numbers of the torch devices that stand for slices."""
        return list(self._bound)

    def slice_at(self, index: int) -> VirtualSlice:
        """The slice that torch device ``index`` stands for. Raises SliceUnavailable when there is none."""
        found = self._bound.get(index)
        if found is None:
            raise core.SliceUnavailable(
                f"torch device xla:{index} stands for no slice: it was released, or never made; use the device of a "
                "slice from cluster.slice(), or pw.device()"
            )
        return found

    def devices_of(self, index: int) -> tuple[int, ...]:
        """The cluster's numbers of the devices of torch device ``index``. Raises SliceUnavailable."""
        return self.slice_at(index).devices
