"""A value that is read is not computed twice: what led to it is there for what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import reads_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

RUNS = [
    ("single", "xla-cpu"),
    pytest.param("single", "pathways", marks=needs_native),
    pytest.param("together", "pathways", marks=needs_native),
    pytest.param("one_by_one", "pathways", marks=needs_native),
]


def outcome(mode: str, backend: str) -> Any:
    return outcome_of(Path(scenarios.__file__), mode, backend)


@limited
@pytest.mark.parametrize(("mode", "backend"), RUNS)
@pytest.mark.parametrize("name", scenarios.READS)
def test_the_backward_pass_takes_what_a_read_left(name: str, mode: str, backend: str) -> None:
    if backend == "xla-cpu" and name in ("cpu", "to", "tolist", "print", "copy_"):
        pytest.skip("nothing of torch is wrapped there")
    read = outcome(mode, backend)["reads"][name]
    assert read["before"], "the loss comes of the forward pass"
    assert not read["after"], "the gradient comes of its results"
    assert read["error"] < 1e-5


@limited
@pytest.mark.parametrize(("mode", "backend"), RUNS)
def test_a_random_mask_that_was_read_is_the_one_of_the_gradient(mode: str, backend: str) -> None:
    assert outcome(mode, backend)["mask"] == 0


@limited
@pytest.mark.parametrize(("mode", "backend"), RUNS)
def test_only_what_has_no_value_yet_cuts_the_trace(mode: str, backend: str) -> None:
    assert outcome(mode, backend)["values"] == {"a value": True, "an expression": False}


@limited
@needs_native
@pytest.mark.parametrize("name", scenarios.COPIES)
def test_a_copy_of_what_could_not_be_computed_raises(name: str) -> None:
    assert outcome("refused", "pathways")[name] == "OutOfDeviceMemory"


@limited
@needs_native
def test_devices_keep_their_numbers_when_a_host_is_lost() -> None:
    living, first, lost, last, none = outcome("lost", "pathways")
    assert len(living.split(",")) == 2
    assert (first, last) == ("[0.0, 0.0]", "[2.0, 2.0]")
    assert lost.startswith("HostLost: host 'host1'")
    assert none == "IndexError: device index must be from 0 to 2, got 3"
