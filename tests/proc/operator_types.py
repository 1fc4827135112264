"""Operators whose results hang on the types of their arguments. Run by `operator_scenarios.py`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.proc.operator_basis import INFINITY, NAN, scenario


@scenario
def functions_of_booleans(device: str | torch.device) -> Any:
    values = torch.tensor([True, False]).to(device)
    return [values.exp(), values.sqrt(), values.isneginf(), values.sigmoid(), torch.atan2(values, values)]


@scenario
def biases_of_convolutions_in_16_bits(device: str | torch.device) -> Any:
    gradients: list[Any] = []
    for dtype in (torch.bfloat16, torch.float16):
        for layer, shape in (
            (torch.nn.Conv1d(3, 4, 3), (16, 3, 64)),
            (torch.nn.Conv2d(2, 4, 1, bias=False), (4, 2, 16, 16)),
            (torch.nn.ConvTranspose2d(3, 2, 3), (4, 3, 16, 16)),
        ):
            torch.nn.init.constant_(layer.weight, 0.5)
            # Without AVX-512, torch's CPU rounds each product of a weight's gradient to bfloat16, and loses some.
            computed = torch.float32 if torch.device(device).type == "cpu" else dtype
            layer = layer.to(device, computed)
            layer(torch.ones(shape, dtype=computed).to(device)).sum().backward()
            gradients += [item.grad.to(dtype) for item in layer.parameters() if item.grad is not None]
    layer = torch.nn.Conv1d(3, 4, 3).to(device)
    kind = torch.device(device).type
    with torch.autocast(kind, torch.bfloat16, enabled=kind != "cpu"):
        result = layer(torch.ones(16, 3, 64).to(device))
    result.sum().backward()
    return [*gradients, *(item.grad for item in layer.parameters())]


@scenario
def quotients_that_are_rounded(device: str | torch.device) -> Any:
    far = torch.tensor([2**62 + 1, -(2**40) - 1, 123456789, -123456789, -7, 7, 0, -(2**63)]).to(device)
    near = torch.tensor([3, -7, 1, 2, 2, -2, 5, 3]).to(device)
    results: list[Any] = [far // near, far // 1, far // -3, 7 // near, far.reshape(8, 1) // near[:3], far[:0] // 2]
    for mode in ("floor", "trunc", None):
        results += [
            torch.div(far, divisor, rounding_mode=mode) for divisor in (near, 7, near[0], 2.0, near.to(torch.int8))
        ]
    for dtype in (torch.int32, torch.int16, torch.int8, torch.uint8):
        small = torch.tensor([123, 100, 7, 6]).to(dtype).to(device) * (2000 if dtype == torch.int32 else 1)
        results += [small // 7, small // small.flip(0), small.clone().floor_divide_(3)]
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        values = torch.tensor([1.0, -5.5, 0.1, INFINITY, NAN, 0.0], dtype=dtype).to(device)
        results += [values // 0.1, values // -2, values // 0, 7.5 // values, values // values.flip(0)]
    return results


@scenario
def a_quotient_by_the_number_zero_is_refused(device: str | torch.device) -> Any:
    for divide in (
        lambda values: values // 0,
        lambda values: torch.div(values, 0, rounding_mode="trunc"),
        lambda values: values % 0,
        lambda values: torch.fmod(values, 0),
    ):
        try:
            divide(torch.tensor([5, -7]).to(device))
        except RuntimeError as error:
            assert "ZeroDivisionError" in str(error)
        else:
            raise AssertionError("integers were divided by zero")
    return []


@scenario
def shifts_of_integers(device: str | torch.device) -> Any:
    results: list[Any] = []
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        values = torch.tensor([-8, 8, -1, 127, 1]).to(dtype).to(device)
        by = torch.tensor([1, 7, 3, 0, 100]).to(dtype).to(device)
        results += [values >> by, values << by, values >> by[0], values << by.to(torch.int16), 3 << by, -300 >> by]
        for number in (0, 1, 7, 31, 63, 64, -1):
            results += [values >> number, values << number, values.clone().__irshift__(number)]
    return results


@scenario
def integers_are_added_by_whole_factors(device: str | torch.device) -> Any:
    """As torch's, which cuts factors off where it takes them."""
    added, matrix = torch.ones(3, 1, dtype=torch.int64).to(device), torch.arange(9).reshape(3, 3).to(device)
    batch = matrix.expand(2, 3, 3)
    results: list[Any] = []
    factors: dict[str, Any]
    for beta, alpha in ((0.6, 0.2), (2.9, 1), (1, -1.5)):
        factors = {"beta": beta, "alpha": alpha}
        results.append(torch.addmv(added.flatten(), matrix, matrix[0], **factors))
        results += [torch.addbmm(added, batch, batch, **factors), torch.baddbmm(added, batch, batch, **factors)]
    return results


@scenario
def indices_of_several_types(device: str | torch.device) -> Any:
    x = torch.arange(12.0).reshape(3, 4).to(device)
    one, other = torch.tensor([0, 2], dtype=torch.int32).to(device), torch.tensor([1, 3]).to(device)
    written = x.clone()
    written[one, other] = -1.0
    return [x[one, other], written, x[torch.tensor([True, False, True]).to(device), other]]


@scenario
def comparisons_with_numbers(device: str | torch.device) -> Any:
    results: list[torch.Tensor] = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool):
        x = torch.tensor([0.1, 1.0, 2.5, 3.0]).to(dtype).to(device)
        for number in (0.1, 1, 2.5, 3.0, -1):
            results += [x == number, x != number, x < number, x <= number, x > number, x >= number]
    bounds = torch.tensor([-0.1, 0.1, 0.2]).to(device).requires_grad_()
    F.hardtanh(bounds, -0.1, 0.1).sum().backward()
    return [*results, bounds.grad, F.threshold(bounds.detach(), 0.1, 5.0)]


@scenario
def reductions_of_integers_in_other_types(device: str | torch.device) -> Any:
    whole, mask = torch.tensor([[1, 2, 3]]).to(device), torch.tensor([True, False, True]).to(device)
    short = torch.tensor([1.7, 0.7, -0.7, 0.6], dtype=torch.bfloat16).to(device)
    return [
        mask.mean(dtype=torch.float32),
        whole.mean(1, dtype=torch.float64),
        short.sum(dtype=torch.int32),
        (torch.eye(3) * 200).to(torch.uint8).to(device).trace(),
        mask.cumsum(0),
    ]
