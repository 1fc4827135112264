"""The program that trains while faults happen. ``loop.py``; PTPATHWAYS_ADDRESS: the cluster; none: one of its own.

Commands come as lines of JSON on standard input, and everything that happens goes out as lines of JSON:

    {"do": "run", "until": 300}   trains, 20 steps a second at most, up to step 300 or the next command
    {"do": "save", "path": "..."} saves a checkpoint and waits for it
    {"do": "refuse", "rows": N}   asks for a batch of N rows, which the devices have no memory for
    {"do": "damage"}              changes the state on the devices: what the judge must find
    {"do": "end"}

A step's line has its number, the counter that is kept on the devices, and the loss's bits. Every tenth has a checksum
of the parameters, too.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import zlib
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import ptpathways as pw
from ptpathways import core

ROWS, COLUMNS, HIDDEN = 64, 512, 128
STEPS_PER_S = float(os.environ.get("CHAOS_STEPS_PER_S", "20"))
LOOK_EVERY = 10


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(COLUMNS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self.count: torch.Tensor
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of step number ``step``: never the same, and nothing to be learned from, so that no loss stays as it was."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, COLUMNS, generator=generator), torch.randn(ROWS, 1, generator=generator)


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


class Loop:
    def __init__(self) -> None:
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        place = pw.device()

        def step(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x.to(place)), y.to(place))
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model.count.add_(1.0)
            return loss.detach(), model.count * 1.0

        self.model, self.optimizer, self.step = pw.prepare(model, optimizer, step, capture=True)
        self.place = place
        self.done = 0

    def train(self) -> None:
        loss, count = self.step(*batch(self.done))
        self.done += 1
        found = {"step": self.done, "count": int(count.item()), "loss": loss.item().hex()}
        if self.done % LOOK_EVERY == 0:
            weights = self.model.layers[0].weight.detach().cpu()
            found["crc"] = zlib.crc32(weights.numpy().tobytes())
        say(**found)

    def refuse(self, rows: int) -> None:
        x = torch.zeros(rows, COLUMNS)
        say(refused=False, value=float(x.to(self.place).sum().item()))

    def damage(self) -> None:
        with torch.no_grad():
            self.model.layers[0].weight.add_(1e-3)


def commands() -> queue.Queue[dict[str, Any]]:
    """Of standard input, as they come; its end is one, too."""
    found: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            found.put(json.loads(line))
        found.put({"do": "end"})

    threading.Thread(target=read, daemon=True).start()
    return found


def serve(loop: Loop, asked: queue.Queue[dict[str, Any]]) -> None:
    until = 0
    while True:
        next_s = time.monotonic() + 1 / STEPS_PER_S
        if loop.done < until:
            loop.train()
        try:
            wait_s = max(0.0, next_s - time.monotonic()) if loop.done < until else None
            command = asked.get(timeout=wait_s) if wait_s != 0.0 else asked.get_nowait()
        except queue.Empty:
            continue
        match command.pop("do"):
            case "run":
                until = command["until"]
            case "save":
                attempt(lambda path: pw.save(path, model=loop.model, optimizer=loop.optimizer).wait(), **command)
            case "refuse":
                attempt(loop.refuse, **command)
            case "damage":
                loop.damage()
            case _:
                return


def attempt(what: Any, **arguments: Any) -> None:
    """Something that may be refused, which is no end of the loop."""
    try:
        what(**arguments)
        say(allowed=True)
    except core.PathwaysError as error:
        say(refused=True, error=type(error).__name__, message=str(error))


def main() -> None:
    asked = commands()
    try:
        pw.init(hosts=2, memory_per_device="32MiB") if "PTPATHWAYS_ADDRESS" not in os.environ else pw.init()
        serve(Loop(), asked)
    except Exception as error:
        say(error=type(error).__name__, message=str(error))
    pw.shutdown()
    say(ended=True)


if __name__ == "__main__":
    main()
