"""Scenario programs: each runs in a process of its own, because PyTorch/XLA's runtime starts once per process."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ptpathways import native

ROOT = Path(__file__).parents[1]


def _built() -> bool:
    try:
        native.find_extension()
    except native.NativeUnavailable:
        return False
    return True


needs_native = pytest.mark.skipif(not _built(), reason="the C++ extension is not built; run `make native`")


def outcome_of(program: Path, *arguments: str) -> Any:
    """What the last line that the program prints says, as JSON.

    It runs once in a test run for the same arguments, also when that fails: each of its tests has the same error then.
    """
    found = _run(program, *arguments)
    if isinstance(found, Exception):
        raise found
    return found


@functools.cache
def _run(program: Path, *arguments: str) -> Any:
    try:
        return _printed(program, *arguments)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return error


def _printed(program: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
