"""A minute of the campaign (`make chaos`), and that a campaign finds what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.scenarios import ROOT, needs_native

pytestmark = [needs_native, pytest.mark.timeout(600)]


def _campaign(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.chaos", "--keep", str(folder), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=570)


def test_a_loop_survives_what_it_is_promised_to_and_hears_of_the_rest(tmp_path: Path) -> None:
    done = _campaign(tmp_path, "--short", "--seed", "1")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "all as promised" in done.stdout


def test_a_campaign_finds_what_is_wrong(tmp_path: Path) -> None:
    """Values that somebody changes, a segment and a process that stay, a worker that nobody lets go on."""
    done = _campaign(tmp_path, "--sabotage")
    assert done.returncode == 1, done.stdout[-6000:] + done.stderr[-2000:]
    value, behind, hang = done.stdout.split("not as promised:\n")[1].splitlines()
    assert value.startswith("0: reset of client-b") and "instead of" in value
    assert behind.startswith("1: ")
    assert "got hang; waited in vain for a step" in hang and "segment ptpathways-" in hang and "sleep 600" in hang
    assert "| all | 3 | 2 | 0 |" in done.stdout
