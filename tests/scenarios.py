"""Scenario programs: each runs in a process of its own, because PyTorch/XLA's runtime starts once per process."""

from __future__ import annotations

import functools
import json
import os
import signal
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


LIMIT_S = 900
"""Of a program with many scenarios: a limit for those that hang, which a slow machine does not reach."""
limited = pytest.mark.timeout(LIMIT_S + 30)
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
    command = [sys.executable, "-X", "faulthandler", str(program), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as running:
        try:
            output, errors = running.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGABRT)  # it prints where its threads are
            try:
                output, errors = running.communicate(timeout=20)
            finally:
                running.kill()
            raise subprocess.TimeoutExpired(command, LIMIT_S, output, errors) from None
        except BaseException:
            running.kill()
            raise
    assert running.returncode == 0, errors[-4000:]
    return json.loads(output.splitlines()[-1])
