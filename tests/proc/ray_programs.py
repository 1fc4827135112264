"""Programs of ``test_ray``, each a driver of the Ray cluster that ``RAY_ADDRESS`` names: ``python -m ... NAME``."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ptpathways as pw

WAIT_S = 60.0


def _begin(**options: Any) -> pw.Cluster:
    return pw.init(launcher="ray", hosts=2, devices_per_host=2, startup_timeout_s=WAIT_S, **options)


def _pids() -> list[int]:
    from tests import inside

    connection = inside.connection()
    return connection.host_pids()


def digits(launcher: str = "ray") -> None:
    """Losses of a small classifier; ``launcher``: who has placed the workers."""
    import torch
    from sklearn.datasets import load_digits

    if launcher == "given":
        pw.init()
    else:
        pw.init(launcher=launcher, hosts=2, devices_per_host=2, startup_timeout_s=WAIT_S)
    pw.seed(7)
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)).to(pw.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for first in range(0, 640, 64):
        x, y = inputs[first : first + 64].to(pw.device()), targets[first : first + 64].to(pw.device())
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        pw.step()
        losses.append(loss.detach())
    print(json.dumps([float(loss) for loss in losses]))


def killed(what: str) -> None:
    """A worker or its actor dies: what a program hears, and how soon."""
    import torch

    _begin()
    here = torch.ones(4, device=pw.device(0))
    there = torch.ones(4, device=pw.device(2))
    pw.step()
    assert there.sum().item() == 4
    victim = _pids()[1]
    if what == "actor":
        victim = int(Path(f"/proc/{victim}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    try:
        while time.monotonic() - began < WAIT_S:
            (there + 1).sum().item()
    except pw.HostLost as error:
        heard = {"said": str(error), "after_s": time.monotonic() - began, "here": here.sum().item()}
        print(json.dumps(heard | {"again": _again()}))


def _again() -> float:
    """What the devices of both hosts compute when a worker is there in place of the one that ended."""
    import torch

    alive = [host for host in pw.cluster().hosts if host.alive]
    began = time.monotonic()
    while len(alive) < 2:
        if time.monotonic() > began + WAIT_S:
            raise TimeoutError("the host did not come back")
        time.sleep(0.1)
        alive = [host for host in pw.cluster().hosts if host.alive]
    place = pw.cluster().slice(shape=(4,), hosts=[host.name for host in alive]).device
    return (torch.ones(8, device=place) * 2).sum().item()


def too_many() -> None:
    """More than the cluster has."""
    try:
        pw.init(launcher="ray", hosts=3, devices_per_host=2, startup_timeout_s=3.0)
    except pw.DeadlineExceeded as error:
        print(error)
    _begin()  # nothing of it is left
    print(len(pw.cluster().hosts))


def waits() -> None:
    """Prints the workers' process ids and stays."""
    _begin()
    print(json.dumps(_pids()), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
