"""Process of ``first-step``: builds a model and makes two training steps, once, and tells how long that took.

Arguments: the training's name; ``ptpathways``, ``torch_xla``, ``torch.compile`` or ``eager``; of the first of them
hosts and devices per host, all of which are one slice.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ptpathways.bench._child import serve

STEPS = 2


def _own() -> Callable[[str], Any]:
    import ptpathways as pw

    pw.init(hosts=int(sys.argv[3]), devices_per_host=int(sys.argv[4]))
    device = pw.device()
    from ptpathways.bench._step_loop import Loop

    return lambda name: Loop(name, device, pw.step)


def _torch_xla() -> Callable[[str], Any]:
    os.environ["PJRT_DEVICE"] = "CPU"
    import torch_xla

    device = torch_xla.device()
    from ptpathways.bench._step_loop import Loop

    return lambda name: Loop(name, device, torch_xla.sync)


def _in_process(compiled: bool) -> Callable[[str], Any]:
    import torch

    from ptpathways.bench._step_loop import Loop, Step

    def compiling(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: Step) -> Step:
        model.compile()
        return step

    if compiled:
        return lambda name: Loop(name, torch.device("cpu"), wrap=compiling)
    return lambda name: Loop(name, torch.device("cpu"))


def main() -> None:
    name, system = sys.argv[1], sys.argv[2]
    import torchvision  # noqa: F401  (whose seconds are nobody's here)

    make = {"ptpathways": _own, "torch_xla": _torch_xla}.get(system, lambda: _in_process(system == "torch.compile"))()

    def measure(_: Any) -> dict[str, float]:
        start = time.perf_counter()
        answer = make(name).block(STEPS)  # which reads the second step's loss
        return {"seconds": time.perf_counter() - start, "loss": answer["loss"]}

    serve(measure)
    if system == "ptpathways":
        import ptpathways as pw

        pw.shutdown()


if __name__ == "__main__":
    main()
