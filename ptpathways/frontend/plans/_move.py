"""What moves, shard to shard, when a tensor is to lie on other devices or another way. Pure.

A source shard is read directly by whoever needs a part of it. Target shards of one host that hold the same are sent
there once: the first receives, the others copy. Shards may be padded, where parts do not divide a dimension: padding is
not moved, and may be anything at its target.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ptpathways.frontend.plans._wiring import Type
from ptpathways.sharding import Box

WHOLE = Box((), ())
"""All of a shard, with its padding."""


class Send(NamedTuple):
    """Shards are numbered as in their tensor. The number of a send in its movement is its channel."""

    shard: int
    box: Box
    """In the shard."""
    host: int
    """That receives."""


class Piece(NamedTuple):
    channel: int
    host: int
    """That sends."""
    box: Box
    """In the shard that is made."""


class Copy(NamedTuple):
    source: int
    target: int


@dataclass(slots=True)
class Movement:
    """In this order: sends, copies of whole source shards, what is received, and copies of target shards."""

    sends: list[Send] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    receives: dict[int, list[Piece]] = field(default_factory=dict)
    """By target shard."""
    spreads: list[Copy] = field(default_factory=list)


class _Part(NamedTuple):
    """Of a source tile what a target tile takes."""

    tile: int
    source: Box
    target: Box


def plan(source: Type, target: Type, host_of: Mapping[int, int]) -> Movement:
    """The movement between two ways in which one tensor lies; its elements are the same in both."""
    return _Planning(source, target, host_of).go()


def tile_box(kind: Type, tile: int) -> Box:
    """The elements in a tile, without padding."""
    start, size = [], []
    parts = kind.tiling[0] if kind.tiling is not None else (1,) * len(kind.dims)
    for count, whole, shard in reversed(list(zip(parts, kind.dims, kind.shard_dims, strict=True))):
        tile, index = divmod(tile, count)
        start.append(min(index * shard, whole))
        size.append(min(shard, whole - start[-1]))
    return Box(tuple(reversed(start)), tuple(reversed(size)))


class _Planning:
    def __init__(self, source: Type, target: Type, host_of: Mapping[int, int]) -> None:
        self._source, self._target = source, target
        self._source_hosts = [host_of[device] for device in source.devices]
        self._target_hosts = [host_of[device] for device in target.devices]
        self._holders: dict[int, list[int]] = {}
        for shard, tile in enumerate(_tiles(source)):
            self._holders.setdefault(tile, []).append(shard)
        self._sent = dict.fromkeys(self._source_hosts, 0)  # elements that left a host
        self._movement = Movement()

    def go(self) -> Movement:
        alike: dict[tuple[int, int], list[int]] = {}
        for shard, tile in enumerate(_tiles(self._target)):
            alike.setdefault((self._target_hosts[shard], tile), []).append(shard)
        for (host, tile), shards in alike.items():
            parts = self._parts(tile)
            near = all(any(self._source_hosts[s] == host for s in self._holders[part.tile]) for part in parts)
            for shard in shards if near else shards[:1]:
                self._make(shard, parts)
            if not near:
                self._movement.spreads += [Copy(shards[0], shard) for shard in shards[1:]]
        return self._movement

    def _parts(self, tile: int) -> list[_Part]:
        """What a target tile takes; nothing if it is all padding."""
        wanted = tile_box(self._target, tile)
        if wanted.elements == 0:
            return []
        parts = self._source.tiling[0] if self._source.tiling is not None else (1,) * len(wanted.start)
        ranges = [
            range(first // shard, (first + count - 1) // shard + 1)
            for first, count, shard in zip(wanted.start, wanted.size, self._source.shard_dims, strict=True)
        ]
        found = []
        for indices in itertools.product(*ranges):
            number = 0
            for index, count in zip(indices, parts, strict=True):
                number = number * count + index
            given = tile_box(self._source, number)
            low = tuple(map(max, wanted.start, given.start))
            high = map(min, _end(wanted), _end(given))
            size = tuple(b - a for a, b in zip(low, high, strict=True))
            found.append(_Part(number, Box(_minus(low, given.start), size), Box(_minus(low, wanted.start), size)))
        return found

    def _make(self, target: int, parts: list[_Part]) -> None:
        kind, host = self._target, self._target_hosts[target]
        if 0 in kind.dims:
            self._movement.receives[target] = []
            return
        if len(parts) == 1 and self._fills(parts[0]):
            source = self._holder(parts[0].tile, target)
            if self._source_hosts[source] == host:
                self._movement.copies.append(Copy(source, target))
                return
            parts = [_Part(parts[0].tile, WHOLE, WHOLE)]
        elif len(parts) < 2 and not any(part.target.covers(kind.shard_dims) for part in parts):
            # A piece alone is taken for the whole shard. Other elements, in the padding, make it one of several.
            one = Box((0,) * len(kind.dims), (1,) * len(kind.dims))
            other = _Part(0, one, Box(self._padding(parts), one.size))
            parts = [*parts, other] if parts else [other, other]
        self._movement.receives[target] = [
            self._send(self._holder(part.tile, target), part.source, target, part.target) for part in parts
        ]

    def _fills(self, part: _Part) -> bool:
        """Whether the source shard as it is can be the target shard."""
        at_start = not any(part.source.start) and not any(part.target.start)
        return at_start and self._source.shard_dims == self._target.shard_dims

    def _padding(self, parts: list[_Part]) -> tuple[int, ...]:
        """An element of a padded target shard that is not in its only part."""
        if not parts:
            return (0,) * len(self._target.dims)
        used = _end(parts[0].target)
        found = [0] * len(used)
        for dimension, (end, size) in enumerate(zip(used, self._target.shard_dims, strict=True)):
            if end < size:
                found[dimension] = end
                break
        return tuple(found)

    def _holder(self, tile: int, target: int) -> int:
        """Which source shard gives a tile: that on the same device, else on the same host, else on the host that has
        sent least so far."""
        device, host = self._target.devices[target], self._target_hosts[target]

        def distance(shard: int) -> tuple[bool, bool, int, int]:
            here = self._source_hosts[shard]
            return self._source.devices[shard] != device, here != host, self._sent[here], shard

        return min(self._holders[tile], key=distance)

    def _send(self, source: int, box: Box, target: int, to: Box) -> Piece:
        host, receiver = self._source_hosts[source], self._target_hosts[target]
        if host != receiver:
            self._sent[host] += math.prod(box.size or self._source.shard_dims)
        self._movement.sends.append(Send(source, box, receiver))
        return Piece(len(self._movement.sends) - 1, host, to)


def _tiles(kind: Type) -> tuple[int, ...]:
    return kind.tiling[1] if kind.tiling is not None else (0,) * len(kind.devices)


def _end(box: Box) -> tuple[int, ...]:
    return tuple(map(int.__add__, box.start, box.size))


def _minus(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int.__sub__, one, other))
