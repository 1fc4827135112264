"""Operators give the CPU's results, above all those for which we have kernels of our own; docs/operators.md has all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")
pytest.importorskip("expecttest")  # torch's database of operators needs it

from tests.proc import operator_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of
from tools.operators import _watch
from tools.operators._database import Case

pytestmark = limited

REPAIRED = (
    "_chunk_cat",
    "amax",
    "argmin",
    "as_strided_scatter",
    "cdist",
    "clamp_max",
    "count_nonzero",
    "cummax",
    "cummin",
    "cumprod",
    "diagonal",
    "diagonal_scatter",
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_reduce.amax",
    "linalg.eigh",
    "linalg.inv_ex",
    "linalg.slogdet",
    "linalg.svd",
    "linspace",
    "logdet",
    "logsumexp",
    "max.reduction_with_dim",
    "nn.functional.avg_pool3d",
    "nn.functional.batch_norm",
    "nn.functional.celu",
    "nn.functional.elu",
    "nn.functional.interpolate.bicubic",
    "nn.functional.interpolate.trilinear",
    "nn.functional.layer_norm",
    "nn.functional.max_pool2d",
    "nn.functional.nll_loss",
    "nn.functional.pad.replicate_negative",
    "nn.functional.pdist",
    "nn.functional.selu",
    "norm.inf",
    "normal",
    "polar",
    "polygamma.polygamma_n_1",
    "repeat",
    "roll",
    "scatter",
    "softmax",
)
OTHERS = (Case("linspace", "int64"), Case("abs", "complex64"), Case("distribution of Tensor.exponential_", "float32"))
SAMPLES = 3


@pytest.fixture(scope="module")
def rows() -> dict[Case, Any]:
    """What came of a few samples of each."""
    cases = [*(Case(name, "float32") for name in REPAIRED), *OTHERS]
    return dict(_watch.run(cases, SAMPLES, 60.0))


@needs_native
@pytest.mark.parametrize("case", [*(Case(name, "float32") for name in REPAIRED), *OTHERS], ids=str)
def test_what_was_repaired_gives_the_cpus_results(case: Case, rows: dict[Case, Any]) -> None:
    counts = rows[case]["counts"]
    assert set(counts) <= {"right", "client", "random", "not on the CPU"}, rows[case]["problems"]
    assert sum(counts.values()) > 0


@needs_native
@pytest.mark.parametrize("devices", ["1", "2"])
@pytest.mark.parametrize("name", [function.__name__ for function in scenarios.SCENARIOS] + ["randomised", "seeded"])
def test_results_are_those_of_the_cpu(name: str, devices: str) -> None:
    assert outcome_of(Path(scenarios.__file__), devices)[name] == ""


@needs_native
def test_what_the_client_computes_in_place_of_a_wrong_kernel_is_said() -> None:
    (message,) = outcome_of(Path(scenarios.__file__), "1")["warnings"]
    assert "_linalg_slogdet" in message and "runs on the client" in message


def test_what_ends_or_blocks_its_process_is_named_and_the_others_go_on() -> None:
    names = ["first", "ends", "hangs", "ends the CPU", "last"]
    cases = [Case(name, "float32") for name in names]
    found = dict(_watch.run(cases, 0, 2.0, module="tests.proc.ending_process"))
    counts = {case.operator: row["counts"] for case, row in found.items()}
    assert list(counts) == names
    assert counts["first"] == counts["last"] == {"right": 3}
    assert counts["ends"] == {"right": 2, "crash": 1}
    assert counts["hangs"] == {"right": 2, "hang": 1}
    assert counts["ends the CPU"] == {"right": 2, "not on the CPU": 1}
    assert "SIGSEGV" in found[Case("ends", "float32")]["problems"][0][3]
