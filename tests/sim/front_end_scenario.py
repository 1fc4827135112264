"""A PyTorch loop and a program on simulated devices; prints what happened as JSON. Run as a process of its own."""

from __future__ import annotations

import json
import sys

import torch
from torch import nn

import ptpathways as pw


def main(picture: str) -> None:
    """Trains a few steps on one device, runs a program over four, saves the trace as ``picture``."""
    pw.init(simulated=pw.Simulated(hosts=2, devices_per_host=2, cost_us={"double": 700.0, "*": 300.0}))
    device = pw.device(0)
    model = nn.Linear(32, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        loss = model(torch.randn(8, 32).to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pw.step()
    trained = loss.item()

    everything = pw.cluster().slice(shape=(4,), axis_names=("x",))

    @pw.function(slice=everything, in_placements=("x",), out_placements=("x",))
    def double(v: torch.Tensor) -> torch.Tensor:
        return v * 2.0

    @pw.program
    def twice(v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = double(double(v))
        return out

    pw.trace(clear=True)
    value = twice(torch.ones(8)).result(30)
    trace = pw.trace()
    trace.save(picture)
    intervals = [(i.device, i.program, i.node, round(i.end_us - i.start_us)) for i in trace.intervals()]
    print(json.dumps({"loss": trained, "value": value.tolist(), "intervals": intervals}))


if __name__ == "__main__":
    main(sys.argv[1])
