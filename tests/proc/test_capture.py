"""Captured training steps, in processes of their own: the numbers of eager PyTorch, without tracing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from ptpathways import native
from tests.proc import capture_scenarios as scenarios

PROGRAM = Path(scenarios.__file__)
ROOT = PROGRAM.parents[2]


def _built() -> bool:
    try:
        native.find_extension()
    except native.NativeUnavailable:
        return False
    return True


pytestmark = pytest.mark.skipif(not _built(), reason="the C++ extension is not built; run `make native`")


@pytest.fixture(scope="module")
def outcome() -> Any:
    """Runs the program once per mode and keeps what it printed."""
    kept: dict[str, dict[str, Any]] = {}

    def ask(mode: str) -> dict[str, Any]:
        if mode not in kept:
            done = subprocess.run(
                [sys.executable, str(PROGRAM), mode],
                capture_output=True,
                text=True,
                timeout=280,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            assert done.returncode == 0, done.stderr[-4000:]
            kept[mode] = json.loads(done.stdout.splitlines()[-1])
        return kept[mode]

    return ask


CASES = [(mode, scenario.__name__) for mode, group in scenarios.SCENARIOS.items() for scenario in group]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mode", "scenario"), CASES)
def test_a_captured_step_gives_the_numbers_of_eager_pytorch(outcome: Any, mode: str, scenario: str) -> None:
    found = outcome(mode)[scenario]
    assert "error" not in found, found["error"]
    assert found["captured"] == pytest.approx(found["eager"], rel=1e-4, abs=1e-5)
