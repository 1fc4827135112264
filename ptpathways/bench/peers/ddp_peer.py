"""PyTorch's DistributedDataParallel over gloo, eager on CPU: a rank of ``torchrun``, one for each host.

Rank 0 answers the process that measures, and tells the others how many steps follow. Argument: the model.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ptpathways.bench._child import serve
from ptpathways.bench._data_parallel_loop import SAMPLES_PER_HOST, Batches, Loop, make, step_of

_END = 0


class Rank:
    """This process's replica and its part of every batch."""

    def __init__(self, model: str) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        dist.init_process_group("gloo")
        self.rank, ranks = dist.get_rank(), dist.get_world_size()
        samples = SAMPLES_PER_HOST[model]
        module, optimizer = make(model)
        self._replica = DistributedDataParallel(module)
        part = slice(self.rank * samples, (self.rank + 1) * samples)
        self._loop = Loop(step_of(self._replica, optimizer), Batches(model, ranks, part))

    def told(self, steps: int, exchange: bool) -> tuple[int, bool]:
        """What rank 0 says; the others' own arguments are ignored."""
        values = torch.tensor([steps, int(exchange)])
        dist.broadcast(values, 0)
        return int(values[0]), bool(values[1])

    def block(self, steps: int, exchange: bool) -> dict[str, float]:
        """As ``Loop.block``. Without ``exchange`` every replica takes its own gradients."""

        def whole(loss: Tensor) -> Tensor:
            dist.all_reduce(loss)
            return loss / dist.get_world_size()

        with contextlib.nullcontext() if exchange else self._replica.no_sync():
            return self._loop.block(steps, whole)

    def answer(self, request: Any) -> Any:
        """Rank 0's: ``{"steps": n}``, and perhaps ``"exchange": false``."""
        return self.block(*self.told(int(request["steps"]), bool(request.get("exchange", True))))


def main() -> None:
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # gloo says there when it has connected
    rank = Rank(sys.argv[1])
    if rank.rank == 0:
        os.dup2(answers, sys.stdout.fileno())
        serve(rank.answer)
        rank.told(_END, True)
    else:
        while (said := rank.told(_END, True))[0] != _END:
            rank.block(*said)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
