"""The pure parts of the ``operators`` workload, and its operators on the CPU."""

from __future__ import annotations

import pytest
import torch

from ptpathways.bench import _operators
from ptpathways.bench._operator_cases import PASSES, Convolution, Product, cases, operator
from ptpathways.bench._operators_process import _eager, answerer
from ptpathways.bench._record import Setting
from ptpathways.bench._workload import OURS


def test_figures_are_ratios_of_the_same_round() -> None:
    seconds = {OURS: [0.002, 0.001], _operators.XLAS: [0.004, 0.004], _operators.EAGER: [0.002, 0.002]}
    records = _operators.figures("net", Setting("operators", 1, 1), seconds)
    found = {(record.system, record.variant): record.median for record in records}
    assert found[_operators.EAGER, "net"] == pytest.approx(2.0)
    assert found[OURS, "net, times eager PyTorch"] == pytest.approx(1.5)
    assert found[_operators.XLAS, "net, times eager PyTorch"] == pytest.approx(0.5)


def test_systems_that_disagree_are_refused() -> None:
    _operators.check_sums("net", {"a": 1e6, "b": 1e6 + 1})
    with pytest.raises(RuntimeError, match="agree on the sum of net"):
        _operators.check_sums("net", {"a": 1.0, "b": 1.1})


def test_the_passes_of_a_convolution_are_those_of_autograd() -> None:
    one = Convolution(2, 4, 5, 6, 3, groups=2, stride=2)
    torch.manual_seed(0)
    g, x, w = one.arguments(PASSES[1])
    x.requires_grad_(), w.requires_grad_()
    result = one.function(PASSES[0])(x, w)
    expected = torch.autograd.grad(result, (x, w), g)
    for which, right in zip(PASSES[1:], expected, strict=True):
        torch.testing.assert_close(one.function(which)(g, x, w), right)


def test_every_case_is_an_operator() -> None:
    assert {type(operator(name)) for name, _ in cases()} == {Convolution, Product}
    assert len(set(cases())) == len(cases())


def test_a_process_answers_with_the_time_of_a_call() -> None:
    answer = answerer(_eager)
    request = {"name": "48 of 64x64 by 64x64", "pass": "forward", "calls": 2}
    first, again = answer(request), answer(request)
    assert first["sum"] == again["sum"] and again["seconds"] > 0
