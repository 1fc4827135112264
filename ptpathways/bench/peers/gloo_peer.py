"""torch.distributed with gloo: no controller, each process loops by itself, as the paper's multi-controller systems do.

The process that measures is rank 0; it tells the others how many computations follow, once for each batch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from runner import Batch, Setting

_CALLS = 500
_END = 0
_TIMEOUT_S = 20.0


class Loop:
    """One process of the group, and the scalar that it holds."""

    def __init__(self, rank: int, ranks: int, store: str) -> None:
        torch.set_num_threads(1)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
        self._ranks = ranks
        self.value = torch.zeros(())

    def run(self, count: int) -> None:
        """The mean over all processes, plus one; ``count`` times."""
        value, part = self.value, 1.0 / self._ranks
        for _ in range(count):
            dist.all_reduce(value)
            value = value * part + 1.0
        self.value = value

    def told(self, count: int) -> int:
        """What rank 0 says; the others' ``count`` is ignored."""
        number = torch.tensor(count)
        dist.broadcast(number, 0)
        return int(number)


class Gloo:
    """Rank 0, and a process for each of the other hosts."""

    def __init__(self, setting: Setting) -> None:
        self.versions = {"torch": torch.__version__}
        self._folder = tempfile.TemporaryDirectory()
        store = str(Path(self._folder.name) / "store")
        ranks = setting["hosts"]
        self._others = [
            subprocess.Popen([sys.executable, __file__, str(rank), str(ranks), store]) for rank in range(1, ranks)
        ]
        self._loop = Loop(0, ranks, store)
        self._runs(3)
        if self._loop.value.item() != 3.0:
            raise RuntimeError(f"every process must hold 3 after as many computations, got {self._loop.value.item()}")

    def figures(self) -> dict[str, Batch]:
        return {"OpByOp": lambda: self._runs(_CALLS)}

    def close(self) -> None:
        self._loop.told(_END)
        for process in self._others:
            process.wait(_TIMEOUT_S)
        dist.destroy_process_group()
        self._folder.cleanup()

    def _runs(self, count: int) -> float:
        self._loop.told(count)
        self._loop.run(count)
        return float(count)


def main() -> None:
    """Another rank: arguments are its number, how many there are, and the store's file."""
    loop = Loop(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    while count := loop.told(_END):
        loop.run(count)
    dist.destroy_process_group()


open_system = Gloo

if __name__ == "__main__":
    main()
