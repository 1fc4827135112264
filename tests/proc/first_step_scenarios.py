"""Five steps of loops of many kinds, with what each step compiled. A program of its own: one process, one use.

    python first_step_scenarios.py WHAT DEVICES [MODEL ...]

WHAT: ``optimizers``, ``loops`` or ``models``. Prints one JSON object: for each name, per step, how many step programs
(those that take parameters of the model) and how many others were compiled; and how far the parameters are from those
of eager PyTorch, and from those of a loop that makes its optimizer's state in the first step.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer

import ptpathways as pw
from ptpathways import native
from ptpathways.frontend.loops import _optimizer_state

STEPS = 5
Make = Callable[[Iterable[nn.Parameter]], Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-2),
    "SGD, momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=1e-3),
    "SGD, nesterov": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    "SGD, maximize": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, maximize=True),
    "SGD, dampening": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, dampening=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "Adam, amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "RAdam": lambda p: torch.optim.RAdam(p),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adagrad": lambda p: torch.optim.Adagrad(p, initial_accumulator_value=0.1),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p),
    "RMSprop, centered": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "a subclass of Adam": lambda p: Gentle(p, lr=1e-3),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
}


class Gentle(torch.optim.Adam):
    """A step of its own, that makes state of its own: nobody else may make any."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if not self.state[parameter]:
                    self.state[parameter]["sum"] = torch.zeros_like(parameter)
                self.state[parameter]["sum"].add_(parameter.grad)
                parameter.add_(self.state[parameter]["sum"].sign(), alpha=-group["lr"])
        return loss


def net(dropout: float = 0.0) -> nn.Module:
    """A bias in front of the normalisation would have gradients that are nothing but rounding, which Adam amplifies."""
    return nn.Sequential(
        nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1)
    )


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 6, generator=generator), torch.randn(8, 1, generator=generator)) for _ in range(STEPS)]


def descend(model: Any, optimizer: Optimizer, x: torch.Tensor, y: torch.Tensor, late: bool = False) -> torch.Tensor:
    """One step. ``late``: the optimizer's state is made in the step, as eager PyTorch does."""
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    if late:
        with mock.patch.object(_optimizer_state, "_prepare"):
            optimizer.step()
    else:
        optimizer.step()
    return loss


class Compiles:
    """What the plugin is given to compile."""

    def __init__(self) -> None:
        self.steps = self.others = 0
        native.set_compile_listener(self.hear)

    def hear(self, name: str, parameters: list[str], *unused: Any) -> None:
        if sum("[]" not in one for one in parameters) > 1:
            self.steps += 1
        else:
            self.others += 1

    def take(self) -> tuple[int, int]:
        found = self.steps, self.others
        self.steps = self.others = 0
        return found


def distance(one: Any, other: Any) -> float:
    """The largest difference of two state dictionaries' floats, relative to the size of the tensor they are in."""
    worst = 0.0
    for name, value in one.items():
        theirs = other[name].cpu()
        if value.is_floating_point() and not name.endswith("running_var"):  # PyTorch/XLA's is the biased one
            worst = max(worst, float((value.cpu() - theirs).abs().max() / theirs.abs().max().clamp(min=1e-3)))
    return worst


def equal(one: Any, other: Any) -> bool:
    """Every bit of the tensors of two state dictionaries."""
    return all(torch.equal(bits(value), bits(other[name])) for name, value in one.items())


def bits(value: torch.Tensor) -> torch.Tensor:
    """-0.0 is not 0.0, and nan is nan."""
    return value.cpu().reshape(-1).view(torch.uint8)


def of_optimizers(compiles: Compiles) -> dict[str, Any]:
    found = {}
    for name, make in OPTIMIZERS.items():
        torch.manual_seed(0)
        eager = net()
        early, late = copy.deepcopy(eager), copy.deepcopy(eager)
        optimizer = make(eager.parameters())
        for x, y in batches():
            descend(eager, optimizer, x, y)
        seen: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        states = {}
        for model, is_late in ((early, False), (late, True)):
            model, optimizer, loader = pw.prepare(model, make(model.parameters()), batches())
            compiles.take()
            for x, y in loader:
                descend(model, optimizer, x, y, is_late)
                seen[is_late].append(compiles.take())
            states[is_late] = optimizer.state_dict()["state"]
        same = equal(early.state_dict(), late.state_dict()) and all(
            equal(early_state, states[True][key]) for key, early_state in states[False].items()
        )
        found[name] = {
            "compiled": seen[False],
            "compiled late": seen[True],
            "equal": same,
            "from eager": distance(early.state_dict(), eager.state_dict()),
        }
    return found


