"""What the documentation shows beginners: the tutorial's blocks as one program, and loops of PyTorch/XLA's programs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.scenarios import ROOT, needs_native


@needs_native
@pytest.mark.timeout(400)
def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 7
    program = tmp_path / "tutorial.py"
    program.write_text("".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=380, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "Warning" not in done.stderr, done.stderr
    epochs = [float(loss) for loss in re.findall(r"^epoch \d: ([0-9.]+)$", done.stdout, re.MULTILINE)]
    assert len(epochs) == 3 and epochs[-1] < 0.5, done.stdout
    said = dict(re.findall(r"^(student|after the move|pipeline): ([0-9.]+)$", done.stdout, re.MULTILINE))
    assert set(said) == {"student", "after the move", "pipeline"}, done.stdout


@needs_native
@pytest.mark.timeout(300)
def test_loops_of_programs_for_torch_xla_train_as_on_the_cpu() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.proc.torch_xla_loops"],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.split() == ["right"]
