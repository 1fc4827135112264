"""Process of ``input``: loops over a dataset with an expensive transform, loaded here or on the workers' hosts.

Arguments: hosts; devices per host. A request names a variant and a number of batches; the answer has seconds, the CPU
seconds of this process and its children, and bytes that it sent.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import ptpathways as pw
from ptpathways.bench._child import serve
from ptpathways.bench._input import BATCH, HERE, HERE_WORKERS, REMOTE

_SIDE = 96
_KERNEL = 9


class Images(Dataset[Any]):
    """Random images of 96 x 96, cropped, flipped and blurred: about 2 ms of one core each."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, _SIDE + 16, _SIDE + 16, generator=generator)
        top, left = torch.randint(0, 16, (2,)).tolist()
        image = image[:, top : top + _SIDE, left : left + _SIDE]
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        blurred = F.avg_pool2d(image[None], _KERNEL, stride=1, padding=_KERNEL // 2)[0]
        for _ in range(4):
            blurred = F.avg_pool2d(blurred[None], _KERNEL, stride=1, padding=_KERNEL // 2)[0]
        return (image - blurred).clamp(-1, 1), index % 10


def main() -> None:
    """Answers requests until there are no more."""
    pw.init(hosts=int(sys.argv[1]), devices_per_host=int(sys.argv[2]))
    torch.set_num_threads(1)
    makers: dict[str, Callable[[], Any]] = {
        HERE: lambda: DataLoader(Images(), batch_size=BATCH),
        HERE_WORKERS: lambda: DataLoader(Images(), batch_size=BATCH, num_workers=2, prefetch_factor=2),
        REMOTE: lambda: pw.data.remote(Images, batch_size=BATCH, shuffle=False),
    }

    def answer(request: Any) -> dict[str, float]:
        loader = pw.prepare(makers[request["variant"]]())
        batches = iter(loader)
        total = _use(next(batches))  # compiles, and starts processes
        float(total)
        cpu, start = os.times(), time.perf_counter()
        for _ in range(request["batches"]):
            total = _use(next(batches))
        float(total)
        seconds, after = time.perf_counter() - start, os.times()
        if hasattr(batches, "close"):
            batches.close()
        if hasattr(loader, "close"):
            loader.close()
        return {"seconds": seconds, "cpu": after.user + after.system - cpu.user - cpu.system}

    serve(answer)
    pw.shutdown()


def _use(batch: Any) -> torch.Tensor:
    images, labels = batch
    total: torch.Tensor = images.square().mean() + labels.sum()
    return total


if __name__ == "__main__":
    main()
