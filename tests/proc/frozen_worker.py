"""A training loop whose worker is stopped (SIGSTOP) for 20 steps. A program of its own: ``frozen_worker.py DEVICES``.

Prints one JSON object: the steps that were traced meanwhile, the waits they made, and the losses; those of the same
loop in plain PyTorch for comparison.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import ptpathways as pw
from ptpathways.testing import stop_process
from tests import inside

WARM_UP, FROZEN = 5, 20


def train(prepared: bool, pid: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    loader: Any = [(torch.randn(16, 64), torch.randint(0, 10, (16,))) for _ in range(WARM_UP + FROZEN)]
    if prepared:
        model, optimizer, scheduler, loader = pw.prepare(model, optimizer, scheduler, loader)
    losses, before = [], None
    for step, (x, y) in enumerate(loader):
        if prepared and step == WARM_UP:
            pw.wait(60)
            before = pw.wait_stats()
            stop_process(pid)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    waits = 0
    if before is not None:
        waits = (pw.wait_stats() - before).count
        os.kill(pid, signal.SIGCONT)
    return {"losses": torch.stack(losses).tolist(), "waits": waits, "steps": len(losses)}


def main() -> None:
    pw.init(hosts=1, devices_per_host=int(sys.argv[1]))
    connection = inside.connection()
    (pid,) = connection.host_pids()
    json.dump({"cluster": train(True, pid), "eager": train(False, pid)}, sys.stdout)


if __name__ == "__main__":
    main()
