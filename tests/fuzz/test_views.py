"""Which tensors share what: a copy that is a view, or the other way round, is a wrong value later."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch_xla")

from tests.scenarios import ROOT, needs_native

pytestmark = needs_native


@pytest.mark.timeout(300)
def test_views_and_copies_share_what_they_share_on_the_cpu() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.views", "200", "60"],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"programs": 60, "wrong": []}, done.stderr[-2000:]
