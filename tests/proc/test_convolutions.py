"""Convolutions and their gradients on CPU devices are eager PyTorch's: by oneDNN, and by XLA where that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.proc import convolution_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [limited, needs_native]

PROGRAM = Path(scenarios.__file__)


@pytest.mark.parametrize("seed", range(5))
def test_hundreds_of_convolutions_are_those_of_the_cpu(seed: int) -> None:
    outcome = outcome_of(PROGRAM, "1", "1", "float32", str(seed), "60")
    assert outcome["done"] == 60
    assert outcome["worst"] < 1e-5, outcome


def test_those_of_bfloat16_too() -> None:
    outcome = outcome_of(PROGRAM, "1", "1", "bfloat16", "5", "40")
    assert outcome["worst"] < 1e-2, outcome


@pytest.mark.parametrize("devices", [(1, 2), (2, 1)], ids=["one host", "two hosts"])
def test_divided_over_two_devices_too(devices: tuple[int, int]) -> None:
    outcome = outcome_of(PROGRAM, *map(str, devices), "float32", "6", "20")
    assert outcome["worst"] < 1e-5, outcome


def test_without_onednn_they_are_xlas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTPATHWAYS_ONEDNN", "/nowhere/libdnnl.so.3")
    outcome = outcome_of(PROGRAM, "1", "1", "float32", "7", "20")
    assert outcome["worst"] < 1e-5, outcome
