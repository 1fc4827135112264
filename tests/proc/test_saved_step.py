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
    """Arguments follow the results that are called after them: of many of one type by order, they would be confused."""
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
