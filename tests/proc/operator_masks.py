"""Operators that write where a mask says. Run by `operator_scenarios.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ptpathways import frontend
from tests.proc.operator_basis import scenario

Write = Callable[[torch.Tensor], object]


def _written(values: torch.Tensor, write: Write) -> list[torch.Tensor]:
    """``values`` afterwards, and of floats the gradient of what is there."""
    leaf = values.clone().requires_grad_(values.is_floating_point() or values.is_complex())
    made = leaf * 1
    write(made)
    if leaf.requires_grad:
        made.abs().square().sum().backward()
    return [made.detach(), *([] if leaf.grad is None else [leaf.grad])]


@scenario
def a_number_is_written_at_a_mask_without_a_wait(device: str | torch.device) -> Any:
    """However many elements the mask chooses; nothing of it is computed by the client."""
    values = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0)).to(device)
    whole, rows, columns, few = values > 0, values[:, 0, 0] > 0, values[0, :, 0] > 0, values[..., 0] > 0
    number, vector = torch.tensor(2.0).to(device), torch.tensor([3.0]).to(device)
    index, true = torch.tensor([0, 2]).to(device), torch.tensor(True).to(device)

    def put(place: Any, value: Any) -> Write:
        return lambda to: to.__setitem__(place, value)

    writes: tuple[Write, ...] = (
        *(put(place, 0.5) for place in (whole, rows, few, (slice(None), columns), (..., few[0, :3]), (rows, 1), true)),
        *(put(whole, value) for value in (-100, float("nan"), number, vector, number.long(), torch.tensor(4.0), True)),
        put(whole.cpu(), 6.0),
        put(whole & ~whole, 1.0),
        lambda to: to.transpose(0, 1).__setitem__(whole.transpose(0, 1), 8.0),
        lambda to: to[1:].__setitem__(whole[1:], 8.0),
        lambda to: to.index_put_((rows,), number),
        lambda to: to.masked_fill_(whole, number),
        lambda to: to.masked_fill_(few[:, :, None], number),
    )
    before = frontend.client_operations()
    found = [_written(values, write) for write in writes]
    integers, truths = (values * 9).long(), values > 1
    found += [_written(integers, put(whole, number)), _written(truths, put(whole, True))]
    found += [_written(values * (1 + 2j), put(whole, 1.0 + 2j)), _written(values[0, 0, 0], put(true, 7.0))]
    after = frontend.client_operations()
    assert after == before, (before, after)
    others: tuple[Write, ...] = (
        put(few, torch.zeros(3).to(device)),
        put(whole, torch.zeros(int(whole.sum())).to(device)),
        lambda to: to.index_put_((whole,), number, accumulate=True),
        put((torch.tensor([True, False, False, True]).to(device), slice(None), index), 1.0),
    )
    found += [_written(values, write) for write in others]
    refused: tuple[Write, ...] = (put(rows, torch.zeros(7).to(device)), put((slice(None), columns), vector.repeat(4)))
    for write in refused:
        try:
            write(values)
        except RuntimeError as error:
            assert "shape mismatch" in str(error), error
        else:
            raise AssertionError("a source of another shape")
    return [*found, values]


@scenario
def masks_of_another_shape_are_refused(device: str | torch.device) -> Any:
    values, said = torch.ones(2, 3).to(device), []
    for shape in ((2, 2), (3,), (2, 3, 1)):
        mask = torch.ones(shape, dtype=torch.bool).to(device)
        for operation in (lambda mask: values[mask], lambda mask: values.__setitem__(mask, 1.0)):
            try:
                operation(mask)
            except IndexError as error:
                said.append(str(error))
    assert len(said) == 6 and all(text.startswith(("The shape of the mask", "too many indices")) for text in said), said
    return [values]


@scenario
def tensors_filled_with_numbers_of_other_types(device: str | torch.device) -> Any:
    """One on the device is converted, and one of the program is refused where it does not fit."""
    found = []
    for dtype in (torch.int8, torch.int32, torch.bool, torch.float16, torch.float32):
        for number in (-2.5, 7, True, 0.0):
            found.append(torch.zeros(3, dtype=dtype).to(device).fill_(torch.tensor(number).to(device)))
    found.append(torch.zeros(3).to(device).fill_(torch.tensor(2 + 3j).to(device)))
    for dtype in (torch.uint8, torch.int16):  # 254 or 0 of those, as of a cast, which C++ leaves open
        made = torch.ones(3, dtype=dtype).to(device).fill_(torch.tensor(float("nan")).to(device))
        assert made.shape == (3,)
        found.append(made)
    whole, leaf = torch.zeros(2, 3).to(device), torch.tensor(2.0).to(device).requires_grad_()
    part = whole.t()[1:]
    part.fill_(leaf)
    whole.square().sum().backward()
    again = torch.arange(3.0).to(device)
    again.fill_(again[1])
    half = torch.zeros(2, dtype=torch.float16).to(device)
    calls: tuple[Callable[[], object], ...] = (
        *(lambda: torch.full((2, 3), 2**40, dtype=torch.float16, device=device), lambda: half.fill_(1e30)),
        *(lambda: torch.full_like(half, 2**40), lambda: half.new_full((2,), 2.0**40)),
        *(
            lambda: half.index_fill_(0, torch.tensor([0]).to(device), 2**40),
            lambda: half.fill_(torch.ones(1).to(device)),
        ),
        *(lambda: torch.full((2,), 300, dtype=torch.int8, device=device), lambda: half.fill_(2j)),
    )
    for number_of_call, call in enumerate(calls):
        try:
            call()
        except RuntimeError as error:
            assert "without overflow" in str(error) or "0-dimension" in str(error), error
        else:
            raise AssertionError(f"not refused: {number_of_call}")
    return [*found, whole, leaf.grad, again, half.fill_(float("inf")), torch.full((2,), 6e4, device=device).half()]
