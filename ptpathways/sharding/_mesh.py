"""The shape of a slice, and parts of tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ptpathways.core import InvalidSharding, whole_number

AXES_MAX = 3
DEVICES_MAX = 2**31 - 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Box(NamedTuple):
    """A part of a tensor or of a shard: the first element and the number of elements, per dimension."""

    start: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.size)

    def slices(self) -> tuple[slice, ...]:
        """The index that takes this part out of an array."""
        return tuple(slice(first, first + count) for first, count in zip(self.start, self.size, strict=True))

    def covers(self, shape: Sequence[int]) -> bool:
        """Whether this is all of a tensor of that shape."""
        return self.size == tuple(shape)


@dataclass(frozen=True, slots=True, init=False)
class Mesh:
    """Devices of a virtual slice as a grid of one to three named axes (paper 4.1).

    A device is named by its position: its row-major number in the grid, so on ``Mesh((2, 4), ("data", "model"))`` the
    device at data=1, model=2 is position 6.

    Raises:
        InvalidSharding: not one to three axes, an axis without devices, or names that are no distinct identifiers.
    """

    shape: tuple[int, ...]
    axis_names: tuple[str, ...]

    def __init__(self, shape: Sequence[int], axis_names: Sequence[str]) -> None:
        for what, given in (("shape", shape), ("axis_names", axis_names)):
            if isinstance(given, str | bytes) or not isinstance(given, Iterable):
                raise InvalidSharding(f"a mesh's {what} is a list with an entry per axis, got {given!r}")
        sizes, names = tuple(shape), tuple(axis_names)
        if not 1 <= len(sizes) <= AXES_MAX:
            raise InvalidSharding(f"a mesh has 1 to {AXES_MAX} axes, got shape {sizes}")
        try:
            sizes = tuple(whole_number(size, "devices", least=1) for size in sizes)
        except (TypeError, ValueError):
            raise InvalidSharding(f"each axis of a mesh has at least one device, got shape {sizes}") from None
        if math.prod(sizes) > DEVICES_MAX:
            raise InvalidSharding(f"a mesh has at most {DEVICES_MAX} devices, got shape {sizes}")
        if len(names) != len(sizes):
            raise InvalidSharding(f"a mesh of shape {sizes} needs {len(sizes)} axis names, got {names}")
        for name in names:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InvalidSharding(f"an axis name is an identifier such as 'data', got {name!r}")
        if len(set(names)) != len(names):
            raise InvalidSharding(f"axis names must differ, got {names}")
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "axis_names", names)

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.shape)

    def coordinates(self, position: int) -> tuple[int, ...]:
        """Where the device at ``position`` is on each axis.

        Raises:
            InvalidSharding: there is no such position.
        """
        if not 0 <= position < self.size:
            raise InvalidSharding(f"{self} has positions 0 to {self.size - 1}, got {position}")
        found = []
        for size in reversed(self.shape):
            position, coordinate = divmod(position, size)
            found.append(coordinate)
        return tuple(reversed(found))

    def axis(self, name: str) -> int:
        """The number of the axis of that name.

        Raises:
            InvalidSharding: there is none; the message has those there are.
        """
        try:
            return self.axis_names.index(name)
        except ValueError:
            raise InvalidSharding(f"mesh [{self}] has no axis {name!r}; its axes are {self.axis_names}") from None

    def __str__(self) -> str:
        """``data=2,model=4``: the form that ``parse_mesh`` reads."""
        return ",".join(f"{name}={size}" for name, size in zip(self.axis_names, self.shape, strict=True))
