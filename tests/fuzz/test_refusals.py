"""What torch refuses for its arguments' types is refused, as ``tests.fuzz.refusals`` asks, and what it answers is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")
pytest.importorskip("expecttest")  # torch's database of operators needs it

from tests.fuzz import refusals
from tests.scenarios import needs_native

pytestmark = [needs_native, pytest.mark.timeout(600)]

QUICK = (
    "add",
    "clamp",
    "gather",
    "mm",
    "nn.functional.cross_entropy",
)
LONG = (
    "addcdiv",
    "addmm",
    "div.floor_rounding",
    "ge",
    "nn.functional.layer_norm",
    "nn.functional.leaky_relu",
    "abs",
    "addmv",
    "amax",
    "argmax",
    "bmm",
    "ceil",
    "cumsum",
    "dot",
    "erf",
    "fmod",
    "frac",
    "index_add",
    "index_copy",
    "lerp",
    "linalg.vector_norm",
    "linalg.det",
    "log_softmax",
    "maximum",
    "mul",
    "neg",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.elu",
    "nn.functional.gelu",
    "nn.functional.glu",
    "nn.functional.hardsigmoid",
    "nn.functional.hardswish",
    "nn.functional.hardshrink",
    "nn.functional.mish",
    "nn.functional.nll_loss",
    "nn.functional.silu",
    "nn.functional.smooth_l1_loss",
    "nn.functional.softplus",
    "nonzero",
    "normal.in_place",
    "randn_like",
    "remainder",
    "sort",
    "sub",
    "topk",
    "uniform",
    "vdot",
)
REFUSED_HERE = {"nn.functional.conv2d": re.compile(r"\d+: argument 2 ")}
"""A bias of another type, which eager PyTorch takes for a padding in words, and refuses for one in numbers."""


@pytest.mark.parametrize("names", [QUICK, pytest.param(LONG, marks=pytest.mark.long)])
def test_what_torch_refuses_is_refused(names: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", refusals.__name__, "--json", *names]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=550, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = {row["name"]: row["told"] for row in map(json.loads, done.stdout.splitlines())}
    assert set(told) == set(names)
    wrong = [
        f"{name} of {what}: {verdict}: {text}"
        for name, found in told.items()
        for what, (verdict, text) in found.items()
        if verdict != "more"
        and not (verdict == "unanswered" and name in REFUSED_HERE and REFUSED_HERE[name].match(what))
    ]
    assert not wrong
