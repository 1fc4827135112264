"""Scenarios of audits: what they must find, and what they may find no fault with."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

import ptpathways as pw
from ptpathways.frontend.capture.objects._reachable import Surroundings
from tests.proc.capture_basis import Capture, Scenario, batches, network, numbers, training_step

CHANGED = 6
"""The call before which something changes, when steps are replayed."""


def found_by_audits(places: list[torch.device], capture: Capture) -> list[float]:
    """What nothing sees before a replay, as the name of a function: the next audit must, whatever state there is."""
    found: list[Tensor] = []
    makes: tuple[Any, ...] = (None, nn.Linear, torch.optim.SGD, torch.optim.AdamW)
    for make in makes:

        def named() -> float:
            return 1.0

        named.__name__ = "1"
        calls = torch.zeros(1, device=places[0])
        model, step_of = network().to(places[0]), None if make in (None, nn.Linear) else make
        optimizer = None if step_of is None else step_of(model.parameters(), lr=0.1)

        def one(
            x: Tensor,
            model: Any = model,
            make: Any = make,
            optimizer: Any = optimizer,
            named: Any = named,
            calls: Tensor = calls,
        ) -> Tensor:
            calls.add_(1)
            x = x.to(places[0]) * float(named.__name__)
            result: Tensor = x.sum() if make is None else model(x).square().mean()
            if optimizer is not None:
                optimizer.zero_grad()
                result.backward()
                optimizer.step()
            return result.detach()

        step, mismatch = capture(one), 0
        for call in range(24):
            if call == CHANGED:
                named.__name__ = "1.5"
            try:
                step(batches(1)[0][0])
            except pw.CaptureMismatch:
                mismatch += 1
        assert mismatch == isinstance(step, pw.CapturedStep), (make, step)
        found += [model(batches(1)[0][0].to(places[0])).sum() * 0, calls]  # also the call that raises is one
    return numbers(found)


def thawed_again(places: list[torch.device], capture: Capture) -> list[float]:
    """A layer that is frozen and thawed in turns, across audits."""
    model = network().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = capture(training_step(model, optimizer, places[0]))
    found: list[Tensor] = []
    for call, (x, y) in enumerate(batches(30)):
        found += [step(x, y), *(torch.tensor(float(one.grad is not None)) for one in model.parameters())]
        model[0].weight.requires_grad_(call % 6 < 3)
    assert not isinstance(step, pw.CapturedStep) or step.audits >= 1, step
    return numbers(found)


def numbers_on_the_devices(places: list[torch.device], capture: Capture) -> list[float]:
    """Tensors without dimensions, as arguments and as state, that equal numbers of the step when it is recorded."""
    place = places[0]
    makes: tuple[Callable[[float], Tensor], ...] = (
        lambda value: torch.tensor(value).to(place),
        lambda value: torch.tensor(value, device=place),
        lambda value: torch.full((), value, device=place),
        lambda value: nn.Parameter(torch.tensor(value)).to(place).detach(),
        lambda value: torch.tensor(0.5).to(place).fill_(value),
    )
    found: list[Tensor] = []
    for make in makes:
        for number in (2.0, 1.0, 0.0):
            state = make(number)

            def one(k: Tensor, number: float = number, state: Tensor = state) -> Tensor:
                return k * 2.0 + k * number + state * number + state * 3.0

            step = capture(one)
            for call in range(9):
                if call == 6:
                    state.copy_(torch.tensor(7.0))
                found.append(step(make(number if call < 5 else float(call))))
            assert not isinstance(step, pw.CapturedStep) or step.replays + step.audits >= 3, step
    return numbers(found)


def unseen_by_guards(places: list[torch.device], capture: Capture) -> list[float]:
    """What the guards before a replay miss is found before an audit traces the call; it is traced all the same."""
    settings = types.SimpleNamespace(factor=1.0)
    calls = torch.zeros(1, device=places[0])

    @capture
    def step(x: Tensor) -> Tensor:
        calls.add_(1)
        return x.to(places[0]).sum() * float(settings.factor)

    said = ""
    with mock.patch.object(Surroundings, "still_holds", return_value=True):
        for call in range(18):
            if call == CHANGED:
                settings.factor = 2.0
            try:
                step(batches(1)[0][0])
            except pw.CaptureMismatch as mismatch:
                said += str(mismatch)
    if isinstance(step, pw.CapturedStep):
        assert said.count("settings.factor (1.0 -> 2.0)") == 1 and "its result is lost" in said, said
    return numbers([calls, step(batches(1)[0][0])])


SCENARIOS: tuple[Scenario, ...] = (found_by_audits, unseen_by_guards, thawed_again, numbers_on_the_devices)
