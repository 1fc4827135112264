"""The page of JAX programs, run by an interpreter that has JAX: JAX is no dependency of this package."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from ptpathways import platforms

VARIABLE = "PTPATHWAYS_JAX_PYTHON"
"""An interpreter of the same Python version that has jax and pyzmq, e.g. of another virtual environment."""

ROOT = Path(__file__).resolve().parents[2]
PROBE_TIMEOUT_SECONDS = 60
PAGE_TIMEOUT_SECONDS = 300


def interpreter() -> str:
    """The interpreter to use; skips when there is none, with what is missing."""
    python = os.environ.get(VARIABLE, "")
    if not python:
        pytest.skip(f"{VARIABLE} names no interpreter that has jax and pyzmq")
    probe = subprocess.run(
        [python, "-c", "import jax, zmq"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_SECONDS, check=False
    )
    if probe.returncode:
        pytest.skip(f"{VARIABLE}={python} cannot import jax and zmq: {probe.stderr.strip()[-300:]}")
    return python


@pytest.mark.timeout(PROBE_TIMEOUT_SECONDS + PAGE_TIMEOUT_SECONDS + 30)
def test_every_jax_program_does_what_the_page_says() -> None:
    python = interpreter()
    plugin = platforms.find_plugin("cpu").path
    page = subprocess.run(
        [python, str(Path(__file__).with_name("jax_programs.py")), "--plugin", plugin],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PAGE_TIMEOUT_SECONDS,
        check=False,
    )
    lines = [json.loads(line) for line in page.stdout.splitlines() if line.startswith("{")]
    begun = [line["name"] for line in lines if line["outcome"] == "begun"]
    ended = {line["name"]: line for line in lines if line["outcome"] != "begun"}
    lost = [name for name in begun if name not in ended]
    failed = [f"{name}: {line['message']}" for name, line in ended.items() if line["outcome"] == "failed"]
    assert not failed, "\n".join(failed)
    assert page.returncode == 0 and not lost and len(ended) > 40, f"ended in {lost}: {page.stderr[-3000:]}"
