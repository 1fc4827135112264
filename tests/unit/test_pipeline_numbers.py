"""Hyperparameters of a pipeline's optimizer: as inputs of a compiled update, and watched while it is traced."""

from __future__ import annotations

import torch

from ptpathways.pipelines._branches import Branch, Watched
from ptpathways.pipelines._numbers import NumbersAsTensors


def test_numbers_are_not_rounded_to_short_types() -> None:
    values = torch.linspace(-1, 1, 1001, dtype=torch.bfloat16)
    with NumbersAsTensors({0.5: torch.tensor(1.0051)}):
        made = (values.mul(0.5), values.lerp(values * 2, 0.5), values.addcmul(values, values, value=0.5))
    number = 1.0051
    wanted = (values.mul(number), values.lerp(values * 2, number), values.addcmul(values, values, value=number))
    for one, other in zip(made, wanted, strict=True):
        assert one.dtype == torch.bfloat16 and torch.equal(one, other)


def test_comparisons_are_noted_also_of_what_was_computed() -> None:
    branches: list[Branch] = []
    first, second = (Watched.of((0, key, 0), 0.5, branches) for key in ("momentum", "lr"))
    assert first != 0.0 and not 1 - first * second < 0.25 and bool(second)
    assert [sorted(key for _, key, _ in one.names) for one in branches] == [["momentum"], ["lr", "momentum"], ["lr"]]

    def same(momentum: float, lr: float) -> list[bool]:
        return [one.same({(0, "momentum", 0): momentum, (0, "lr", 0): lr}) for one in branches]

    assert same(0.25, 0.25) == [True, True, True]
    assert same(0.0, 0.5) == [False, True, True]
    assert same(1.0, 0.9) == [True, False, True]
    assert type(torch.ones(2) * first) is torch.Tensor and isinstance(first**2, Watched)
