"""Part of the database of what torch refuses; ``python -m tests.fuzz.error_inputs`` asks all of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch_xla")

from tests.scenarios import needs_native

pytestmark = needs_native

NAMES = (
    *("diagonal", "diagonal_copy", "eye", "exponential", "masked_scatter", "normal", "tril", "triu", "vdot"),
    *("as_strided_scatter", "nn.functional.adaptive_avg_pool2d", "nn.functional.adaptive_max_pool2d"),
    *("nn.functional.avg_pool1d", "nn.functional.avg_pool2d", "nn.functional.avg_pool3d", "nn.functional.max_pool1d"),
    *("nn.functional.max_pool2d", "nn.functional.softshrink", "scatter", "scatter_add"),
)


@pytest.mark.timeout(300)
def test_what_torch_refuses_is_refused_when_it_is_called() -> None:
    command = [sys.executable, "-m", "tests.fuzz.error_inputs", *NAMES]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    left = [line for line in ended.stdout.splitlines() if "is out of bounds for dimension" not in line]
    assert not left
