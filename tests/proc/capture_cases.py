"""Steps that use one object each, which changes between two calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ptpathways as pw
from tests.proc.capture_basis import SAID, Capture

CALLS = 14
CHANGED_BEFORE = (6, 7, 11)
Make = Callable[[torch.device], Any]


def numbers_on(place: torch.device, *values: float) -> Tensor:
    return torch.tensor(values).to(place)


class Case(NamedTuple):
    """How a step uses an object, and what happens to that between two calls, with their number."""

    use: Callable[[Any, Tensor], Tensor]
    change: Callable[[Any, int, torch.device], Any]
    prepare: Callable[[Any, torch.device], Any] = lambda *_: None
    make: Make | None = None


def outcomes(
    cases: dict[str, Case], places: list[torch.device], capture: Capture, makers: Sequence[Make] = (lambda _: None,)
) -> list[float]:
    """What the steps of all cases give, which have to be replayed.

    Args:
        makers: what makes the objects of cases that do not say it, in turn.
    """
    found = []
    for number, case in enumerate(cases.values()):
        of = (case.make or makers[number % len(makers)])(places[0])
        case.prepare(of, places[0])

        def step(x: Tensor, of: Any = of, use: Any = case.use) -> Any:  # which must not reach the change
            return use(of, x)

        captured = capture(step)
        for call in range(1, CALLS):
            if call in CHANGED_BEFORE:
                with torch.no_grad():
                    case.change(of, call, places[0])
            found.append(captured(numbers_on(places[0], 0.25 + call / 40)).sum())
        if isinstance(captured, pw.CapturedStep):  # which must not trace everything
            assert captured.replays, (number, [text for text in SAID if "'step'" in text][-1:])
    return [float(value) for value in found]
