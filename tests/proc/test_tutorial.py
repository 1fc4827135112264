"""The tutorial's blocks, run one after the other as one program."""

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
