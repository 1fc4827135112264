"""A captured step that was saved goes on where it was, on a machine without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPEAT = 3


def _run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, check=False, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_chained_replay_trains_as_pytorch_does(tmp_path: Path) -> None:
    """The file says which result is which state: of many of one type in their order, they would be confused."""
    file = str(tmp_path / "step.zip")
    sizes = ("--layers", "2", "--batch", "2", "--length", "16", "--width", "64", "--vocabulary", "64")
    said = _run("tests.device.gpt2_step", "save", file, *sizes, "--float32", "--values", str(REPEAT))
    expected = float(said.rpartition("loss ")[2])
    found: dict[str, Any] = json.loads(_run("ptpathways", "replay", file, "--chain", "--repeat", str(REPEAT), "--json"))
    (loss,) = (result["first"][0] for result in found["results"] if result["name"] == "result0")
    assert loss == pytest.approx(expected, rel=1e-5)
    assert all(result == f"new.{argument}" for argument, result in found["chained"].items())


def test_what_is_saved_on_simulated_devices_runs_on_real_ones(tmp_path: Path) -> None:
    """Without values they are made up, such that rates and second moments are none that give nan."""
    file = str(tmp_path / "step.zip")
    _run("tests.device.gpt2_step", "save", file, "--layers", "1", "--batch", "1", "--length", "16", "--width", "64",
         "--vocabulary", "64")  # fmt: skip
    found: dict[str, Any] = json.loads(_run("ptpathways", "replay", file, "--chain", "--repeat", "2", "--json"))
    assert all(abs(result["mean"]) < 1e6 for result in found["results"]), found["results"]


ASSIGNS = """
import torch, ptpathways as pw, sys
pw.init(hosts=1)
device = pw.device()

class State:
    hidden = torch.zeros(4, device=device)
    count = torch.zeros((), device=device)

state, weight = State(), torch.full((4,), 0.5, device=device)

def step(x):
    state.hidden = torch.tanh(state.hidden * 0.9 + x * weight)
    state.count = state.count + 1
    if sys.argv[2] == "writes":
        weight.mul_(0.9)
    return state.hidden.sum() + state.count

step = pw.program(step)
x = torch.arange(4.0).to(device)
for _ in range(5):
    step(x)
step.save(sys.argv[1], x)
from ptpathways import programs
import dataclasses
bundle = programs.Bundle.load(sys.argv[1])
names = [node.outputs[0].name for node in bundle.program.arguments]
values = {"state.hidden": state.hidden, "state.count": state.count, "weight": weight, "argument0": x}
own = {names.index(name): value.cpu().numpy() for name, value in values.items()}
dataclasses.replace(bundle, values={**bundle.values, **own}).save(sys.argv[1])
for _ in range(5):
    last = step(x)
print("last", last.item())
"""


@pytest.mark.parametrize("how", ["assigns", "writes"])
def test_state_that_a_step_assigns_is_chained_and_numbers_are_not(tmp_path: Path, how: str) -> None:
    """Whether or not anything else is given up."""
    program, file = tmp_path / "assigns.py", str(tmp_path / "step.zip")
    program.write_text(ASSIGNS)
    done = subprocess.run(
        [sys.executable, str(program), file, how], cwd=ROOT, check=True, capture_output=True, text=True, timeout=200
    )
    found: dict[str, Any] = json.loads(_run("ptpathways", "replay", file, "--chain", "--repeat", "2", "--json"))
    (last,) = (result["first"][0] for result in found["results"] if result["name"] == "result0")
    assert last == pytest.approx(float(done.stdout.rpartition("last ")[2]), rel=1e-6)
    assert set(found["chained"]) == {"state.hidden", "state.count", *(["weight"] if how == "writes" else [])}
