"""What children that are forked from a client's process do with its devices: one JSON object, by what they did."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw


def outcome(act: Callable[[], Any]) -> list[Any]:
    """The status of a child that did it and went to its end, and what it heard."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        with os.fdopen(writes, "w") as told:
            try:
                act()
            except Exception as error:
                told.write(f"{type(error).__name__}: {error}")
        sys.exit(7)
    os.close(writes)
    with os.fdopen(reads) as told:
        said = told.read()
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said]


def main() -> None:
    pw.init(hosts=1, devices_per_host=2)
    x = torch.arange(20.0).to(pw.device())
    held = [torch.ones(4).to(pw.device()) * number for number in range(5)]
    pw.step()
    children: dict[str, Callable[[], Any]] = {
        "nothing": lambda: None,
        "cpu": x.cpu,
        "item": x.sum().item,
        "tolist": x.tolist,
        "print": lambda: str(x),
        "upload": lambda: torch.ones(3).to(pw.device()),
        "scalar": lambda: x * 3.5,
        "init": lambda: pw.init(hosts=1),
        "step": pw.step,
        "drop": held.clear,
        "shutdown": pw.shutdown,
    }
    found: dict[str, Any] = {name: outcome(act) for name, act in children.items()}
    try:
        found["loader"] = [len(batch) for (batch,) in DataLoader(TensorDataset(x), batch_size=4, num_workers=1)]
    except pw.PathwaysError as error:
        found["loader"] = str(error)
    plain = torch.arange(20.0)
    found["plain loader"] = [
        batch.to(pw.device()).sum().item()
        for (batch,) in DataLoader(TensorDataset(plain), batch_size=10, num_workers=1)
    ]
    found["parent"] = [x.sum().item(), held[3].sum().item()]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
