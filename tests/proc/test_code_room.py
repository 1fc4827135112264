"""Compiled code takes memory mappings, of which a process may have so many; hosts do not die for want of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.scenarios import needs_native

MOST = 3000

LOOP = """
import json, sys
import torch
import ptpathways as pw
from ptpathways import frontend

cluster = pw.init(hosts=2)
devices = {"slice": cluster.slice((2,)).device, "one": pw.device(0)}
pids = [host["pid"] for host in frontend.session().hosts()]
weights = torch.eye(3) * 2
most, wrong = 0, []
for round in range(2):
    for size in range(2, 130):
        for name, device in devices.items():
            values = torch.arange(3.0 * size).reshape(size, 3)
            found = torch.softmax(values.to(device) @ weights.to(device), 0).sum(0).cumsum(0).cpu()
            if not torch.allclose(found, torch.softmax(values @ weights, 0).sum(0).cumsum(0)):
                wrong.append([name, size])
    for pid in pids:
        with open(f"/proc/{pid}/maps") as maps:
            most = max(most, sum(1 for _ in maps))
print(json.dumps({"most": most, "wrong": wrong}))
"""

GROWING = """
import json
import torch
import ptpathways as pw
from ptpathways import frontend

pw.init(hosts=1, recompiles="ignore")
pid = frontend.session().hosts()[0]["pid"]


def grown(width, device):
    torch.manual_seed(width)
    history, sums = torch.randn(3, width).to(device), []
    for _ in range(5):
        history = torch.cat((history, torch.tanh(history).mean(0, keepdim=True) + history[-1:] * 0.5))
        sums.append(history.sum().item())
    return torch.tensor(sums), history[1:3].cpu()


most, wrong = 0, []
for _ in range(2):
    for width in range(2, 42):
        for found, right in zip(grown(width, pw.device(0)), grown(width, "cpu")):
            if not torch.allclose(found, right, rtol=1e-4, atol=1e-4):
                wrong.append(width)
        with open(f"/proc/{pid}/maps") as maps:
            most = max(most, sum(1 for _ in maps))
print(json.dumps({"most": most, "wrong": wrong}))
"""

HELD = """
import torch
import ptpathways as pw

cluster = pw.init(hosts=1)
one = cluster.slice((1,))
held = []
for size in range(2, 400):
    held.append(pw.function(lambda values: torch.softmax(values @ values.T, 0).sum(), slice=one))
    held[-1](torch.ones(size, 3)).result(60)
"""


def _run(script: str, most: int = MOST) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "PTPATHWAYS_MAX_MAPPINGS": str(most)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@needs_native
def test_a_loop_of_many_shapes_lets_go_of_code_that_it_used_least_lately() -> None:
    done = _run(LOOP)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["wrong"] == []
    assert said["most"] < MOST


@needs_native
def test_arrays_that_grow_let_go_of_the_code_for_all_their_lengths() -> None:
    most = 1500  # they would take about 1700
    done = _run(GROWING, most)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["wrong"] == []
    assert said["most"] < most * 0.85
    assert "compiled for each of its lengths" not in done.stderr


@needs_native
def test_functions_that_are_held_are_refused_before_the_host_dies() -> None:
    done = _run(HELD)
    assert done.returncode == 1
    assert f"of the {MOST} that one process may have; let go of functions" in done.stderr, done.stderr[-3000:]
    assert "HostLost" not in done.stderr
