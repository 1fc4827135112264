"""What functions of the door say of arguments that they cannot use, where no cluster is needed to tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ptpathways as pw
from ptpathways import core, train
from ptpathways.launch import kubernetes
from ptpathways.train import _prepare

_given: Any = object()


@pytest.mark.parametrize("value", [None, "a", True, [1], torch.ones(())])
def test_a_number_of_seconds_is_a_number(value: Any) -> None:
    with pytest.raises(TypeError, match="timeout must be a number of seconds, got"):
        pw.get([], timeout=value)


@pytest.mark.parametrize("value", [-1, math.nan])
def test_a_number_of_seconds_ends_a_wait(value: float) -> None:
    with pytest.raises(ValueError, match="timeout_s must be a number of seconds from 0, got"):
        core.check_seconds(value)
    core.check_seconds(0)
    core.check_seconds(math.inf)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pw.seed("a"), TypeError, "a seed must be a whole number, got 'a'"),  # type: ignore[arg-type]
        (lambda: pw.seed(1.5), TypeError, "a seed must be a whole number, got 1.5"),  # type: ignore[arg-type]
        (lambda: pw.seed(-1), ValueError, r"from 0 to 2\*\*63 - 1, got -1"),
        (lambda: pw.manual_seed(_given), TypeError, "a seed must be a whole number"),
        (lambda: pw.step(_given), TypeError, "takes devices of slices"),
        (lambda: pw.step(torch.device("cpu")), TypeError, r"takes devices of slices.*type='cpu'"),
        (lambda: pw.log(3), TypeError, r"values by name, as in pw.log\(\{\"loss\": loss\}\), got 3"),  # type: ignore[arg-type]
        (lambda: pw.log({"a": 1}, step="x"), TypeError, "step must be a whole number"),  # type: ignore[arg-type]
        (lambda: pw.progress(3), TypeError, "pw.progress takes a loader.* got 3"),  # type: ignore[arg-type]
        (lambda: pw.watch(nn.Linear(1, 1), _given), TypeError, "a module and its optimizer, got a Linear and a object"),
        (lambda: pw.bucket(torch.ones(2, 3), dim=_given), TypeError, "dim must be a whole number"),
        (lambda: pw.bucket(torch.ones(2, 3), pad_value=_given), TypeError, "pad_value must be a number"),
        (lambda: pw.bucket({"a": torch.ones(2, 3)}, pad_value={"b": 1}), ValueError, "names 'b'.* has 'a'"),
        (lambda: pw.bucket([torch.ones(2, 3)], pad_value={1: 1}), ValueError, "names 1, and the batch has 0"),
        (lambda: pw.bucketed(3), TypeError, "makes a batch of samples, got 3"),  # type: ignore[arg-type]
        (lambda: _prepare._check_kind(None), TypeError, "step functions, got builtins.NoneType$"),
        (lambda: _prepare._check_kind([nn.Linear(1, 1)]), TypeError, r"one by one.*prepare\(\*objects\)"),
        (lambda: pw.function(_given, slice=_given), TypeError, "slice must be a slice"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_whole_numbers_are_those_of_numpy_too() -> None:
    numpy = pytest.importorskip("numpy")
    assert core.whole_number(numpy.int64(3), "n") == 3
    assert train.bucket(torch.ones(2, 3), dim=numpy.int32(1)).shape == (2, 4)


@pytest.mark.parametrize("quantity", ["4", "500m", "16Gi", "1e3", "0.5", ".5M", "2E"])
def test_a_quantity_is_one_of_kubernetes(quantity: str) -> None:
    kubernetes.KubernetesOptions(hosts=1, image="i", token="t", resources={"memory": quantity})


@pytest.mark.parametrize("quantity", ["abc", "", "16GiB", "1 Gi", "Gi"])
def test_another_quantity_is_refused(quantity: str) -> None:
    with pytest.raises(core.InvalidOption, match=r"--resource memory must be a quantity.*got"):
        kubernetes.KubernetesOptions(hosts=1, image="i", token="t", resources={"memory": quantity})
