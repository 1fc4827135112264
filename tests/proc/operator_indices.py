"""Operators that read at places, and numbers in a row. Run by `operator_scenarios.py`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.proc.operator_basis import scenario

Part = Callable[[torch.Tensor], torch.Tensor]

PARTS: tuple[Part, ...] = (
    *(lambda x: x, lambda x: x[1:], lambda x: x[:, :2], lambda x: x[..., ::2], lambda x: x.detach()[:, 1:3]),
    *(lambda x: x.narrow(2, 1, 3), lambda x: x.transpose(0, 2)[1:], lambda x: x.permute(2, 0, 1, 3)[:, 1:]),
)


@scenario
def indices_with_a_slice_between_them_read_the_part_that_they_are_given(device: str | torch.device) -> Any:
    """A part of a tensor, at which PyTorch/XLA forgot where it begins."""
    i, j = torch.tensor([0, 1]).to(device), torch.tensor([[1], [0]]).to(device)
    mask = torch.tensor([True, True]).to(device)
    results: list[torch.Tensor] = []
    for part in PARTS:
        for place in ((i, slice(None), i), (j, slice(0, 2), i), (i, slice(None), j), (slice(0, 2), i, slice(0, 2), i)):
            whole = torch.arange(4.0 * 3 * 5 * 4).view(4, 3, 5, 4).to(device).requires_grad_()
            made = part(whole * 1)
            results.append(made[place].detach())
            if made.requires_grad:
                made[place].square().sum().backward()
                results.append(whole.grad if whole.grad is not None else whole.detach())
            made = made.detach()
            made[place] += 1
            results += [made, part(whole.detach())[place]]
        of_mask = part(whole.detach())[:2]
        results.append(of_mask[mask[: of_mask.shape[0]], :, i[: of_mask.shape[0]]])
    return results


@scenario
def a_mask_that_chooses_nothing(device: str | torch.device) -> Any:
    weight = torch.ones(2, 2).to(device).requires_grad_()
    (weight.square().mean() + weight[weight > 9].sum()).backward()
    values = weight.detach().clone()
    values[values > 9] *= 0.5
    values[values > 9] = values[values > 9] + 1
    return [weight.grad, values, values[values > 9]]


@scenario
def ranges_by_fractions(device: str | torch.device) -> Any:
    steps = [(0, 1, 0.1), (0, 10, 0.1), (1.0, 0.0, -0.1), (0.5, 3, 1), (-2, 2, 0.3), (0, 7, 2), (5, 0, -2), (0, 3, 1.5)]
    types = (None, torch.float32, torch.float64, torch.bfloat16)
    made = [torch.arange(*numbers, dtype=dtype, device=device) for numbers in steps for dtype in types]
    whole = [torch.arange(0, 7, 2.5, dtype=torch.int64, device=device), torch.arange(5, device=device)]
    whole += [torch.arange(0, 2.5, 0.5, dtype=dtype, device=device) for dtype in (torch.int8, torch.int32)]
    for numbers in ((0, 1, 0.0), (0, 1, -0.5), (0, float("inf"), 0.5)):
        try:
            torch.arange(*numbers, device=device)
        except RuntimeError:
            continue
        raise AssertionError(f"not refused: {numbers}")
    return [*made, *whole]


@scenario
def bags_of_a_weight_that_needs_no_gradient(device: str | torch.device) -> Any:
    weight = (torch.arange(21.0).view(7, 3) / 7 - 4).to(device)
    indices, weights = torch.tensor([1, 2, 4, 1, 6, 0]).to(device), torch.arange(6.0).to(device)
    results = []
    for ends in ([0, 2, 2, 5], [0, 0, 3, 6], [0, 3, 6]):
        for mode in ("sum", "mean", "max"):
            for last in (False, True):
                given: Any = {"mode": mode, "include_last_offset": last, "padding_idx": 1}
                offsets = torch.tensor(ends).to(device)
                results.append(F.embedding_bag(indices, weight, offsets, **given))
                results.append(F.embedding_bag(indices, weight, offsets, **given | {"padding_idx": None}))
                if mode == "sum":
                    given["per_sample_weights"] = weights
                    results.append(F.embedding_bag(indices, weight, offsets, **given))
    return results


@scenario
def a_number_of_the_cpu_is_chosen_by_a_mask(device: str | torch.device) -> Any:
    values = torch.tensor([-1.0, 2.0, 3.0]).to(device)
    one, whole = torch.tensor(1.0), torch.tensor(7)
    return [torch.where(values > 0, values, one), torch.where(values > 0, one, values), values.where(values > 0, whole)]


@scenario
def no_places_in_an_embedding(device: str | torch.device) -> Any:
    found = []
    for shape in ((0,), (2, 0), (2, 0, 3)):
        for kind in (torch.int64, torch.int32):
            weight = torch.ones(6, 2).to(device).requires_grad_()
            index = torch.zeros(shape, dtype=kind).to(device)
            read = F.embedding(index, weight, padding_idx=1)
            (read.sum() + weight[0].sum()).backward()
            found += [read, weight.grad, F.embedding(index, weight.detach().double())]
    return found


@scenario
def masks_beside_indices_of_any_type(device: str | torch.device) -> Any:
    """A mask's places are int64."""
    mask, found = torch.tensor([True, True]).to(device), []
    for kind in (torch.int32, torch.int64):
        for index in (torch.tensor([1, 2], dtype=kind), torch.tensor([1, -2], dtype=kind).to(device)):
            leaf = torch.arange(12.0).reshape(2, 6).to(device).requires_grad_()
            whole = leaf * 1
            whole[mask, index] *= 3
            (whole.square().sum() + whole.t()[index, mask].sum()).backward()
            found += [whole, leaf.grad, whole[mask, index], whole.t()[index, mask]]
            whole = leaf.detach().clone()
            whole[mask, index] += whole[mask, index]
            whole.index_put_((mask, index), whole[0, :2].clone(), accumulate=True)
            found.append(whole)
    whole = torch.arange(12.0).to(device)
    for kind in (torch.int8, torch.int16, torch.uint16):
        for place in (device, "cpu"):
            index = torch.tensor([1, 2], dtype=kind).to(place)
            one = torch.ones(2).to(device)
            calls: tuple[Callable[[], object], ...] = (
                functools.partial(whole.__getitem__, index),
                functools.partial(whole.__setitem__, index, 1.0),
                functools.partial(whole.__setitem__, index, one),
            )
            for call in calls:
                try:
                    call()
                except IndexError as error:
                    assert str(error).startswith("tensors used as indices must be long, int, byte or bool tensors")
                else:
                    raise AssertionError(f"an index of {kind}")
    return found


