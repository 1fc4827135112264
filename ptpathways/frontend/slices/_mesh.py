"""How tensors lie on a slice: its devices as a grid with named axes, and which axes divide which dimension."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ptpathways import core, native
from ptpathways.frontend.base import _state
from ptpathways.frontend.slices import _slice
from ptpathways.frontend.xla import _xla
from ptpathways.sharding import Box, Mesh, Shard, Tiling, as_placement

if TYPE_CHECKING:
    import torch

    from ptpathways.frontend.slices._slice import VirtualSlice

Name: TypeAlias = str | int
Axes: TypeAlias = tuple[tuple[Name, ...], ...]
"""For each leading dimension of a tensor, the axes of a grid that divide it; the first varies slowest."""

DATA_AXIS = "data"
BATCH_AXES = (DATA_AXIS, "fsdp")
"""Names of mesh axes along which batches are divided unless the user says otherwise. ``fsdp`` is what torch_xla's
FSDPv2 calls the axis of its shards, which is one of data parallelism, too."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The devices of a slice, arranged."""

    sizes: Mapping[Name, int]
    """Devices along each axis."""
    positions: tuple[int, ...]
    """Which device of the slice is at each place, row-major."""

    @classmethod
    def of(cls, mesh: Any, count: int) -> Grid:
        """Of a mesh: torch_xla's ``spmd.Mesh``, or ``ptpathways.sharding.Mesh``. Raises InvalidSharding."""
        if isinstance(mesh, Mesh) and mesh.size == count:
            return cls(dict(zip(mesh.axis_names, mesh.shape, strict=True)), tuple(range(count)))
        if hasattr(mesh, "get_logical_mesh") and int(mesh.size()) == count:
            sizes = {name: int(size) for name, size in mesh.shape().items()}
            return cls(sizes, tuple(int(position) for position in mesh.get_logical_mesh().flatten()))
        got = repr(mesh)
        if isinstance(mesh, Mesh):
            got = f"one of {mesh.size}"
        elif hasattr(mesh, "get_logical_mesh"):
            got = f"one of {int(mesh.size())}"
        raise core.InvalidSharding(
            f"mesh must be a torch_xla.distributed.spmd.Mesh or a ptpathways.sharding.Mesh over all {count} devices of "
            f"the slice, got {got}; for example Mesh(({count},), ('{DATA_AXIS}',))"
        )

    def axes(self, given: Any, rank: int) -> Axes:
        """What a layout of a tensor of that rank says: an entry per dimension of it.

        Args:
            given: a partition spec, a tuple with an axis, several axes or None per dimension; or a list of placements,
                one per axis; None or ``()``: a copy on each device.

        Raises:
            InvalidSharding: it fits neither the grid nor the rank.
        """
        have = ", ".join(f"{name} ({size})" for name, size in self.sizes.items())
        entries: list[tuple[Name, ...]] = [()] * rank
        if given is None:
            return tuple(entries)
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise core.InvalidSharding(
                "expected a partition spec such as ('data', None), with an entry per dimension, or a list of placements"
                f" such as [Shard(0), Replicate()], one per axis of the mesh, got {given!r}"
            )
        if given and all(entry is not None and not isinstance(entry, str | int | tuple | list) for entry in given):
            if len(given) != len(self.sizes):
                raise core.InvalidSharding(
                    f"placements say what each axis of the mesh does; there are {have}, got {given}"
                )
            for name, entry in zip(self.sizes, given, strict=True):
                placement = as_placement(entry)
                if isinstance(placement, Shard):
                    if not -rank <= placement.dim < rank:
                        raise core.InvalidSharding(f"{placement} names a dimension that a tensor of {rank} has not")
                    entries[placement.dim] += (name,)
            return tuple(entries)
        if len(given) > rank:
            raise core.InvalidSharding(
                f"partition spec {given} has {len(given)} entries, and the tensor {rank} dimensions"
            )
        for dimension, entry in enumerate(given[:rank]):
            names = () if entry is None else tuple(entry) if isinstance(entry, tuple | list) else (entry,)
            entries[dimension] = names
        used = [name for names in entries for name in names]
        for name in used:
            if name not in self.sizes:
                raise core.InvalidSharding(
                    f"partition spec {given} names axis {name!r}, which does not exist; there are {have}"
                )
            if used.count(name) > 1:
                raise core.InvalidSharding(
                    f"partition spec {given} names axis {name!r} twice; an axis divides one dimension"
                )
        return tuple(entries)

    def parts(self, names: Sequence[Name]) -> int:
        """Into how many parts these axes divide a dimension."""
        return math.prod(self.sizes[name] for name in names)

    def tiling(self, axes: Axes) -> Tiling:
        """How a tensor lies whose dimensions are divided so."""
        number = {name: index for index, name in enumerate(self.sizes)}
        tiles = [0] * len(self.positions)
        places = itertools.product(*(range(size) for size in self.sizes.values()))
        for position, place in zip(self.positions, places, strict=True):
            tile = 0
            for names in axes:
                part = 0
                for name in names:
                    part = part * self.sizes[name] + place[number[name]]
                tile = tile * self.parts(names) + part
            tiles[position] = tile
        return tuple(self.parts(names) for names in axes), tuple(tiles)


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """How tensors of a batch lie on a slice."""

    slice: VirtualSlice | None
    """None: the only device, of a backend without a cluster."""
    sizes: Mapping[Name, int]
    """Devices along each axis of the mesh."""
    axes: Axes
    positions: tuple[int, ...] | None = None
    """As in ``Grid``; None: in order."""

    @property
    def device(self) -> torch.device:
        """Where batches go."""
        import torch

        return torch.device("xla", 0) if self.slice is None else self.slice.device

    def spec(self, shape: Sequence[int]) -> tuple[tuple[Name, ...] | None, ...]:
        """The partition spec of a tensor. A dimension that cannot be divided evenly is not divided."""
        axes = (*self.axes, *[()] * len(shape))[: len(shape)]
        return tuple(
            names if names and size > 0 and size % self._parts(names) == 0 else None
            for names, size in zip(axes, shape, strict=True)
        )

    def tiling(self, shape: Sequence[int]) -> Tiling | None:
        """How a tensor of that shape lies; None: a copy on each device."""
        spec = self.spec(shape)
        if not any(spec):
            return None
        positions = self.positions or tuple(range(math.prod(self.sizes.values())))
        return Grid(self.sizes, positions).tiling(tuple(names or () for names in spec))

    @property
    def parts(self) -> int:
        """Into how many parts the first dimension of a batch is divided; 1: every device gets all of it."""
        return self._parts(self.axes[0]) if self.axes else 1

    def _parts(self, names: tuple[Name, ...]) -> int:
        return math.prod(self.sizes[name] for name in names)


