"""Loops that differ in what becomes of gradients, optimizers, schedules and states. Run by `loop_scenarios.py`."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler, swa_utils

from tests.proc.loop_basis import CLASSES, WIDTH, Place, adam, batches, descend, network


def accumulation(place: Place) -> Iterator[Any]:
    """Gradients of four batches per step, then of two, then of four again, then of three."""
    model = network()
    model, optimizer, loader = place.prepare(model, adam(model), batches(40))
    source = iter(loader)
    for count in (4, 4, 4, 2, 2, 4, 3, 3, 4, 4):
        total: Any = 0.0
        for _ in range(count):
            inputs, labels = next(source)
            loss = F.cross_entropy(model(inputs), labels) / count
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        yield total


def clipping(place: Place) -> Iterator[Any]:
    """By norm, then by value."""
    model = network()
    model, optimizer, loader = place.prepare(model, torch.optim.SGD(model.parameters(), 0.5, 0.9), batches())
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        optimizer.step()
        yield [loss.detach(), norm]


def nesterov(place: Place) -> Iterator[Any]:
    """Gradients are after a step what they were before it: two steps are taken on each."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, nesterov=True)
    model, optimizer, loader = place.prepare(model, optimizer, batches())
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.step()
        yield [loss.detach(), *(parameter.grad.sum() for parameter in model.parameters())]


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.95**step),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], 0.5),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.3, 1.0, 6),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 20, 2.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 20),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.05, 3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=20),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 4), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.5, 4), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, threshold=0.05),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.01, 4),
}


def schedulers(place: Place) -> Iterator[Any]:
    """Every class of torch.optim.lr_scheduler, and SWALR; one model, so that nothing new is compiled."""
    for make in SCHEDULERS.values():
        torch.manual_seed(3)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        schedule = make(optimizer)
        model, optimizer, schedule, loader = place.prepare(model, optimizer, schedule, batches(8))
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            if isinstance(schedule, lr_scheduler.ReduceLROnPlateau):
                schedule.step(loss.item())
            else:
                schedule.step()
            yield [loss.detach(), optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]]


def optimizers(place: Place) -> Iterator[Any]:
    """Optimizers with states of different kinds."""
    yield from _with_optimizers(place, ["Adafactor", "NAdam"])


def every_optimizer(place: Place) -> Iterator[Any]:
    """Every class of torch.optim that takes dense gradients and no closure."""
    kinds = [name for name in torch.optim.__all__ if isinstance(getattr(torch.optim, name), type)]
    yield from _with_optimizers(place, [name for name in kinds if name not in ("Optimizer", "LBFGS", "SparseAdam")])


def _with_optimizers(place: Place, names: list[str]) -> Iterator[Any]:
    for name in names:
        yield name
        torch.manual_seed(3)
        model = nn.Linear(WIDTH, CLASSES, bias=False)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-2)
        model, optimizer, loader = place.prepare(model, optimizer, batches(5))
        for inputs, labels in loader:
            yield descend(model, optimizer, inputs, labels)


def averaged(place: Place) -> Iterator[Any]:
    """An exponential average by deepcopy, one by AveragedModel, a stochastic average, and batch statistics for it."""
    model: Any = nn.Sequential(nn.Linear(WIDTH, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES))
    model, optimizer, loader = place.prepare(model, torch.optim.SGD(model.parameters(), 0.1), batches())
    copied = copy.deepcopy(model).requires_grad_(False)
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    stochastic = swa_utils.AveragedModel(model)
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        stochastic.update_parameters(model)
        with torch.no_grad():
            for mine, new in zip(copied.parameters(), model.parameters(), strict=True):
                mine.mul_(0.9).add_(new, alpha=0.1)
        yield [loss.detach(), *[sum(p.detach().abs().sum() for p in m.parameters()) for m in (copied, average)]]
    yield "update_bn"
    swa_utils.update_bn(place.prepare(batches(1)), stochastic)
    yield [
        sum(p.detach().abs().sum() for p in stochastic.parameters()),
        stochastic.module.get_buffer("1.running_mean").abs().sum(),
    ]


