"""Products of matrices and their gradients on CPU devices are eager PyTorch's, by oneDNN and by XLA."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.proc import product_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [limited, needs_native]

PROGRAM = Path(scenarios.__file__)


@pytest.mark.parametrize("seed", range(2))
def test_products_of_any_dimensions_are_those_of_the_cpu(seed: int) -> None:
    outcome = outcome_of(PROGRAM, "1", "1", "float32", str(seed), "40")
    assert outcome["done"] == 40
    assert outcome["worst"] < 1e-5, outcome


def test_those_of_bfloat16_too() -> None:
    outcome = outcome_of(PROGRAM, "1", "1", "bfloat16", "5", "20")
    assert outcome["worst"] < 1e-2, outcome