def slice_of(device: torch.device | int | None = None) -> VirtualSlice | None:
    """The slice that a torch device stands for; None: that of ``pw.device()``.

    A backend without a cluster has one device and no slices, so there it is None.

    Raises:
        NotInitialized: before ``init``.
        SliceUnavailable: its slice was released.
    """
    if _state.runtime().connection is None:
        return None
    return _slice.whole() if device is None else _slice.of_device(device)


def size_of(device: torch.device) -> int:
    """How many devices a torch device stands for."""
    found = slice_of(device)
    return 1 if found is None else len(found.devices)


def grid_of(slice: VirtualSlice, mesh: Any = None) -> Grid:
    """The devices of a slice as ``mesh`` arranges them, by default as the slice does. Raises InvalidSharding."""
    grid = Grid.of(slice.mesh if mesh is None else mesh, len(slice.devices))
    if mesh is not None:
        slice.arranged = _in_order(grid)
    return grid


def arrangement(slice: VirtualSlice) -> Mesh:
    """The mesh whose axes a loop names for its layouts on ``slice``: the one it gave last, or torch_xla's global one;
    without any, the slice's own."""
    if slice.arranged is not None:
        return slice.arranged
    mesh = _global_mesh(len(slice.devices))
    return slice.mesh if mesh is None else _in_order(Grid.of(mesh, len(slice.devices))) or slice.mesh


def _in_order(grid: Grid) -> Mesh | None:
    """The grid as a mesh of the slice's devices in their order; None where that cannot say it."""
    if grid.positions != tuple(range(len(grid.positions))):
        return None
    try:
        return Mesh(list(grid.sizes.values()), [str(name) for name in grid.sizes])
    except core.InvalidSharding:  # too many axes, or names that a mesh does not have
        return None


