"""Shardings and tilings: the same layouts, by axes of a mesh and by parts and tiles."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

from ptpathways.sharding._mesh import AXES_MAX, Mesh
from ptpathways.sharding._sharding import Sharding

Tiling = tuple[tuple[int, ...], tuple[int, ...]]
"""Parts per dimension of a tensor, and for each device the row-major number of its tile in the grid of parts."""


def tiling_of(sharding: Sharding, rank: int) -> Tiling:
    """``sharding`` of a tensor with ``rank`` dimensions, as parts and tiles."""
    parts = tuple(sharding.parts(dim) for dim in range(rank))
    return parts, tuple(_number(tile, parts) for tile in sharding.tiles(rank))


def sharding_of(tiling: Tiling, mesh: Mesh) -> Sharding | None:
    """The sharding over ``mesh``, or over another mesh of the same devices, that lays tensors out as ``tiling``.

    None where no mesh of one to three axes says it.
    """
    return _sharding_of(tiling, mesh)


@functools.lru_cache(maxsize=4096)
def _sharding_of(tiling: Tiling, mesh: Mesh) -> Sharding | None:
    parts, tiles = tiling
    rank = len(parts)
    for each in (mesh, *_meshes(parts, len(tiles))):
        for sharding in _shardings(each, parts):
            if tiling_of(sharding, rank) == tiling:
                return sharding
    return None


def _shardings(mesh: Mesh, parts: Sequence[int]) -> Iterator[Sharding]:
    """Every way to cut the dimensions into so many parts along the axes of ``mesh``."""
    names = mesh.axis_names
    sizes = dict(zip(names, mesh.shape, strict=True))

    def choices(wanted: int, free: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for count in range(len(free) + 1):
            for chosen in itertools.permutations(free, count):
                if math.prod(sizes[name] for name in chosen) == wanted:
                    yield chosen

    def extend(spec: list[tuple[str, ...]], free: tuple[str, ...]) -> Iterator[Sharding]:
        if len(spec) == len(parts):
            yield Sharding.from_spec(mesh, spec)
            return
        for chosen in choices(parts[len(spec)], free):
            yield from extend([*spec, chosen], tuple(name for name in free if name not in chosen))

    yield from extend([], names)


def _meshes(parts: Sequence[int], devices: int) -> Iterator[Mesh]:
    """Meshes with an axis for each dimension that is cut, and one for the copies, in any order."""
    sizes = [part for part in parts if part > 1]
    copies = devices // math.prod(sizes)
    sizes += [copies] if copies > 1 else []
    if 0 < len(sizes) <= AXES_MAX:
        for order in set(itertools.permutations(sizes)):
            yield Mesh(order, [f"t{axis}" for axis in range(len(order))])


def _number(tile: Sequence[int], parts: Sequence[int]) -> int:
    number = 0
    for index, count in zip(tile, parts, strict=True):
        number = number * count + index
    return number
