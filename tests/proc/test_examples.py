"""The examples, as a user runs them: their losses are those of their eager twins."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch_xla")

from tests.scenarios import ROOT, needs_native

STEPS = 20
AS_USERS = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
"""Without what makes compiles quick in other tests."""


def run(name: str, folder: Path, *arguments: str, **environment: str) -> tuple[Any, str]:
    """The losses that an example wrote, and what it printed."""
    losses = folder / "losses.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), "--losses", str(losses), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=folder,
        env={**AS_USERS, "PYTHONPATH": str(ROOT), **environment},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(losses.read_text()), done.stdout


@needs_native
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["01_digits.py", "02_gpt_two_hosts.py"])
def test_the_losses_are_those_of_the_eager_twin(name: str, tmp_path: Path) -> None:
    extra = ["--sample", "0"] if "gpt" in name else []
    cluster, _ = run(name, tmp_path, "--steps", str(STEPS), *extra)
    eager, _ = run(name, tmp_path, "--steps", str(STEPS), "--eager", *extra)
    assert len(cluster) == len(eager) == STEPS
    assert cluster == pytest.approx(eager, rel=1e-3)
    assert cluster[-1] < cluster[0]


@needs_native
@pytest.mark.timeout(300)
def test_the_digits_are_learnt_and_the_picture_is_there(tmp_path: Path) -> None:
    _, printed = run("01_digits.py", tmp_path)
    accuracy = re.search(r"test accuracy ([0-9.]+)%", printed)
    assert accuracy is not None and float(accuracy[1]) > 97, printed
    assert re.search(r"the client waited [0-9.]+ s of [0-9.]+ s", printed), printed
    assert (tmp_path / "digits_loss.png").read_bytes().startswith(b"\x89PNG")


@needs_native
@pytest.mark.timeout(600)
def test_a_pipeline_changes_at_most_six_lines_and_no_loss(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    cluster, printed = run("06_pipeline_gpt.py", tmp_path, "--steps", str(STEPS), "--plan", str(picture))
    eager, _ = run("06_pipeline_gpt.py", tmp_path, "--steps", str(STEPS), "--eager")
    assert cluster == pytest.approx(eager, rel=1e-4) and cluster[-1] < 0.9 * cluster[0]
    assert "1f1b, planned: 4 stages on 4 slices, 8 microbatches" in printed
    assert picture.read_text().startswith("<svg")
    lines = (ROOT / "examples/06_pipeline_gpt.py").read_text().splitlines()
    ours = [line for line in lines if re.search(r"\bpw\b|optimizer = pipe\.|pipe\.step\(", line)]
    assert len(ours) <= 6, ours


@needs_native
@pytest.mark.timeout(300)
def test_four_ways_to_lay_a_model_give_the_same_losses(tmp_path: Path) -> None:
    two_by_two = ("--hosts", "2", "--devices-per-host", "2")
    found, printed = run("05_tensor_and_fully_sharded.py", tmp_path, "--steps", str(STEPS), *two_by_two)
    assert list(found) == ["data", "tensor", "fully-sharded", "data-and-tensor"] and printed.count(" at the last") == 4
    for losses in found.values():
        assert losses == pytest.approx(found["data"], rel=1e-4) and len(losses) == STEPS
    assert found["data"][-1] < 0.7 * found["data"][0]


SHORT = {
    "08_transformers_trainer.py": ("--steps", "12"),
    "09_accelerate.py": ("--epochs", "2"),
    "10_lightning.py": ("--epochs", "2"),
    "11_timm.py": ("--epochs", "2"),
    "12_torchvision.py": ("--epochs", "2"),
    "13_own_batches.py": ("--steps", "12"),
}


@functools.cache
def eager_losses(name: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return np.ravel(run(name, Path(folder), *SHORT[name], "--eager", USE_TORCH_XLA="0")[0])


@needs_native
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", ["1x1", "2x2", "4x1"])
@pytest.mark.parametrize("name", SHORT)
def test_loops_of_other_libraries_have_the_numbers_of_one_eager_process(name: str, shape: str, tmp_path: Path) -> None:
    hosts, devices = shape.split("x")
    quick = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    found, _ = run(name, tmp_path, *SHORT[name], "--hosts", hosts, "--devices-per-host", devices, **quick)
    assert np.ravel(found) == pytest.approx(eager_losses(name), rel=1e-4)


@pytest.mark.parametrize("name", SHORT)
def test_loops_of_other_libraries_have_one_line_of_ours_and_its_import(name: str) -> None:
    lines = (ROOT / "examples" / name).read_text().splitlines()
    assert len([line for line in lines if re.search(r"\bpw\b", line) and "`" not in line]) == 2


FIGURE_2 = """\
%v = argument : f32[2]{x} on s0 donated
%a = compute a(%v) : f32[2]{x} on s0 at "LINE"
%b = compute b(%a) : f32[2] on s1 at "LINE"
%c = compute c(%a) : f32[2]{x} on s2 at "LINE"
%a.1 = compute a(%c) : f32[2]{x} on s0 at "LINE"
result %b, %a.1
"""


@needs_native
@pytest.mark.timeout(200)
@pytest.mark.parametrize("hosts", ["3", "1"])
def test_the_papers_figure_2(tmp_path: Path, hosts: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "03_three_slices.py"), "--hosts", hosts, "--picture", "f.svg"],
        capture_output=True,
        text=True,
        timeout=150,
        cwd=tmp_path,
        env={**AS_USERS, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "f([1, 2]) = ([3.0, 5.0], [2.0, 4.0])" in done.stdout
    assert "awaited: [21.0, 41.0] [20.0, 40.0]" in done.stdout
    assert FIGURE_2 in re.sub(r'at ".*"', 'at "LINE"', done.stdout), done.stdout
    assert "us each to submit" in done.stdout
    assert (tmp_path / "f.svg").read_text().lstrip().startswith("<")
