"""Models that nobody here wrote train on the cluster as in plain PyTorch; more in docs/compatibility.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")
pytest.importorskip("torchvision")
pytest.importorskip("transformers")

from tests.proc import model_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of
from tools import compatibility

pytestmark = [needs_native, limited]


SOME = ("gpt2", "vit")
OTHERS = tuple(case.key for case in compatibility.SMALL if case.key not in SOME)
OPERATIONS = tuple(operation.__name__ for operation in scenarios.OPERATIONS)


def outcome(name: str) -> Any:
    names = OTHERS if name in OTHERS else (*SOME, *OPERATIONS)  # a process for each
    result = outcome_of(Path(scenarios.__file__), *names)[name]
    assert "error" not in result, result["error"]
    return result


@pytest.mark.parametrize("key", [*SOME, *OTHERS])
def test_the_losses_are_those_of_plain_pytorch_and_nothing_is_compiled_late(key: str) -> None:
    result = outcome(key)
    assert len(result["losses"]) == scenarios.STEPS and result["losses"][0] != result["losses"][-1]
    assert result["difference"] < 1e-5
    assert result["recompiles"] == 0, result["compiled"]
    assert result["fallbacks"] == []


@pytest.mark.parametrize("key", [*SOME, *OTHERS])
def test_a_captured_step_has_the_losses_of_plain_pytorch(key: str) -> None:
    result = outcome(key)
    assert result["captured_difference"] < 1e-5
    assert result["captured_replays"] > 0 or key in {"gpt2", "bert"}  # they read a mask on the host


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_that_layers_need_give_torchs_numbers_on_divided_tensors(name: str) -> None:
    result = outcome(name)
    assert len(result["eager"]) == len(result["cluster"]) > 3
    assert result["fallbacks"] == []
    for (kind, wanted), (there, got) in zip(result["eager"], result["cluster"], strict=True):
        assert kind == there
        assert _flat(got) == pytest.approx(_flat(wanted), rel=1e-4, abs=1e-5)


def _flat(values: Any) -> list[float]:
    return [number for value in values for number in _flat(value)] if isinstance(values, list) else [float(values)]
