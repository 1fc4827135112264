"""The client never waits in a training step: it goes on while the worker does nothing at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.proc import frozen_worker
from tests.scenarios import ROOT, needs_native


@needs_native
@pytest.mark.timeout(200)
@pytest.mark.parametrize("devices", [1, 4])
def test_twenty_steps_are_issued_while_the_worker_is_stopped(devices: int) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(frozen_worker.__file__)), str(devices)],
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["cluster"]["steps"] == frozen_worker.WARM_UP + frozen_worker.FROZEN
    assert result["cluster"]["waits"] == 0
    assert result["cluster"]["losses"] == pytest.approx(result["eager"]["losses"], rel=1e-4)
