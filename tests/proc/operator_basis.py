"""What scenarios of operators share. Each computes on a device; all results must be those of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

INFINITY, NAN = float("inf"), float("nan")

Scenario = Callable[[str | torch.device], Any]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


def matrix(device: str | torch.device) -> torch.Tensor:
    return (torch.arange(12.0).reshape(3, 4) - 5).to(device)
