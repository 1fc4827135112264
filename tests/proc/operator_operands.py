"""Operands on the CPU beside those of a device. Run by `operator_scenarios.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.proc.operator_basis import scenario

Binary = Callable[[Any, Any], torch.Tensor]

BY_ANY: tuple[Binary, ...] = (
    *(torch.clamp_min, torch.clamp_max, torch.maximum, torch.minimum, torch.eq, torch.lt, torch.logical_and),
    *(torch.remainder, torch.fmod, torch.pow, torch.div, torch.atan2, torch.xlogy, torch.isclose),
    lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    lambda x, y: torch.clamp(x, y),
    lambda x, y: torch.clip(x, max=y),
    lambda x, y: torch.lerp(x, x + 1, y),
    lambda x, y: torch.where(x > 2, x, y),
    lambda x, y: torch.where(y > 2, x, x * 2),
    lambda x, y: torch.addcmul(x, y, x),
    *(lambda x, y: F.mse_loss(x, y.expand(3)), lambda x, y: F.smooth_l1_loss(x, y.expand(3), reduction="none")),
    lambda x, y: F.binary_cross_entropy(x / 9, y.expand(3) / 9),
)


def _values(device: str | torch.device) -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 5.0]).to(device)


@scenario
def bounds_may_be_on_the_cpu(device: str | torch.device) -> Any:
    """PyTorch/XLA took a bound that is there for none."""
    values, low, high = _values(device), torch.tensor(1.5), torch.tensor(3.0)
    there = torch.tensor([3.0, 1.0, 4.0]).to(device)
    results = [values.clamp(low, there), values.clamp(low, high), values.clamp(there - 1, high), values.clamp(max=high)]
    results += [values.clone().clamp_(low, high), values.clone().clip_(there - 1, high), values.int().clamp(low, high)]
    results += [values.clone().clamp_min_(low), values.clone().clamp_max_(high), values.clamp(low.int(), high.double())]
    results += [torch.clamp(values, torch.tensor([1.5, 3.0, 0.0]), there), values.half().clamp(low)]
    if torch.device(device).type != "cpu":  # where torch keeps the tensor's device, which is no other then
        assert all(result.device == values.device for result in results)
    for _ in range(3):  # a bound is no constant of the computation
        low = low + 1
        results.append(values.clamp(low))
    try:
        torch.ops.aten.clamp.Tensor(values)
    except RuntimeError as error:
        assert "At least one of 'min' or 'max' must not be None" in str(error), error
    else:
        raise AssertionError("no bound was taken")
    return results


@scenario
def operands_may_be_on_the_cpu(device: str | torch.device) -> Any:
    """Numbers, as torch has it for devices, and others, too."""
    results: list[Any] = []
    for other in (torch.tensor(2.5), torch.tensor([2.0, 3.0, 0.5])):
        for operation in BY_ANY:
            values = _values(device).requires_grad_()
            made = operation(values, other)
            if made.requires_grad:
                results += torch.autograd.grad(made.sum(), values)
            results.append(made.detach())
        values, complexes = _values(device), torch.complex(_values(device), _values(device))
        results += [complexes / other, other / complexes, other // values, values // other, other**values]
        results += [torch.maximum(other, values), values.clone().maximum(other)]
        results += [torch.xlogy(other, values), torch.where(values > 2, other, values)]
        results.append(values.int() // other.ceil().int())
        results += [values.clone().lerp_(values + 1, other), values.clone().floor_divide_(other)]
        results += [complexes.clone().div_(other), values.clone().pow_(other)]
        index = torch.tensor([0, 2]).to(device)
        results += [values.index_fill(0, index, other.max()), values.clone().index_fill_(0, index, other.max())]
    return results