def of_loops(compiles: Compiles) -> dict[str, Any]:
    device = pw.device()

    def run(model: Any, optimizer: Any, cut: bool = True, step: Any = descend) -> list[tuple[int, int]]:
        seen = []
        for x, y in batches():
            compiles.take()
            step(model, optimizer, x.to(device), y.to(device))
            if cut:
                pw.step()
            seen.append(compiles.take())
        return seen

    def moved() -> Any:
        model = net(0.1).to(device)
        return run(model, torch.optim.AdamW(model.parameters()))

    def made_on_the_devices() -> Any:
        with pw.device():
            model = net(0.1)
        return run(model, torch.optim.Adagrad(model.parameters()))

    def captured() -> Any:
        model = net(0.1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        step = pw.program(lambda x, y: descend(model, optimizer, x, y), kind="step")
        return run(model, optimizer, cut=False, step=lambda unused, none, x, y: step(x, y))

    def with_a_closure() -> Any:
        """Whose gradients decide which parameters get state."""

        def step(model: Any, optimizer: Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
            def closure() -> Any:
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)

        model = net().to(device)
        return run(model, torch.optim.AdamW(model.parameters()), step=step)

    def read_in_the_middle() -> Any:
        def step(model: Any, optimizer: Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.item()
            loss.backward()
            optimizer.step()

        model = net().to(device)
        return run(model, torch.optim.AdamW(model.parameters()), step=step)

    def frozen_then_thawed() -> Any:
        model: Any = net().to(device)
        model[0].requires_grad_(False)
        optimizer = torch.optim.AdamW(model.parameters())
        frozen = run(model, optimizer)
        model[0].requires_grad_(True)
        return frozen + run(model, optimizer)

    def divided() -> Any:
        model: Any = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))
        data = [(torch.ones(8, 16), torch.ones(8, 16))] * STEPS
        model, optimizer, loader = pw.prepare(model, torch.optim.Adam(model.parameters()), data, strategy="fsdp")
        seen = []
        for x, y in loader:
            compiles.take()
            descend(model, optimizer, x, y)
            seen.append(compiles.take())
        return seen

    def zeros_and_nan() -> Any:
        """Not a loop: whether SGD's first momentum is its first gradient."""
        gradient = torch.tensor([-0.0, 0.0, float("nan"), float("inf"), -1e-37, 3.0])
        parameter = nn.Parameter(torch.zeros(6, device=device))
        parameter.grad = gradient.to(device)
        optimizer = torch.optim.SGD([parameter], lr=1e-2, momentum=0.9)
        optimizer.step()
        pw.step()
        return torch.equal(bits(optimizer.state[parameter]["momentum_buffer"]), bits(gradient))

    loops: list[Callable[[], Any]] = [zeros_and_nan, moved, made_on_the_devices, captured, with_a_closure]
    loops += [read_in_the_middle, frozen_then_thawed, divided]
    return {loop.__name__: loop() for loop in loops}


def of_models(compiles: Compiles, keys: Sequence[str]) -> dict[str, Any]:
    """Models of transformers and torchvision, each with its optimizer, without a schedule."""
    from tools import compatibility

    found = {}
    for case in compatibility.MODELS:
        if case.key not in keys:
            continue
        torch.manual_seed(0)
        model = case.build().train()
        generator = torch.Generator().manual_seed(1)
        data = [case.batch(generator) for _ in range(STEPS)]
        model, optimizer, loader = pw.prepare(model, case.optimizer(list(model.parameters())), data)
        compiles.take()
        seen = []
        for batch in loader:
            optimizer.zero_grad()
            case.loss(model, batch).backward()
            optimizer.step()
            seen.append(compiles.take())
        found[case.key] = seen
    return found


def main() -> None:
    what, devices = sys.argv[1], int(sys.argv[2])
    # Without fused multiply-add a value does not depend on what else is in its program, so that programs can be
    # compared bit for bit.
    os.environ["XLA_FLAGS"] = "--xla_cpu_max_isa=SSE4_2"
    os.environ["PTPATHWAYS_CACHE_DIR"] = "off"
    # Waits are told of, which must not make a step another one (what keeps a tensor alive makes it a result).
    pw.init(hosts=1, devices_per_host=devices, wait_notice_s=0.1)
    compiles = Compiles()
    made = (
        of_models(compiles, sys.argv[3:])
        if what == "models"
        else {"optimizers": of_optimizers, "loops": of_loops}[what](compiles)
    )
    print(json.dumps(made))


if __name__ == "__main__":
    main()
