"""``ptpathways run`` of programs that only say ``device = "xla"``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ptpathways.cli import _plain
from tests.scenarios import ROOT, needs_native

SCRIPT = ROOT / "tests/proc/plain_program.py"


def _run(*command: str) -> list[str]:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=110, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


@needs_native
def test_a_program_that_knows_only_pytorch_trains_on_all_devices() -> None:
    run = ("-m", "ptpathways", "run", "--hosts", "2", "--devices-per-host", "2")
    losses, about = _run(*run, str(SCRIPT), "--device=xla")[-2:]
    (eager,) = _run(str(SCRIPT))
    assert json.loads(losses) == pytest.approx(json.loads(eager), rel=1e-4)
    devices, moved = json.loads(about)
    assert devices == 4
    # A batch that lay whole on every device would be 4 times this; weights are copies.
    batches, weights = 30 * 256 * (64 + 2) * 4, (64 * 32 + 32 + 32 * 10 + 10) * 4
    assert moved["bytes_uploaded"] < 1.5 * batches + 8 * weights, moved


@pytest.mark.parametrize(
    ("text", "arguments", "plain"),
    [
        ("import torch\nx = torch.ones(2, device='xla')", [], True),
        ("import torch\nx = torch.ones(2).to('xla:1')", [], True),
        ("import torch", ["--device=xla"], True),
        ("import torch", ["--device", "xla"], True),
        ("import torch_xla.core.xla_model as xm", [], True),
        ("import torch", ["--note=for xla"], False),
        ("import ptpathways as pw\nx = torch.ones(2, device='xla')", [], False),
        ("from ptpathways import init\nimport torch_xla", [], False),
        ("this is no Python", ["xla"], False),
    ],
)
def test_which_programs_are_joined_before_they_begin(
    tmp_path: Path, text: str, arguments: list[str], *, plain: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    assert _plain.is_plain(str(script), arguments) is plain
