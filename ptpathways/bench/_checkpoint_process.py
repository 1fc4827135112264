"""Process of ``checkpoint``: a model on a local cluster that is saved and loaded.

Arguments: megabytes, hosts, devices per host, a folder.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch

import ptpathways as pw
from ptpathways.bench._child import serve

_WIDTH = 2048


class Model:
    """Square layers on all devices, a copy on each, and a folder for checkpoints of it."""

    def __init__(self, megabytes: int, folder: Path) -> None:
        layers = max(1, round(megabytes * 1e6 / (_WIDTH * _WIDTH * 4)))
        with pw.device():
            model = torch.nn.Sequential(*(torch.nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(layers)))
        self.model = pw.prepare(model)
        pw.wait()
        self.bytes = layers * _WIDTH * _WIDTH * 4
        self.path = folder / "checkpoint"

    def answer(self, request: dict[str, Any]) -> dict[str, float]:
        """``save`` (a new checkpoint) or ``load`` (the last one, whose pages the system may still have)."""
        if request["do"] == "save":
            shutil.rmtree(self.path, ignore_errors=True)
            save = pw.save(self.path, model=self.model)
            return {"bytes": self.bytes, "seconds": save.seconds, "blocked_s": save.blocked_s}
        start = time.perf_counter()
        pw.load(self.path, model=self.model)
        return {"bytes": self.bytes, "seconds": time.perf_counter() - start, "blocked_s": 0.0}


def main() -> None:
    megabytes, hosts, devices = map(int, sys.argv[1:4])
    pw.init(hosts=hosts, devices_per_host=devices)
    serve(Model(megabytes, Path(sys.argv[4])).answer)
    pw.shutdown()


if __name__ == "__main__":
    main()
