"""Pipelines on simulated devices: what their trace says. Prints one JSON object.

python pipeline_scenario.py
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import ptpathways as pw

RANKS = 4
COST_US = 2000.0
WAIT_S = 60.0


def measure(cluster: pw.Cluster, schedule: str, chunks: int) -> dict[str, Any]:
    slices = [cluster.slice((1,)) for _ in range(RANKS)]
    pipe = pw.pipeline(
        nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(RANKS * chunks))),
        stages=RANKS * chunks,
        microbatches=8,
        schedule=schedule,
        slices=slices,
        loss=F.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    batch = torch.zeros(8, 4), torch.zeros(8, 4)
    for _ in range(3):
        loss = pipe.step(*batch)
    loss.wait(WAIT_S)
    costs = pw.pipelines.Costs(COST_US, COST_US, COST_US)
    measured, planned = pipe.measured(costs=costs), pipe.plan(costs=costs)
    order = [[str(span.action) for span in measured.timeline.of_rank(rank)] for rank in range(RANKS)]
    wanted = [[str(span.action) for span in planned.timeline.of_rank(rank)] for rank in range(RANKS)]
    return {
        "measured": measured.bubble,
        "planned": planned.bubble,
        "theory": measured.theory,
        "same_order": order == wanted,
        "title": measured.title,
        "boxes": measured.svg().count("<title>"),
    }


def main() -> None:
    costs = {"forward*": COST_US, "backward_*": COST_US, "backward*": 2 * COST_US, "*": 1.0}
    cluster = pw.init(simulated=pw.Simulated(hosts=RANKS, devices_per_host=1, islands=RANKS, cost_us=costs))
    schedules = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zero-bubble": 1}
    print(json.dumps({name: measure(cluster, name, chunks) for name, chunks in schedules.items()}))


if __name__ == "__main__":
    main()
