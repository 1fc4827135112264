"""Gradients that autograd keeps, where formulas give views that repeat elements. Run by `operator_scenarios.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.proc.operator_basis import scenario

LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda p: p.sum(),
    "mean": lambda p: p.mean(),
    "rows": lambda p: (p.sum(0) * torch.arange(6.0, device=p.device)).sum(),
    "columns": lambda p: (p.mean(1) * torch.arange(4.0, device=p.device)).sum(),
    "expanded": lambda p: (p.expand(8, 4, 6) * torch.arange(8.0, device=p.device).view(8, 1, 1)).sum(),
    "two places": lambda p: p.sum() + p.mean() * 3,
    "view": lambda p: p.view(-1).sum(),
    "turned": lambda p: p.t().reshape(-1).sum() + p[1:].sum(),
    "part": lambda p: p[1].sum(),
    "twice": lambda p: torch.cat([p, p]).sum(),
    "norm": lambda p: p.norm() + p.sum(),
    "as_strided": lambda p: p.as_strided((2, 6), (6, 1)).sum(),
    "unfold": lambda p: p.unfold(0, 2, 1).sum(),
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "mul_": lambda p: p.grad.mul_(0.5),
    "add_": lambda p: p.grad.add_(1),
    "clamp_": lambda p: p.grad.clamp_(max=0.25),
    "copy_": lambda p: p.grad.copy_(torch.arange(24.0).reshape(4, 6)),
    "zero_": lambda p: p.grad.zero_(),
    "element": lambda p: p.grad[0].fill_(7),
    "foreach": lambda p: torch._foreach_mul_([p.grad], 0.5),
    "clip_grad_norm_": lambda p: nn.utils.clip_grad_norm_([p], 1.0),
    "clip_grad_value_": lambda p: nn.utils.clip_grad_value_([p], 0.5),
    "zero_grad": lambda p: torch.optim.SGD([p], 0.1).zero_grad(set_to_none=False),
}


def _parameter(device: str | torch.device, dtype: torch.dtype = torch.float32) -> Any:
    return nn.Parameter(torch.arange(24.0).reshape(4, 6).to(dtype).to(device))


@scenario
def gradients_are_added_up_and_written(device: str | torch.device) -> Any:
    found: list[Any] = []
    for loss in LOSSES.values():
        for write in WRITES.values():
            p = _parameter(device)
            loss(p).backward()
            write(p)
            found.append(p.grad.clone())
            for _ in range(2):
                loss(p).backward()
            found.append(p.grad)
    return found


@scenario
def gradients_of_other_types_are_added_up(device: str | torch.device) -> Any:
    found: list[Any] = []
    for dtype in (torch.float64, torch.complex64, torch.bfloat16):
        for loss in (torch.mean, torch.sum):
            p = _parameter(device, dtype)
            for _ in range(3):
                (loss(p).real if dtype.is_complex else loss(p)).backward()
            p.grad.mul_(2)
            found.append(p.grad)
    return found


@scenario
def gradients_of_two_parameters_are_two(device: str | torch.device) -> Any:
    """Both are views of one tensor. What torch gives one memory is not compared: two views of one gradient, to which it
    adds twice, and a view of a tensor of the user's."""
    one, two, three = _parameter(device), _parameter(device), nn.Parameter(torch.ones(2, 6).to(device))
    weights = torch.arange(60.0).reshape(10, 6).to(device)
    for _ in range(2):
        (torch.cat([one, two, three]) * weights).sum().backward()
        (one.sum() + two.sum()).backward()
        one.grad.add_(1)
    first, second = _parameter(device), _parameter(device)
    for _ in range(2):
        (first.view(24) + second.view(24)).square().sum().backward()
    if str(device) != "cpu":
        assert torch.equal(first.grad.cpu(), 8 * torch.arange(24.0).reshape(4, 6))
        assert torch.equal(second.grad.cpu(), first.grad.cpu())
    given, third = torch.ones(24).to(device), _parameter(device)
    third.view(24).backward(given)
    third.grad.add_(1)
    assert str(device) == "cpu" or given.sum().item() == 24
    return [one.grad, two.grad, three.grad, third.grad]


@scenario
def gradients_that_are_derived_again(device: str | torch.device) -> Any:
    p, found = _parameter(device), []
    loss = p.square().mean()
    loss.backward(create_graph=True)
    p.grad.square().sum().backward()  # adds to what it derives
    found.append(p.grad.detach().clone())
    p.grad = None
    q = _parameter(device)
    for _ in range(2):
        product = p.sum() * q.mean()
        (of_p,) = torch.autograd.grad(product, p, create_graph=True)
        (of_p.square().sum() + p.sum()).backward()
    found += [of_p, p.grad, q.grad]
    p.grad = q.grad = None
    kept = (p.sum() * q.sum()).square()
    for _ in range(3):
        kept.backward(retain_graph=True)
    return [*found, p.grad, q.grad, torch.func.hessian(lambda x: x.sum().square() + x.square().mean())(p.detach()[0])]


@scenario
def gradients_that_hooks_see(device: str | torch.device) -> Any:
    """What hooks detach is the tensor that they have, and written with it."""
    p, found, whole = _parameter(device), [], torch.zeros(30).to(device)
    p.register_hook(lambda gradient: found.append(gradient.detach()))
    p.register_hook(lambda gradient: gradient.sum().expand(4, 6))
    part = whole[6:].view(4, 6)

    def keep(parameter: Tensor) -> None:
        assert parameter.grad is not None
        part.detach().copy_(parameter.grad)
        parameter.grad.mul_(2)

    p.register_post_accumulate_grad_hook(keep)
    middle = p * 1
    middle.retain_grad()
    for _ in range(3):
        (middle.mean() * 2).backward(retain_graph=True)
    return [*found, p.grad, middle.grad, whole, part]
