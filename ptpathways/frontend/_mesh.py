"""All devices as one: PyTorch/XLA's SPMD mode, the mesh, and how batches and parameters lie on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways import core
from ptpathways.frontend import _rng, _state, _xla

if TYPE_CHECKING:
    import torch

DATA_AXIS = "data"
BATCH_AXES = (DATA_AXIS, "fsdp")
"""Names of mesh axes along which batches are divided unless the user says otherwise. ``fsdp`` is what torch_xla's
FSDPv2 calls the axis of its shards, which is one of data parallelism, too."""


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """How tensors of a batch lie on the devices."""

    mesh: Any
    """torch_xla's ``Mesh`` over all devices; None for a single device."""
    sizes: Mapping[str | int, int]
    """Devices along each axis of the mesh."""
    axes: tuple[tuple[str | int, ...], ...]
    """For each leading dimension of a tensor, the axes of the mesh that divide it."""

    def spec(self, shape: Sequence[int]) -> tuple[tuple[str | int, ...] | None, ...]:
        """The partition spec of a tensor. A dimension that cannot be divided evenly is not divided."""
        axes = (*self.axes, *[()] * len(shape))[: len(shape)]
        return tuple(
            names if names and size > 0 and size % self._parts(names) == 0 else None
            for names, size in zip(axes, shape, strict=True)
        )

    @property
    def parts(self) -> int:
        """Into how many parts the first dimension of a batch is divided; 1: every device gets all of it."""
        return self._parts(self.axes[0]) if self.axes else 1

    def _parts(self, names: tuple[str | int, ...]) -> int:
        parts = 1
        for name in names:
            parts *= self.sizes[name]
        return parts


def use_all_devices() -> int:
    """From now on this process has one torch device that stands for all; how many they are.

    With a single device nothing needs partitioning, and it is used plainly.

    Raises:
        NotInitialized: before ``init``.
        NotOneIsland: no collective connects all of them.
        RuntimeAlreadyStarted: devices are already used one by one.
    """
    this = _state.runtime()
    alone = this.device_count == 1
    if this.mode is _state.Mode.UNDECIDED and this.connection is not None:
        check_one_island([(host["name"], host["island"]) for host in this.connection.hosts()])
    _state.set_mode(_state.Mode.ONE_BY_ONE if alone else _state.Mode.TOGETHER)
    if not alone and not _spmd():
        from torch_xla import runtime

        runtime.use_spmd()
    _rng.follow_torch()
    return this.device_count


def notice_spmd() -> None:
    """Notes that the program itself has switched torch_xla to SPMD (``xr.use_spmd()``), which is using all together."""
    if _state.runtime().mode is _state.Mode.UNDECIDED and _spmd():
        _state.set_mode(_state.Mode.TOGETHER)


def _spmd() -> bool:
    from torch_xla import runtime

    return bool(runtime.is_spmd())  # type: ignore[no-untyped-call]


def check_one_island(hosts: Sequence[tuple[str, str]]) -> None:
    """Raises NotOneIsland unless all ``hosts``, given as (name, island), are of one island."""
    if len({island for _, island in hosts}) > 1:
        where = ", ".join(f"{name} in island {island}" for name, island in hosts)
        raise core.NotOneIsland(
            f"pw.prepare() and pw.device() make one computation of all devices, which must lie in one island, got "
            f"{where}; put the hosts in one island (islands=1), or use devices one by one: pw.device(0), pw.device(1), "
            "and pw.transfer between them"
        )


def batch_layout(mesh: Any = None, batch_axis: Any = None) -> BatchLayout:
    """How batches lie on all devices.

    Args:
        mesh: torch_xla's ``Mesh``; None: its global mesh if one is set, else one axis named ``data``.
        batch_axis: the mesh axis that divides a batch's first dimension, or a tuple of such axes; ``()`` divides
            nothing. A list has an entry per dimension. None: those of the mesh's axes named ``data`` and ``fsdp``.

    Raises:
        InvalidSharding: no mesh of all devices, an axis that it does not have, or none to choose.
        NotInitialized, NotOneIsland, RuntimeAlreadyStarted: as ``use_all_devices``.
    """
    count = use_all_devices()
    if mesh is None and count == 1:
        return BatchLayout(None, {}, ())
    if mesh is None:
        mesh = _default_mesh(count)
    sizes = _sizes(mesh, count)
    axes = choose_axes(sizes, batch_axis)
    return BatchLayout(mesh if count > 1 else None, sizes, axes if count > 1 else ())


def choose_axes(sizes: Mapping[str | int, int], batch_axis: Any) -> tuple[tuple[str | int, ...], ...]:
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
        if name not in sizes:
            raise core.InvalidSharding(f"batch_axis names mesh axis {name!r}, which does not exist; there are {have}")
        if used.count(name) > 1:
            raise core.InvalidSharding(f"batch_axis names mesh axis {name!r} twice; an axis divides one dimension")
    return axes


def _default_mesh(count: int) -> Any:
    import numpy as np
    from torch_xla.distributed import spmd

    return spmd.get_global_mesh() or spmd.Mesh(np.arange(count), (count,), (DATA_AXIS,))


def _sizes(mesh: Any, count: int) -> dict[str | int, int]:
    if not hasattr(mesh, "get_op_sharding") or int(mesh.size()) != count:
        got = f"one of {int(mesh.size())}" if hasattr(mesh, "size") else repr(mesh)
        raise core.InvalidSharding(
            f"mesh must be a torch_xla.distributed.spmd.Mesh over all {count} devices, got {got}; "
            f"for example Mesh(np.arange({count}), ({count},), ('{DATA_AXIS}',))"
        )
    return {name: int(size) for name, size in mesh.shape().items()}


def sharding_of(tensor: torch.Tensor) -> Any:
    """torch_xla's ``OpSharding`` of a tensor on the devices; None when nothing is said of it, or devices are single."""
    if tensor.device.type != "xla" or _state.runtime().mode is not _state.Mode.TOGETHER:
        return None
    return _xla.binding()._get_xla_op_sharding(tensor)


def replicate_unless_marked(tensor: torch.Tensor) -> None:
    """Says of a tensor on the devices that each has a copy of it, unless something else was said before."""
    mark(tensor, _xla.binding().OpSharding([], [], [], _REPLICATED))


def mark(tensor: torch.Tensor, sharding: Any) -> None:
    """Says how a tensor on the devices lies on them, an ``OpSharding``, unless something was said before."""
    if _state.runtime().mode is _state.Mode.TOGETHER and sharding_of(tensor) is None:
        _xla.binding()._xla_mark_sharding(tensor, sharding)


_REPLICATED = 0  # OpSharding's type, as XLA numbers it.


def upload_sharding(tensor: torch.Tensor, layout: BatchLayout | None) -> Any:
    """torch_xla's description of how a CPU tensor is to be cut up; without ``layout`` every device gets a copy."""
    spec = layout.spec(tensor.shape) if layout is not None else ()
    if layout is None or not any(spec):
        arguments: tuple[Any, ...] = ([], [], [], _REPLICATED)
    else:
        arguments = layout.mesh._get_op_sharding_args(spec)
    return _xla.binding().XlaShardingSpec(tensor, *arguments, False)
