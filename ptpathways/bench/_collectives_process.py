"""Process of ``collectives``: one rank. Arguments: name of the group, rank, ranks, file of torch's store."""

from __future__ import annotations

import sys
import time
from typing import TypedDict

import torch
import torch.distributed as dist

from ptpathways import native
from ptpathways.bench._child import serve


class _Request(TypedDict):
    system: str
    bytes: int
    count: int
    check: bool


class _Rank:
    """Both groups, and the tensors that they reduce."""

    def __init__(self, name: str, rank: int, size: int, store: str) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        self.group = native.CollectiveGroup(name, rank, size)
        self.rank, self.size = rank, size
        self.values = torch.zeros(1)

    def answer(self, request: _Request) -> float:
        """Seconds for each all-reduce of f32, the ranks having started together."""
        if self.values.numel() * 4 != request["bytes"]:
            self.values = torch.zeros(request["bytes"] // 4)
        values, array, count = self.values, self.values.numpy(), request["count"]
        ours = request["system"] == "ptpathways"
        if request["check"]:
            values.fill_(self.rank + 1)
            self._reduce(ours)
            if not bool((values == self.size * (self.size + 1) / 2).all()):
                raise RuntimeError(f"{request['system']}: a wrong sum")
        values.zero_()  # sums of zeros stay what they are, however often they are reduced
        dist.barrier()
        start = time.perf_counter()
        if ours:
            reduce = self.group.all_reduce
            for _ in range(count):
                reduce(array)
        else:
            for _ in range(count):
                dist.all_reduce(values)
        return (time.perf_counter() - start) / count

    def _reduce(self, ours: bool) -> None:
        if ours:
            self.group.all_reduce(self.values.numpy())
        else:
            dist.all_reduce(self.values)


def main() -> None:
    ranks: list[_Rank] = []

    def answer(request: _Request) -> float:
        if not ranks:  # not before serve has set stdout aside: gloo prints to it
            ranks.append(_Rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
        return ranks[0].answer(request)

    serve(answer)
    for rank in ranks:
        rank.group.close()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
