"""How one tensor lies on a mesh."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ptpathways.core import InvalidSharding
from ptpathways.sharding._mesh import Box, Mesh
from ptpathways.sharding._op_sharding import OpSharding, op_sharding
from ptpathways.sharding._placements import Placement, Replicate, Shard, as_placement

Spec: TypeAlias = Sequence[str | Sequence[str] | None]
"""Per tensor dimension: the mesh axis that splits it, several of them (the first varies slowest), or None."""


@dataclass(frozen=True, slots=True, init=False)
class Sharding:
    """A tensor on a mesh: which axes split which dimension. Equal and hashable by value.

    ``Sharding(mesh, placements)`` takes one placement per mesh axis; axes that split the same dimension do so in the
    mesh's order. It knows no shape: that it divides a given one is checked by ``shard_shape`` and ``box``.

    Raises:
        InvalidSharding: placements do not fit the mesh.
    """

    mesh: Mesh
    axes: tuple[tuple[int, ...], ...]
    """Per tensor dimension, the numbers of the mesh axes that split it, slowest first; ends at the last split one."""

    def __init__(self, mesh: Mesh, placements: Sequence[object], *, rank: int | None = None) -> None:
        """``rank``: the tensor's number of dimensions; needed only for negative ones in ``Shard(dim)``."""
        found = [as_placement(given) for given in placements]
        if len(found) != len(mesh.shape):
            raise InvalidSharding(
                f"placements name what each axis of the mesh does: mesh [{mesh}] needs {len(mesh.shape)}, got {found}"
            )
        axes: dict[int, list[int]] = {}
        for axis, placement in enumerate(found):
            if isinstance(placement, Shard):
                axes.setdefault(_dimension(placement, rank), []).append(axis)
        object.__setattr__(self, "mesh", mesh)
        object.__setattr__(self, "axes", tuple(tuple(axes.get(dim, ())) for dim in range(max(axes, default=-1) + 1)))

    @classmethod
    def from_spec(cls, mesh: Mesh, spec: Spec) -> Sharding:
        """The sharding that a partition spec of axis names says; dimensions it does not reach are not split.

        Raises:
            InvalidSharding: an axis the mesh has not, or one used twice.
        """
        if isinstance(spec, str):
            raise InvalidSharding(
                f"a partition spec is a tuple with an entry per dimension, got {spec!r}; ({spec!r},)?"
            )
        axes: list[tuple[int, ...]] = []
        for entry in spec:
            names = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
            axes.append(tuple(mesh.axis(name) for name in names))
        used = [axis for entry in axes for axis in entry]
        for axis in used:
            if used.count(axis) > 1:
                raise InvalidSharding(
                    f"partition spec {tuple(spec)} uses axis {mesh.axis_names[axis]!r} more than once"
                )
        while axes and not axes[-1]:
            axes.pop()
        made = cls.replicated(mesh)
        object.__setattr__(made, "axes", tuple(axes))
        return made

    @classmethod
    def replicated(cls, mesh: Mesh) -> Sharding:
        """A copy of the whole tensor at every position."""
        return cls(mesh, [Replicate()] * len(mesh.shape))

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Per mesh axis. Says all but the order of axes in a spec that turned it around."""
        found: list[Placement] = [Replicate()] * len(self.mesh.shape)
        for dim, axes in enumerate(self.axes):
            for axis in axes:
                found[axis] = Shard(dim)
        return tuple(found)

    @property
    def is_replicated(self) -> bool:
        """Whether every position holds the whole tensor."""
        return all(self.parts(dim) == 1 for dim in range(len(self.axes)))

    def parts(self, dim: int) -> int:
        """Into how many parts dimension ``dim`` is split."""
        return math.prod(self.mesh.shape[axis] for axis in self.axes[dim]) if dim < len(self.axes) else 1

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of each shard of a tensor of that global shape.

        Raises:
            InvalidSharding: a dimension is not there or does not divide; names dimension, size, axes and parts.
        """
        if len(self.axes) > len(shape):
            raise InvalidSharding(
                f"{self._axes_text(len(self.axes) - 1)} splits dimension {len(self.axes) - 1}, which a tensor of shape "
                f"{tuple(shape)} has not; shard one of its {len(shape)} dimensions, or replicate it"
            )
        for dim, size in enumerate(shape):
            if size % self.parts(dim):
                raise InvalidSharding(
                    f"dimension {dim} of shape {tuple(shape)} has {size} elements, which "
                    f"{self._axes_text(dim)} does not divide into {self.parts(dim)} equal parts; pad it, or "
                    "shard another dimension"
                )
        return tuple(size // self.parts(dim) for dim, size in enumerate(shape))

    def tile(self, position: int, rank: int) -> tuple[int, ...]:
        """Which part of each of ``rank`` dimensions the device at ``position`` holds."""
        return _tiles(self, rank)[position]

    def tiles(self, rank: int) -> tuple[tuple[int, ...], ...]:
        """``tile`` of every position."""
        return _tiles(self, rank)

    def box(self, shape: Sequence[int], position: int) -> Box:
        """What of a tensor of that global shape lies at ``position``.

        Raises:
            InvalidSharding: as ``shard_shape``; or no such position.
        """
        size = self.shard_shape(shape)
        self.mesh.coordinates(position)
        tile = self.tile(position, len(shape))
        return Box(tuple(index * count for index, count in zip(tile, size, strict=True)), size)

    def op_sharding(self, rank: int) -> OpSharding:
        """XLA's description of this sharding of a tensor with ``rank`` dimensions.

        Raises:
            InvalidSharding: a dimension beyond the rank is split.
        """
        if len(self.axes) > rank:
            raise InvalidSharding(f"{self} splits dimension {len(self.axes) - 1} of a tensor that has {rank}")
        return op_sharding(tuple(self.parts(dim) for dim in range(rank)), self.tiles(rank))

    def same_layout(self, other: Sharding, rank: int) -> bool:
        """Whether both put the same elements of a tensor at the same positions."""
        return self == other or (
            self.mesh.size == other.mesh.size
            and self.tiles(rank) == other.tiles(rank)
            and all(self.parts(dim) == other.parts(dim) for dim in range(rank))
        )

    def text(self, rank: int | None = None) -> str:
        """``data,-,model+seq``: per dimension the axes that split it, or a dash."""
        rank = len(self.axes) if rank is None else rank
        entries = self.axes + ((),) * (rank - len(self.axes))
        return ",".join("+".join(self.mesh.axis_names[axis] for axis in axes) or "-" for axes in entries)

    def __str__(self) -> str:
        """``{data=2,model=4: data,-}``: mesh and axes per dimension, as ``parse_sharding`` reads it."""
        return f"{{{self.mesh}: {self.text()}}}"

    def _axes_text(self, dim: int) -> str:
        names = [f"{self.mesh.axis_names[axis]!r} (size {self.mesh.shape[axis]})" for axis in self.axes[dim]]
        return f"mesh {'axis' if len(names) == 1 else 'axes'} {' and '.join(names)}"


def _dimension(placement: Shard, rank: int | None) -> int:
    if placement.dim >= 0:
        return placement.dim
    if rank is None or placement.dim + rank < 0:
        number = "is not known here" if rank is None else f"is {rank}"
        raise InvalidSharding(
            f"{placement} counts from the last dimension of a tensor whose number of dimensions {number}; "
            "name a dimension that it has, from 0"
        )
    return placement.dim + rank


@functools.lru_cache(maxsize=4096)
def _tiles(sharding: Sharding, rank: int) -> tuple[tuple[int, ...], ...]:
    found = []
    sizes = sharding.mesh.shape
    axes_of = [sharding.axes[dim] if dim < len(sharding.axes) else () for dim in range(rank)]
    for position in range(sharding.mesh.size):
        coordinates = sharding.mesh.coordinates(position)
        tile = []
        for axes in axes_of:
            index = 0
            for axis in axes:
                index = index * sizes[axis] + coordinates[axis]
            tile.append(index)
        found.append(tuple(tile))
    return tuple(found)