@scenario
def values_that_are_written_at_indices_have_no_more_dimensions(device: str | torch.device) -> Any:
    """PyTorch/XLA took them, and found out when it compiled."""
    one, two = torch.tensor(1).to(device), torch.tensor([1, 2]).to(device)
    mask, ones = torch.tensor([True, False, True, False]).to(device), torch.ones(4).to(device)
    refused: list[tuple[tuple[torch.Tensor, ...], tuple[int, ...]]] = [
        *(((one,), (1,)), ((two,), (1, 1)), ((two,), (1, 2)), ((mask,), (1, 2))),
        *(((), (4,)), ((), ()), ((), (1, 4))),
    ]
    for indices, shape in refused:
        for accumulate in (False, True):
            values = torch.zeros(4).to(device)
            try:
                values.index_put_(indices, torch.ones(shape).to(device), accumulate)
            except RuntimeError as error:
                assert not shape or not indices or "cannot be broadcast to indexing result of shape" in str(error), (
                    error
                )
                continue
            raise AssertionError(f"not refused: {indices}, {shape}")
    values = torch.zeros(4, 2).to(device)
    values[two] = torch.ones(1, 1, 2).to(device)
    values[one] = torch.full((1, 2), 3.0).to(device)
    written = ones[0].clone().requires_grad_()
    found = torch.autograd.grad(torch.zeros(4).to(device).index_put((one,), written).square().sum(), written)
    return [values, values.index_put((two, two - 1), ones[0]), torch.ops.aten.index.Tensor(values, [one]), *found]


