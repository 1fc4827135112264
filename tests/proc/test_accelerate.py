"""What of accelerate and transformers fails on XLA devices, and is mended or refused: imported before the cluster is
there, and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")
pytest.importorskip("accelerate")
pytest.importorskip("transformers")

from tests.proc import accelerate_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]


def outcome(order: str) -> Any:
    return outcome_of(Path(scenarios.__file__), order)


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_model_that_accelerate_compiles_has_the_losses_of_eager_pytorch(order: str) -> None:
    found = outcome(order)
    assert found["is compiled"]
    assert found["compiled"] == pytest.approx(found["eager"], rel=1e-5)


@pytest.mark.parametrize("order", ["before", "after"])
def test_save_model_writes_tied_weights_once(order: str) -> None:
    found = outcome(order)
    assert found["names"] == ["first.bias", "first.weight", "last.bias"] and found["right"]


@pytest.mark.parametrize("order", ["before", "after"])
def test_shards_that_are_asked_for_by_arguments_are_refused_by_name(order: str) -> None:
    of_accelerate = ("fsdp_plugin=", "parallelism_config=", "ACCELERATE_USE_FSDP in the environment")
    asked = [f"Accelerator with {what}" for what in of_accelerate] + ["Trainer with fsdp="] * 2
    for name, message in zip(asked, outcome(order)["refusals"], strict=True):
        assert message.startswith(f"{name} would shard") and 'pw.prepare(model, strategy="fsdp")' in message


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_model_that_was_sharded_before_stays_so(order: str) -> None:
    assert all(layout.startswith("{devices=[2,1]") for layout in outcome(order)["layouts"])
