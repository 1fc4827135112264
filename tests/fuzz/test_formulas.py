"""Formulas that PyTorch/XLA's hash may take for each other, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch_xla")

from tests.scenarios import ROOT, needs_native

pytestmark = [needs_native, pytest.mark.timeout(300)]


def test_formulas_of_one_shape_are_not_taken_for_each_other() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.formulas", "0", "200"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PTPATHWAYS_CACHE_DIR": "off"},
    )
    assert done.stdout.splitlines()[-1:] == ["200 formulas, 0 wrong"], done.stdout + done.stderr[-2000:]
