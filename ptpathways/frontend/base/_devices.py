"""Logical devices: the fixed number of devices that PyTorch/XLA knows, and which slices they stand for now.

PyTorch/XLA asks for its devices once and autograd starts a thread for each, so a process has a fixed number of them.
They are bound to slices when those are first used as torch devices, and free again when the slices are released.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from ptpathways import core

if TYPE_CHECKING:
    from ptpathways.frontend.slices._slice import VirtualSlice


class LogicalDevices:
    """Which slice each of this process's torch devices stands for. Number 0 is kept for the slice of everything.

    Threads: whoever changes it holds ``_state.lock``.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(1, count))
        self._bound: dict[int, VirtualSlice] = {}

    def bind(self, slice: VirtualSlice, index: int | None = None) -> int:
        """Makes a torch device stand for ``slice``, from now on until ``unbind``; its number.

        Raises:
            SliceUnavailable: every logical device stands for another slice.
        """
        if index is None:
            if not self._free:
                names = ", ".join(one.name for one in list(self._bound.values())[1:6])
                raise core.SliceUnavailable(
                    f"this process has {self.count} torch devices, and each stands for a slice ({names}, ...); release "
                    "slices that are no longer needed, or set PTPATHWAYS_LOGICAL_DEVICES to a larger number"
                )
            index = heapq.heappop(self._free)
        self._bound[index] = slice
        return index

    def unbind(self, index: int) -> None:
        """The torch device stands for nothing any more; its number may be used again."""
        if self._bound.pop(index, None) is not None and index != 0:
            heapq.heappush(self._free, index)

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
