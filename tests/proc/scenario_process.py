"""Runs a group of program_scenarios.py once per test run, and keeps what it said."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proc import program_scenarios

PROGRAM = Path(program_scenarios.__file__)
ROOT = PROGRAM.parents[2]


def outcome_of(group: str, folders: pytest.TempPathFactory) -> dict[str, str | None]:
    """For each scenario None, or the traceback."""
    return _outcome(group, program_file(folders))


def program_file(folders: pytest.TempPathFactory) -> Path:
    """Where the scenarios save a program."""
    return folders.getbasetemp() / "saved_program.zip"


@functools.cache
def _outcome(group: str, saved: Path) -> dict[str, str | None]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), group],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PROGRAM_FILE": str(saved)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found