@scenario
def rows_are_chosen_in_the_order_of_a_sort(device: str | torch.device) -> Any:
    """PyTorch/XLA took the shape of both results of a sort for that of its indices, and XLA ended the process."""
    torch.manual_seed(3)
    x, rows = torch.randn(4).to(device), torch.randn(4, 3).to(device)
    found = []
    for order in (x.sort()[1], x.sort(stable=True)[1], x.argsort(descending=True), x.topk(3)[1]):
        found += [rows.index_select(0, order), torch.nn.functional.embedding(order, rows), order]
        found.append(torch.zeros(4, 3).to(device).index_add(0, order, rows[: len(order)]))
        found.append(torch.zeros(4, 3).to(device).index_copy(0, order, rows[: len(order)]))
    leaf = x.detach().clone().requires_grad_()
    (leaf.sort()[0][:2].sum() + leaf.topk(1)[0].sum()).backward()
    return [*found, *torch.tensor(2.0).to(device).sort(), leaf.grad]


@scenario
def sorts_take_each_nan_for_the_largest_number(device: str | torch.device) -> Any:
    """PyTorch/XLA sorted by IEEE 754's total order, in which a NaN with its sign bit set is the smallest."""
    nan, inf = float("nan"), float("inf")
    numbers = torch.tensor([[1.0, nan, 2.0, 0.5], [-1.0, 4.0, inf, -inf], [nan, 3.0, nan, 7.0]])
    found: list[torch.Tensor] = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for values in (numbers, numbers.copysign(torch.tensor(-1.0))):
            x = values.to(dtype).to(device)
            for descending in (False, True):
                found += [*x.sort(descending=descending), *x.sort(0, descending), x.argsort(descending=descending)]
                found += [*x.sort(stable=True, descending=descending), *x.topk(2, largest=descending)]
            found += [*x.kthvalue(2), *x.kthvalue(3, 0, keepdim=True), x.msort(), *x[2, 0].sort()]
            found.append(x.float().nanquantile(0.4))
    leaf = numbers.neg().to(device).requires_grad_()
    (leaf.sort()[0][:, :2].nan_to_num().sum() + leaf.topk(1, largest=False)[0].sum()).backward()
    assert leaf.grad is not None
    return [*found, leaf.grad]


@scenario
def a_stable_sort_keeps_the_order_of_both_zeros(device: str | torch.device) -> Any:
    zeros = torch.tensor([0.0, -0.0, 1.0, -0.0, 0.0, float("nan"), -1.0])
    found: list[torch.Tensor] = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = zeros.to(dtype).to(device)
        for descending in (False, True):
            values, indices = x.sort(stable=True, descending=descending)
            found += [values, indices, values.signbit() & ~values.isnan()]
        found += x.expand(2, 7).sort(dim=0, stable=True)
    return [*found, zeros.to(device).argsort(stable=True), *torch.tensor(-0.0).to(device).sort(stable=True)]


@scenario
def sorts_are_written_into_tensors_of_their_types_only(device: str | torch.device) -> Any:
    x = torch.tensor([3.0, 1.0, 2.0]).to(device)
    operations: tuple[Callable[..., Any], ...] = (
        torch.sort,
        lambda x, out: torch.cummax(x, 0, out=out),
        lambda x, out: torch.kthvalue(x, 2, out=out),
    )
    for operation in operations:
        for types in ((torch.float64, torch.int64), (torch.float32, torch.int32)):
            out = tuple(torch.empty(3, dtype=dtype, device=device) for dtype in types)
            try:
                operation(x, out=out)
            except RuntimeError:
                continue
            raise AssertionError(f"not refused: {types}")
    out = (torch.empty(3, device=device), torch.empty(3, dtype=torch.int64, device=device))
    return torch.sort(x, out=out)
