"""Pipelines and hosts: stages that share some, and the loss of one. One process, one cluster of one island.

python pipeline_host_scenarios.py HOSTS
"""

from __future__ import annotations

import copy
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F

import ptpathways as pw
from tests import inside
from tests.proc import pipeline_models as models
from tests.proc import pipeline_scenarios as scenarios
from tests.proc.cluster_scenarios import WAIT_S, Scenario, refused, run

STEPS = 60
KILLED_AFTER = 20


def stages_that_share_hosts(cluster: pw.Cluster) -> None:
    """Gangs over both hosts: on devices of another stage, on all of them, and side by side on different ones."""
    shapes: list[list[Callable[[], pw.VirtualSlice]]] = [
        [lambda: cluster.slice((2,), hosts=1), lambda: cluster.slice((4,))],
        [lambda: cluster.slice((4,)), lambda: cluster.slice((4,))],
        [lambda: cluster.slice((2,), hosts=2), lambda: cluster.slice((2,), hosts=2)],
    ]
    for shape in shapes:
        for schedule in ("gpipe", "1f1b", "zero-bubble"):
            slices = [make() for make in shape]
            torch.manual_seed(0)
            model = models.perceptron()
            eager = copy.deepcopy(model)
            pipe = pw.pipeline(
                model,
                stages=2,
                microbatches=4,
                slices=slices,
                loss=F.mse_loss,
                optimizer=scenarios.sgd,
                schedule=schedule,
            )
            scenarios.agrees(pipe, eager, scenarios.sgd, F.mse_loss, models.regression_batch)
            for one in slices:
                one.release()


def the_loss_of_a_host_ends_the_pipelines_on_it_only(cluster: pw.Cluster) -> None:
    """Dozens of steps are under way, so devices of the other hosts are full of what waits for the lost one."""
    connection = inside.connection()
    of_host: dict[int, list[pw.VirtualSlice]] = {0: [], 1: [], 2: []}
    for one in (cluster.slice((1,)) for _ in range(6)):
        of_host[one.devices[0] // 2].append(one)

    def pipeline(slices: list[pw.VirtualSlice]) -> pw.Pipeline:
        torch.manual_seed(0)
        return pw.pipeline(
            models.perceptron(), stages=2, microbatches=4, slices=slices, loss=F.mse_loss, optimizer=scenarios.sgd
        )

    first, third = pipeline(of_host[0]), pipeline(of_host[2])
    between = pipeline([of_host[1][0], of_host[2][0]])
    batch = models.regression_batch(scenarios.SAMPLES, torch.Generator().manual_seed(1))
    between.step(*batch)
    state = copy.deepcopy(between.state_dict())
    for pipe in (first, third):
        pipe.load_state_dict(state)
    early = [pipe.step(*batch) for pipe in (first, between, third)]
    assert len({float(loss.result(WAIT_S)) for loss in early}) == 1
    losses: dict[str, list[pw.Future]] = {"first": [], "third": []}
    lost = []
    error = None
    for step in range(STEPS):
        losses["first"].append(first.step(*batch))
        losses["third"].append(third.step(*batch))
        try:
            lost.append(between.step(*batch))
        except pw.HostLost as caught:
            error = caught
        if step == KILLED_AFTER:
            os.kill(connection.host_pids()[1], signal.SIGKILL)
    assert float(early[2].result(WAIT_S)) == float(early[0].result(WAIT_S)), "it was there before"
    got = {name: [float(loss.result(WAIT_S)) for loss in each] for name, each in losses.items()}
    assert got["first"] == got["third"] and len(set(got["first"])) == STEPS
    try:
        lost[-1].result(WAIT_S)
        between.step(*batch).result(WAIT_S)
    except pw.HostLost as caught:
        error = caught
    assert error is not None and "'host1'" in str(error)
    refused(pw.HostLost, ["'host1'", "load a checkpoint", "move() the slices"], lambda: between.module)
    after = [pipe.step(*batch) for pipe in (first, third)]
    assert len({float(loss.result(WAIT_S)) for loss in after}) == 1
    with tempfile.TemporaryDirectory() as folder:  # the same pipeline goes on, on another host
        first.load_state_dict(state)
        pw.save(Path(folder) / "run", pipe=first).wait()
        wanted = [float(first.step(*batch).result(WAIT_S)) for _ in range(3)]
        of_host[1][0].move(hosts=["host0"])
        for load in (lambda: pw.load(Path(folder) / "run", pipe=between), lambda: between.load_state_dict(state)):
            load()
            assert [float(between.step(*batch).result(WAIT_S)) for _ in range(3)] == wanted


ON_HOSTS: dict[int, list[Scenario]] = {
    2: [stages_that_share_hosts],
    3: [the_loss_of_a_host_ends_the_pipelines_on_it_only],
}

if __name__ == "__main__":
    hosts = int(sys.argv[1])
    run(ON_HOSTS[hosts], hosts=hosts, islands=1)