def batch_layout(mesh: Any = None, batch_axis: Any = None, slice: VirtualSlice | None = None) -> BatchLayout:
    """How batches lie on a slice.

    Args:
        mesh: torch_xla's ``spmd.Mesh`` or a ``ptpathways.sharding.Mesh`` over the devices of the slice; None: for all
            devices torch_xla's global mesh if one is set, else the slice's own axes.
        batch_axis: the mesh axis that divides a batch's first dimension, or a tuple of such axes; ``()`` divides
            nothing. A list has an entry per dimension. None: those of the mesh's axes named ``data`` and ``fsdp``, or
            the only axis of the slice.
        slice: None: all devices.

    Raises:
        InvalidSharding: no mesh of these devices, an axis that it does not have, or none to choose.
        NotInitialized: before ``init``.
    """
    target = slice or slice_of()
    count = 1 if target is None else len(target.devices)
    if mesh is None and slice is None:
        mesh = _global_mesh(count)
    if target is None or count == 1:
        if mesh is not None:
            choose_axes(Grid.of(mesh, count).sizes, batch_axis)
        elif batch_axis is not None:
            choose_axes({DATA_AXIS: 1} if target is None else grid_of(target).sizes, batch_axis)
        return BatchLayout(target, {}, ())
    grid = grid_of(target, mesh)
    if batch_axis is None and mesh is None and len(grid.sizes) == 1:
        axes: Axes = (tuple(grid.sizes),)
    else:
        axes = choose_axes(grid.sizes, batch_axis)
    return BatchLayout(target, grid.sizes, axes, grid.positions)


def choose_axes(sizes: Mapping[Name, int], batch_axis: Any) -> Axes:
    """``batch_axis`` of ``batch_layout`` as axes per dimension. Raises InvalidSharding."""
    have = ", ".join(f"{name} ({size})" for name, size in sizes.items())
    if batch_axis is None:
        names = tuple(name for name in sizes if name in BATCH_AXES)
        if not names:
            raise core.InvalidSharding(
                f"cannot tell along which axis of the mesh batches are divided: none is named {' or '.join(BATCH_AXES)}"
                f", there are {have}; say batch_axis=NAME, or batch_axis=() to give every device the whole batch"
            )
        return (names,)
    entries = list(batch_axis) if isinstance(batch_axis, list) else [batch_axis]
    axes = tuple(() if entry is None else entry if isinstance(entry, tuple) else (entry,) for entry in entries)
    used = [name for names in axes for name in names]
    for name in used:
        if not isinstance(name, str | int):
            raise core.InvalidSharding(
                "batch_axis must be the name of an axis of the mesh, a tuple of them, or a list with one of these per "
                f"dimension, got {batch_axis!r}; there are {have}"
            )
        if name not in sizes:
            raise core.InvalidSharding(f"batch_axis names mesh axis {name!r}, which does not exist; there are {have}")
        if used.count(name) > 1:
            raise core.InvalidSharding(f"batch_axis names mesh axis {name!r} twice; an axis divides one dimension")
    return axes


def copies(rank: int, count: int) -> Tiling:
    """A copy of the whole tensor on each of so many devices."""
    return (1,) * rank, (0,) * count


def is_copied(tiling: Tiling) -> bool:
    """Whether each device holds the whole tensor."""
    return math.prod(tiling[0]) == 1


def boxes(shape: Sequence[int], tiling: Tiling) -> list[Box]:
    """For each device, the elements of a tensor that it holds, without the padding of parts that do not divide."""
    parts, tiles = tiling
    sizes = [-(-extent // count) for extent, count in zip(shape, parts, strict=True)]
    found = []
    for tile in tiles:
        place: list[int] = []
        for count in reversed(parts):
            tile, part = divmod(tile, count)
            place.append(part)
        start = [min(part * size, extent) for part, size, extent in zip(reversed(place), sizes, shape, strict=True)]
        size = [min(step, extent - first) for step, extent, first in zip(sizes, shape, start, strict=True)]
        found.append(Box(tuple(start), tuple(size)))
    return found


def layout_of_tensor(tensor: torch.Tensor) -> Tiling | None:
    """How a value lies on its slice; None: it is not computed yet, on a single device, or not on devices at all."""
    if tensor.device.type != "xla" or not _state.is_running() or _state.runtime().connection is None:
        return None
    binding = _xla.binding()
    if binding._check_tensor_need_materialization([tensor])[0]:
        return None
    try:
        cells = native.asked_cells(lambda: binding._get_tensors_handle([tensor]))
    except RuntimeError:  # a view of what is pending
        return None
    value = cells[0].value if cells else None
    return None if value is None else value.tiling


def _global_mesh(count: int) -> Any:
    from torch_xla.distributed import spmd

    mesh = spmd.get_global_mesh()
    return mesh if mesh is not None and int(mesh.size()) == count else None  # type: ignore[no-untyped-call]
