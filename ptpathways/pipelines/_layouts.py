"""How a stage's values lie on the devices of its slice. Only speed depends on it: results are the same."""

from __future__ import annotations

from typing import Any

from ptpathways import frontend
from ptpathways.frontend import TensorSpec


class SliceLayouts:
    """Batches, and what is computed from them, are divided over the slice's first axis; the rest is copied."""

    def __init__(self, slice: frontend.VirtualSlice, microbatch: int) -> None:
        """``microbatch``: samples in one."""
        self.slice = slice
        self._samples = microbatch
        self._axis, self._parts = slice.axis_names[0], slice.shape[0]

    def activation(self, spec: TensorSpec) -> Any:
        """The first dimension of a microbatch's size is divided; or else the first that is a multiple of it."""
        if self._parts == 1 or self._samples == 1:
            return None
        sizes = spec.shape
        places = [place for place, size in enumerate(sizes) if size == self._samples]
        places += [place for place, size in enumerate(sizes) if size and size % self._samples == 0]
        place = next((place for place in places if sizes[place] % self._parts == 0), None)
        return None if place is None else self._split(place, len(sizes))

    def whole_batch(self, rank: int) -> Any:
        """Of a batch as (microbatches, samples, ...)."""
        return self._split(1, rank) if self._parts > 1 and self._samples % self._parts == 0 else None

    def microbatch(self, rank: int) -> Any:
        return self._split(0, rank) if self._parts > 1 and self._samples % self._parts == 0 else None

    def shards(self, placement: Any) -> int:
        """Into how many parts a placement divides a tensor: one per mesh axis, or a spec of axis names."""
        sizes = dict(zip(self.slice.axis_names, self.slice.shape, strict=True))
        count = 1
        for place, entry in enumerate(placement or ()):
            if isinstance(entry, str | tuple):
                for name in (entry,) if isinstance(entry, str) else entry:
                    count *= sizes.get(name, 1)
            elif hasattr(entry, "dim"):  # Shard(dim), of the mesh axis at this place
                count *= self.slice.shape[place]
        return count

    def _split(self, place: int, rank: int) -> Any:
        return tuple(self._axis if dimension == place else None for dimension in range(rank))
