"""A run of tests with --budget begins none later, and says which it left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = "tests/unit/test_times.py"


def test_a_used_up_budget_skips_the_rest() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS, "--budget", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no time is left for it (--budget)" in done.stdout
    assert "passed" not in done.stdout
