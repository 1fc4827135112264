"""``pw.init(simulated=...)``: what a user of PyTorch sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_training_loop_and_a_program_run_through(tmp_path: Path) -> None:
    picture = tmp_path / "trace.svg"
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.front_end_scenario", str(picture)],
        cwd=ROOT, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["loss"] == 0.0 and seen["value"] == [0.0] * 8
    assert sorted(device for device, *_ in seen["intervals"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert all(program == "twice" and "double" in node for _, program, node, _ in seen["intervals"])
    assert {cost for *_, cost in seen["intervals"]} == {700}
    assert picture.read_text().count("device ") == 4
