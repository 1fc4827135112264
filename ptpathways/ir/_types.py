"""The values that a program is made of: types, slices, functions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ptpathways.core import InvalidProgram
from ptpathways.sharding import Mesh, Sharding

_INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
_FLOATS = ("f16", "f32", "f64", "bf16", "c64", "c128")
_SMALL_FLOATS = ("f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz")
DTYPES = frozenset(("pred", *_INTEGERS, *_FLOATS, *_SMALL_FLOATS))
"""XLA's names of the element types that buffers can have."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
"""What functions, slices and values may be called in a program."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A sharded tensor's type: element type, global shape, and how it lies on its slice.

    Raises:
        InvalidProgram: no such element type, or a negative size.
        InvalidSharding: the sharding does not divide the shape.
    """

    dtype: str
    shape: tuple[int, ...]
    sharding: Sharding

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        if self.dtype not in DTYPES:
            raise InvalidProgram(f"an element type is one of {', '.join(sorted(DTYPES))}, got {self.dtype!r}")
        if any(size < 0 for size in self.shape):
            raise InvalidProgram(f"sizes are not negative, got shape {self.shape}")
        self.sharding.shard_shape(self.shape)

    @property
    def shard_shape(self) -> tuple[int, ...]:
        return self.sharding.shard_shape(self.shape)

    @property
    def tensor(self) -> str:
        """``f32[8,4]``: without how it lies."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def same_tensor(self, other: ValueType) -> bool:
        """Whether element type and global shape are equal, however the two lie."""
        return self.dtype == other.dtype and self.shape == other.shape

    def same_layout(self, other: ValueType) -> bool:
        """Whether the two put the same elements at the same positions."""
        return self.same_tensor(other) and self.sharding.same_layout(other.sharding, len(self.shape))

    def on(self, mesh: Mesh) -> str:
        """``f32[8,4]{data,-}`` on a slice of that mesh; the mesh is said only when the sharding has another one."""
        if not self.sharding.axes and self.sharding.mesh == mesh:
            return self.tensor
        inner = self.sharding.text(len(self.shape))
        return f"{self.tensor}{{{inner if self.sharding.mesh == mesh else f'{self.sharding.mesh}: {inner}'}}}"


@dataclass(frozen=True, slots=True)
class Slice:
    """A virtual slice: devices of one island as a mesh, and once placed, which physical ones (paper 4.1).

    Raises:
        InvalidProgram: not a name, or devices and hosts that are not one per position.
    """

    name: str
    mesh: Mesh
    devices: tuple[int, ...] = ()
    """Cluster-wide number of the device at each position; empty until it is placed."""
    hosts: tuple[int, ...] = ()
    """Host of each of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        object.__setattr__(self, "hosts", tuple(self.hosts))
        _check_name("slice", self.name)
        wrong = len(self.devices) != self.mesh.size or len(set(self.devices)) != len(self.devices)
        if self.devices and wrong:
            raise InvalidProgram(
                f"slice {self.name!r} of mesh [{self.mesh}] needs {self.mesh.size} different devices, "
                f"got {list(self.devices)}"
            )
        if len(self.hosts) != len(self.devices):
            raise InvalidProgram(
                f"slice {self.name!r} needs the host of each of its {len(self.devices)} devices, got {list(self.hosts)}"
            )

    @property
    def placed(self) -> bool:
        return bool(self.devices)


@dataclass(frozen=True, slots=True)
class Function:
    """A compiled function: what it takes and gives, on which slice, and the module it is made of (paper 3).

    Raises:
        InvalidProgram: a name, position or mesh that cannot be.
    """

    name: str
    slice: str
    inputs: tuple[ValueType, ...]
    outputs: tuple[ValueType, ...]
    source: str = ""
    """The user's ``file:line``."""
    format: str = "hlo"
    """``hlo`` or ``mlir``; of a host call, anything that its owner understands."""
    digest: str = ""
    """``digest_of`` the module's bytes, which are kept elsewhere."""
    regular: bool = True
    """Whether the output types are known before it runs; if not, it is a host call (paper, appendix B)."""
    donated: tuple[int, ...] = ()
    """Positions of inputs whose memory it may take over for its outputs."""

    def __post_init__(self) -> None:
        for field in ("inputs", "outputs", "donated"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        _check_name("function", self.name)
        for position in self.donated:
            if not 0 <= position < len(self.inputs) or self.donated.count(position) > 1:
                raise InvalidProgram(
                    f"function {self.label} may take over its inputs 0 to {len(self.inputs) - 1}, each once, "
                    f"got {list(self.donated)}"
                )
        if len({kind.sharding.mesh.size for kind in (*self.inputs, *self.outputs)}) > 1:
            raise InvalidProgram(f"inputs and outputs of function {self.label} lie on meshes of different sizes")

    @property
    def label(self) -> str:
        """``b (fig2.py:12)``"""
        return label(self.name, self.source)

    def renamed(self, name: str) -> Function:
        return replace(self, name=name)


def digest_of(module: bytes) -> str:
    """The name of a module by its content: the first 16 bytes of its SHA-256, in hexadecimal."""
    return hashlib.sha256(module).hexdigest()[:32]


def label(name: str, source: str) -> str:
    """A name with the user's line, where it is known."""
    return f"{name} ({source})" if source else name


def ranges(numbers: Sequence[int]) -> str:
    """``0-3,8``: numbers as text, consecutive ones as a range."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidProgram(
            f"a {what}'s name has letters, digits and _ . - and does not begin with a digit, got {name!r}"
        )
