"""Operators of integers and booleans. Run by `operator_scenarios.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.proc.operator_basis import INFINITY, NAN, scenario

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


@scenario
def functions_of_booleans(device: str | torch.device) -> Any:
    values = torch.tensor([True, False]).to(device)
    return [values.exp(), values.sqrt(), values.isneginf(), values.sigmoid(), torch.atan2(values, values)]


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
def remainders_have_their_type_in_the_computation(device: str | torch.device) -> Any:
    """What the same computation makes of them; a result that is read is converted to the type that it should have."""
    results: list[Any] = []
    users: tuple[Callable[[torch.Tensor], Any], ...] = (
        *(torch.Tensor.float, torch.Tensor.sum, torch.Tensor.abs, lambda rest: rest < 0, lambda rest: rest >> 1),
        *(lambda rest: rest // 3, lambda rest: torch.cat([rest, rest]), lambda rest: rest.long()),
    )
    for dtype in INTEGERS:
        values = torch.tensor([-7, 7, -128, 127, 0]).to(dtype).to(device)
        by = torch.tensor([3, -4, -1, 5, 100]).to(dtype).to(device)
        number = 3 if dtype == torch.uint8 else -4
        for use in users:
            results += [use(values % number), use(values % by), use(values.clone().remainder_(by)), use(9 % by)]
        written = values.clone()
        written[1:4] = written[:3] % by[:3]
        results.append(written)
    return results


@scenario
def signs_of_booleans_are_booleans_in_the_computation(device: str | torch.device) -> Any:
    values = torch.tensor([True, False]).to(device)
    results: list[Any] = []
    for made in (torch.sign, torch.sgn, lambda x: x.clone().sign_(), lambda x: torch.sign(x, out=x.clone())):
        results += [made(values), ~made(values), made(values) ^ True, made(values).sum(), made(values).to(torch.int8)]
    kept = torch.sign(values)
    values.logical_not_()
    return [*results, kept]


@scenario
def ranges_of_numbers_that_their_type_does_not_have(device: str | torch.device) -> Any:
    results: list[torch.Tensor] = []
    for dtype in (*INTEGERS, torch.float32, torch.float64):
        for start, end, step in ((-3, 5, 2), (0, 300, 100), (10, 0, -3), (255, -1, -50), (-200, -190, 3), (-3.7, 5, 2)):
            made = torch.arange(start, end, step, dtype=dtype, device=device)
            results += [made, made.float() + 1]
        results.append(torch.arange(-3, 5, 2, out=torch.empty(4, dtype=dtype).to(device)))
    return [*results, torch.arange(2**53, 2**53 + 3, dtype=torch.float64, device=device)]


@scenario
def squares_and_sizes_that_wrap_round(device: str | torch.device) -> Any:
    results: list[torch.Tensor] = []
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        limits = torch.iinfo(dtype)
        root = int(limits.max**0.5) + 1
        values = torch.tensor([3, -root, root, 2 * root + 1, limits.min, limits.max], dtype=dtype).to(device)
        for square in (values * values, values**2, values.square()):
            results += [square, square.abs(), square < 0, square.sign(), square.clamp(min=0), 100 // (square + 2)]
        for square in (
            torch.einsum("i,i->i", values, values),
            values[1:] * values[1:],
            values.dot(values),
            torch.stack([values, values]).prod(0),
        ):
            results += [square, square.abs(), square < 0]
        size = values.abs()
        results += [size, size < 0, size.abs(), size.clamp(min=0), size // 7, (size * size).abs()]
    return results
