"""All devices as one: PyTorch/XLA's SPMD mode with one mesh axis, over which batches are split."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ptpathways import core
from ptpathways.frontend import _rng, _state

DATA_AXIS = "data"


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
    if _state.set_mode(_state.Mode.ONE_BY_ONE if alone else _state.Mode.TOGETHER):
        if not alone:
            from torch_xla import runtime

            runtime.use_spmd()
        _rng.follow_torch()
    return this.device_count


def check_one_island(hosts: Sequence[tuple[str, str]]) -> None:
    """Raises NotOneIsland unless all ``hosts``, given as (name, island), are of one island."""
    if len({island for _, island in hosts}) > 1:
        where = ", ".join(f"{name} in island {island}" for name, island in hosts)
        raise core.NotOneIsland(
            f"prepare() makes one computation of all devices, which must lie in one island, got {where}; "
            "use one host (hosts=1), or put parts of the model on different hosts with pw.device and pw.transfer"
        )


@functools.cache
def _spec(dimensions: int, split: bool) -> Any:
    """A sharding of tensors with that many dimensions: the first split over all devices, or a copy on each."""
    import numpy as np
    from torch_xla.distributed import spmd

    count = _state.runtime().device_count
    mesh = spmd.Mesh(np.arange(count), (count,), (DATA_AXIS,))
    return spmd.ShardingSpec(mesh, (DATA_AXIS if split else None,) + (None,) * (dimensions - 1) if dimensions else ())


def sharding(tensor: Any, split: bool) -> Any:
    """torch_xla's own description of how ``tensor`` lies on the devices."""
    return _spec(tensor.dim(), split).xla_spec(tensor)
