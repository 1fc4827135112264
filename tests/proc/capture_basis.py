"""What the scenarios of captured steps share: batches, a small network, and what was said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw

STEPS = 20
Capture = Callable[[Callable[..., Any]], Any]
Scenario = Callable[[list[torch.device], Capture], list[float]]
SAID: list[str] = []


def batches(count: int = STEPS, size: int = 4) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(size, 8, generator=generator), torch.randn(size, 1, generator=generator)) for _ in range(count)
    ]


def network(*between: nn.Module) -> Any:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), *between, nn.Linear(16, 1))


def training_step(
    model: Any, optimizer: torch.optim.Optimizer, place: torch.device, criterion: Callable[..., Any] = F.mse_loss
) -> Callable[[Tensor, Tensor], Tensor]:
    """A step as everybody writes it, to be captured. ``criterion``: of the model's output and what it should be."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = criterion(model(x.to(place)), y.to(place))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def numbers(values: list[Tensor]) -> list[float]:
    return [float(value) for value in values]


def expect(step: Any, replays: int | None = None, said: int | None = None, texts: tuple[str, ...] = ()) -> None:
    """Checks how often a captured step was replayed and what it said; on the CPU there is nothing to check."""
    if not isinstance(step, pw.CapturedStep):
        return
    mine = [text for text in SAID if f"'{step.name}'" in text]
    audited = step.replays + step.audits
    assert replays is None or audited == replays, (step.replays, step.audits, replays, mine)
    assert said is None or len(mine) == said, mine
    for text in texts:
        assert any(text in one for one in mine), (text, mine)
