"""What has to move, shard to shard, so that a tensor lies another way (paper 3: resharding between nodes).

A source shard is read by whoever needs a part of it, directly; no device or host ever holds more than its own shards.
The work is proportional to the moves, not to sources times targets.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ptpathways.core import InvalidSharding
from ptpathways.sharding._mesh import Box
from ptpathways.sharding._sharding import Sharding

Tile: TypeAlias = tuple[int, ...]


class Move(NamedTuple):
    """Part of a source shard that becomes part of a target shard; boxes are in the coordinates of their shard."""

    source_position: int
    target_position: int
    source_box: Box
    target_box: Box


class _Piece(NamedTuple):
    """What a target tile takes from a source tile."""

    source_tile: Tile
    source_box: Box
    target_box: Box
    elements: int


def reshard(
    shape: Sequence[int],
    source: Sharding,
    source_devices: Sequence[int],
    target: Sharding,
    target_devices: Sequence[int],
    host_of: Callable[[int], int],
    *,
    positions: Iterable[int] | None = None,
) -> list[Move]:
    """The moves that turn a tensor of global ``shape`` on one slice into the same tensor on another.

    ``source_devices[p]`` is the device at position p, and ``host_of`` tells a device's host. Every element of every
    target shard is written by exactly one move. Moves come target by target. Of several copies of what is needed, that
    on the same device is taken, else one on the same host, else the one whose host and device have sent least so far.
    ``positions``: only the moves into these target positions, in this order; by default all.
    A tensor without elements has one empty move per target shard, so that each still has a source.

    Raises:
        InvalidSharding: a sharding does not divide the shape, or the devices are not one per position.
    """
    for sharding, devices in ((source, source_devices), (target, target_devices)):
        sharding.shard_shape(shape)
        if len(devices) != sharding.mesh.size or len(set(devices)) != len(devices):
            raise InvalidSharding(
                f"a mesh [{sharding.mesh}] needs {sharding.mesh.size} different devices, got {list(devices)}"
            )
    rank = len(shape)
    overlaps = [_overlaps(size, source.parts(dim), target.parts(dim)) for dim, size in enumerate(shape)]
    source_tiles = source.tiles(rank)
    holders: dict[Tile, list[int]] = {}
    for position, tile in enumerate(source_tiles):
        holders.setdefault(tile, []).append(position)
    choice = _Choice(holders, source_devices, host_of)
    pieces_of: dict[Tile, list[_Piece]] = {}
    moves: list[Move] = []
    target_tiles = target.tiles(rank)
    for position in range(len(target_tiles)) if positions is None else positions:
        tile = target_tiles[position]
        pieces = pieces_of.get(tile)
        if pieces is None:
            pieces = pieces_of[tile] = _pieces(overlaps, tile)
        device = target_devices[position]
        host = host_of(device)
        for piece in pieces:
            holder = choice.take(piece.source_tile, device, host, piece.elements)
            moves.append(Move(holder, position, piece.source_box, piece.target_box))
    return moves


def _overlaps(size: int, source_parts: int, target_parts: int) -> list[list[tuple[int, int, int, int]]]:
    """Per target part of a dimension: (source part, start in it, start in the target part, length) of what it needs."""
    if size == 0:
        return [[(part * source_parts // target_parts, 0, 0, 0)] for part in range(target_parts)]
    source_size, target_size = size // source_parts, size // target_parts
    found = []
    for part in range(target_parts):
        first, last = part * target_size, (part + 1) * target_size
        found.append(
            [
                (i, low - i * source_size, low - first, min(last, (i + 1) * source_size) - low)
                for i in range(first // source_size, -(-last // source_size))
                for low in (max(first, i * source_size),)
            ]
        )
    return found


def _pieces(overlaps: list[list[list[tuple[int, int, int, int]]]], tile: Tile) -> list[_Piece]:
    found = []
    for combined in itertools.product(*(overlaps[dim][part] for dim, part in enumerate(tile))):
        size = tuple(length for _, _, _, length in combined)
        found.append(
            _Piece(
                tuple(part for part, _, _, _ in combined),
                Box(tuple(start for _, start, _, _ in combined), size),
                Box(tuple(start for _, _, start, _ in combined), size),
                math.prod(size),
            )
        )
    return found


class _Choice:
    """Which of the positions that hold a tile gives it."""

    def __init__(self, holders: dict[Tile, list[int]], devices: Sequence[int], host_of: Callable[[int], int]) -> None:
        self._holders = holders
        self._host = [host_of(device) for device in devices]
        self._by_device = {
            (tile, devices[position]): position for tile, positions in holders.items() for position in positions
        }
        self._by_host: dict[tuple[Tile, int], list[int]] = {}
        for tile, positions in holders.items():
            for position in positions:
                self._by_host.setdefault((tile, self._host[position]), []).append(position)
        self._sent_by_host: dict[int, int] = {}
        self._sent = [0] * len(devices)  # elements that left the host, by position
        self._waiting: dict[Tile, list[tuple[int, int, int]]] = {}

    def take(self, tile: Tile, device: int, host: int, elements: int) -> int:
        """The position that gives ``tile`` to ``device`` on ``host``."""
        here = self._by_device.get((tile, device))
        if here is not None:
            return here
        near = self._by_host.get((tile, host))
        if near is not None:
            near.append(near.pop(0))  # in turn
            return near[-1]
        position = self._least(tile)
        self._sent[position] += elements
        self._sent_by_host[self._host[position]] = self._sent_by_host.get(self._host[position], 0) + elements
        return position

    def _load(self, position: int) -> tuple[int, int, int]:
        return self._sent_by_host.get(self._host[position], 0), self._sent[position], position

    def _least(self, tile: Tile) -> int:
        """The holder that has sent least; loads only grow, so a stale entry is corrected when it comes up."""
        positions = self._holders[tile]
        if len(positions) == 1:
            return positions[0]
        heap = self._waiting.get(tile)
        if heap is None:
            heap = self._waiting[tile] = [self._load(position) for position in positions]
            heapq.heapify(heap)
        while True:
            position = heap[0][2]
            load = self._load(position)
            if load == heap[0]:
                return position
            heapq.heapreplace(heap, load)
