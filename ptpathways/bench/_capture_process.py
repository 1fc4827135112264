"""Process of ``capture``. Arguments: hosts, devices per host, optimizer, layers."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch.nn import functional as F

import ptpathways as pw
from ptpathways.bench._child import serve

_WIDTH = 4
_WARM_UP = 5

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Stack:
    """So many small linear layers and an optimizer: next to nothing to compute, and many tensors to handle."""

    def __init__(self, optimizer: str, layers: int) -> None:
        torch.manual_seed(0)
        device = pw.device(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(layers))).to(device)
        if optimizer == "sgd":
            updater: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        else:
            updater = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            updater.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            updater.step()
            return loss.detach()

        def lazily(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            loss = step(x, y)
            pw.step()
            return loss

        self._batch = torch.randn(2, _WIDTH).to(device), torch.randn(2, _WIDTH).to(device)
        captured = pw.program(step)
        self._steps: dict[str, Step] = {"replayed": captured, "traced": lazily}
        for _ in range(_WARM_UP):
            captured(*self._batch).item()
        assert captured.replays > 0, "the step is captured"

    def measure(self, how: str, steps: int) -> dict[str, float]:
        """Medians over ``steps`` calls, each of which begins when the one before has ended at the worker."""
        step = self._steps[how]
        elapsed, computed = [], []
        step(*self._batch).item()
        for _ in range(steps):
            start, cpu = time.perf_counter(), time.thread_time()
            loss = step(*self._batch)
            computed.append(time.thread_time() - cpu)
            elapsed.append(time.perf_counter() - start)
            loss.item()
        return {"elapsed_ms": statistics.median(elapsed) * 1e3, "cpu_ms": statistics.median(computed) * 1e3}


def main() -> None:
    hosts, devices, optimizer, layers = sys.argv[1:]
    pw.init(hosts=int(hosts), devices_per_host=int(devices))
    stack = Stack(optimizer, int(layers))
    serve(lambda request: stack.measure(request["how"], request["steps"]))
    pw.shutdown()


if __name__ == "__main__":
    main()
