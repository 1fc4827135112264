"""The plugin under JAX: the scenarios of jax_scenarios.py, in one process.

JAX is no dependency of this project and has pins of its own, so it lives elsewhere: PTPATHWAYS_JAX_PYTHON names an
interpreter of this Python version with jax, pyzmq and msgspec; ``make test-all`` makes one.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ptpathways import platforms

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("PTPATHWAYS_JAX_PYTHON", "")

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="PTPATHWAYS_JAX_PYTHON names no interpreter with JAX"),
    pytest.mark.timeout(240),
]


@pytest.fixture(scope="module")
def results() -> Any:
    """What all scenarios gave."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PTPATHWAYS_PLUGIN": platforms.find_plugin("cpu").path}
    done = subprocess.run(
        [PYTHON, "-m", "tests.device.jax_scenarios"],
        capture_output=True,
        text=True,
        timeout=220,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("devices", [4, "pathways", "cpu", 0, "device"]),
        ("element_types", []),
        (
            "other_devices",
            [{"bytes_uploaded": 0, "bytes_fetched": 0, "copies": 1}, [1], pytest.approx(50_000 * 49_999 / 2, rel=1e-6)],
        ),
        ("donation", [True, 20.0]),
        ("sharded", [True, True, 4]),
        ("replicated", [6.0, 6.0, 6.0, 6.0]),
        ("serialized", [[0.0, 2.0, 4.0], 12]),
        ("gradients", pytest.approx(0, abs=1e-6)),
    ],
)
def test_jax_runs_on_the_cluster(results: Any, scenario: str, expected: Any) -> None:
    got = results[scenario]
    assert not (isinstance(got, dict) and "error" in got), got["error"]
    assert got == expected


def test_a_host_callback_is_refused(results: Any) -> None:
    assert "not supported" in results["a_callback_is_refused"]
