"""PyTorch/XLA: one process; each host is one of its CPU devices, used through its SPMD mode. Lazy tensors.

As for JAX, there is no controller and no other process. Where it has a collective, each computation is waited for.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from runner import CHAIN, Batch, Setting

_CALLS = 100


class TorchXla:
    """PyTorch/XLA's own CPU client with a device for each host."""

    def __init__(self, setting: Setting) -> None:
        hosts = setting["hosts"]
        os.environ.update(PJRT_DEVICE="CPU", CPU_NUM_DEVICES=str(hosts), NPROC=str(max(8, 4 * hosts)))
        import numpy as np
        import torch

        torch_xla, spmd, runtime = (  # much of what it exports it does not declare
            importlib.import_module(name) for name in ("torch_xla", "torch_xla.distributed.spmd", "torch_xla.runtime")
        )

        runtime.use_spmd()
        self.versions = {"torch_xla": torch_xla.__version__}
        self._sync = torch_xla.sync
        self._wait = torch_xla._XLAC._xla_wait_device_ops
        self._hosts = hosts
        self._reduces = setting["work"] == "allreduce"
        mesh = spmd.Mesh(np.arange(hosts), (hosts,), ("hosts",))
        mark: Any = spmd.mark_sharding
        self._spread: Any = lambda value: mark(value, mesh, ("hosts",))
        self._value = torch.zeros(hosts, device=torch_xla.device())
        self._spread(self._value)

    def figures(self) -> dict[str, Batch]:
        return {
            "OpByOp": lambda: self._computations(_CALLS, 1),
            "Fused": lambda: self._computations(3, CHAIN),
            "round trip": lambda: self._computations(1, 1),
        }

    def close(self) -> None:
        self._wait([])

    def _computations(self, calls: int, fused: int) -> float:
        for _ in range(calls):
            for _turn in range(fused):
                self._value = self._one(self._value)
            self._sync(wait=self._reduces and self._hosts > 1)
        self._wait([])
        return float(calls * fused)

    def _one(self, value: Any) -> Any:
        if self._reduces:
            value = value.mean().expand(self._hosts)
        value = value + 1.0
        self._spread(value)
        return value


open_system = TorchXla
