"""``torch.distributed.pipelining`` over gloo, eager on CPU: a rank of ``torchrun`` per stage. Argument: the schedule.

The last rank has the losses. Rank 0 answers the process that measures, and tells the others how many steps follow.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from ptpathways.bench._child import serve
from ptpathways.bench._pipelining_work import MICROBATCHES, Batches, StageOf, loss_of, make_model, make_optimizer

_END = 0
_SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Stage(PipelineStage):
    """As it is, without the messages by which NCCL connects ranks: torch 2.9 sends int64 there and receives float32,
    which gloo refuses."""

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        return []


class Rank:
    """This process's stage."""

    def __init__(self, schedule: str) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        dist.init_process_group("gloo")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        module = StageOf(make_model(), self.rank, self.ranks)
        self._optimizer = make_optimizer(module.parameters())
        stage = Stage(module, self.rank, self.ranks, torch.device("cpu"))
        self._schedule = _SCHEDULES[schedule](stage, MICROBATCHES, loss_fn=loss_of)
        self._batches = iter(Batches())

    def told(self, steps: int) -> int:
        """What rank 0 says; the others' own argument is ignored."""
        value = torch.tensor([steps])
        dist.broadcast(value, 0)
        return int(value)

    def block(self, steps: int) -> dict[str, float]:
        """``steps`` steps; seconds, and the last one's loss."""
        dist.barrier()
        start = time.perf_counter()
        losses: list[Tensor] = []
        for _ in range(steps):
            inputs, targets = next(self._batches)
            losses = []
            self._optimizer.zero_grad()
            if self.rank == 0:
                self._schedule.step(inputs)
            elif self.rank == self.ranks - 1:
                self._schedule.step(target=targets, losses=losses)
            else:
                self._schedule.step()
            self._optimizer.step()
        loss = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        dist.broadcast(loss, self.ranks - 1)
        dist.barrier()
        return {"seconds": time.perf_counter() - start, "loss": float(loss)}

    def answer(self, request: Any) -> Any:
        """Rank 0's: ``{"steps": n}``."""
        return self.block(self.told(int(request["steps"])))


def main() -> None:
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # gloo says there when it has connected
    rank = Rank(sys.argv[1])
    if rank.rank == 0:
        os.dup2(answers, sys.stdout.fileno())
        serve(rank.answer)
        rank.told(_END)
    else:
        while (steps := rank.told(_END)) != _END:
            rank.block(steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