def closures(place: Place) -> Iterator[Any]:
    """LBFGS."""
    yield from _closure_loop(place, None, 5)


def line_search(place: Place) -> Iterator[Any]:
    """LBFGS with a line search, which takes as many evaluations as the values ask for."""
    yield from _closure_loop(place, "strong_wolfe", 4)


def _closure_loop(place: Place, search: str | None, steps: int) -> Iterator[Any]:
    torch.manual_seed(3)
    model = network()
    optimizer: Any = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=2, history_size=1, line_search_fn=search)
    model, optimizer = place.prepare(model, optimizer)
    ((inputs, labels),) = place.prepare(list(batches(1)))

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    for _ in range(steps):
        yield optimizer.step(closure).detach()


def frozen(place: Place) -> Iterator[Any]:
    """A frozen first layer; it is thawed in the middle by add_param_group, and by requires_grad_."""
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(model[3].parameters(), lr=1e-2)
    model, optimizer, loader = place.prepare(model, optimizer, batches(14))
    for index, (inputs, labels) in enumerate(loader):
        if index == 7:
            yield "thawed"
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 1e-3})
        yield descend(model, optimizer, inputs, labels)


def step_in_backward(place: Place) -> Iterator[Any]:
    """An optimizer per parameter, stepped by a hook as soon as the gradient is there."""
    model: Any = nn.Linear(WIDTH, CLASSES)
    each = {parameter: torch.optim.SGD([parameter], 0.1, momentum=0.9) for parameter in model.parameters()}

    def update(parameter: Any) -> None:
        each[parameter].step()
        each[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    model, loader, *_ = place.prepare(model, batches(), *each.values())
    for inputs, labels in loader:
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        yield loss.detach()


def scaled(place: Place) -> Iterator[Any]:
    """float16 with a GradScaler whose first scale is too large: steps are skipped, and the scale comes down."""
    model = network()
    model, optimizer, loader = place.prepare(model, torch.optim.SGD(model.parameters(), 0.1, 0.9), batches(14))
    scaler = torch.amp.grad_scaler.GradScaler(place.type, init_scale=2.0**20, growth_interval=3)
    for inputs, labels in loader:
        optimizer.zero_grad()
        with torch.autocast(place.type, dtype=torch.float16):
            loss = F.cross_entropy(model(inputs), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield [loss.detach(), scaler.get_scale()]


def early_stopping(place: Place) -> Iterator[Any]:
    """Epochs until a fetched metric no longer falls."""
    model = network()
    model, optimizer, loader = place.prepare(model, torch.optim.SGD(model.parameters(), 2.0), batches(4))
    best, waited = float("inf"), 0
    for _ in range(40):
        total: Any = 0.0
        for inputs, labels in loader:
            total = total + descend(model, optimizer, inputs, labels)
        value = float(total)
        yield value
        best, waited = (value, 0) if value < best - 1e-3 else (best, waited + 1)
        if waited == 2:
            break


def gradients_stay(place: Place) -> Iterator[Any]:
    """zero_grad(set_to_none=False), and gradients read and changed by hand."""
    model = network()
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    for inputs, labels in loader:
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        for parameter in model.parameters():
            parameter.grad.add_(parameter.detach(), alpha=1e-2)
        optimizer.step()
        yield loss.detach()


def saved(place: Place) -> Iterator[Any]:
    """torch.save in the middle, a few steps more, then back to what was saved."""
    model = network()
    model, optimizer, loader = place.prepare(model, adam(model), batches(12))
    file = io.BytesIO()
    for index, (inputs, labels) in enumerate(loader):
        if index == 4:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        if index == 8:
            yield "loaded"
            file.seek(0)
            state = torch.load(file, map_location="cpu")
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        yield descend(model, optimizer, inputs, labels)
