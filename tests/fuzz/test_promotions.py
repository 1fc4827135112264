"""Pairs of types, as ``tests.fuzz.promotions`` draws them, in one process on one device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")
pytest.importorskip("expecttest")  # torch's database of operators needs it

from tests.fuzz import promotions
from tests.scenarios import needs_native

pytestmark = [needs_native, pytest.mark.timeout(600)]

QUICK = (
    "where",
    "remainder",
    "bitwise_and",
    "cumsum",
    "minimum",
    "addcmul",
    "div.no_rounding_mode",
    "div_.no_rounding_mode",
    "add_",
)
LONG = (
    "add",
    "sub",
    "mul",
    "rsub",
    "eq",
    "lt",
    "fmod",
    "bitwise_xor",
    "clamp",
    "cumprod",
    "smooth_l1_loss",
    "xlogy",
    "mul_",
    "sub_",
    "pow.number_first",
    "float_power",
    "remainder_",
    "fmod_",
)
UNSUPPORTED = "ComplexHalf"
"""A type that PyTorch/XLA does not have, and says so."""


@pytest.mark.parametrize("names", [QUICK, pytest.param(LONG, marks=pytest.mark.long)])
def test_results_of_mixed_types_are_those_of_the_cpu(names: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", promotions.__name__, "--json", *names]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=550, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert set(told) == set(names)
    wrong = [
        f"{name} of {what}: {text}"
        for name, found in told.items()
        for what, text in found.items()
        if UNSUPPORTED not in text
    ]
    assert not wrong
