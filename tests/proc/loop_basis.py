"""What the loops share: the place where one runs, a small network, its data, and a step as everybody writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

STEPS, BATCH, WIDTH, CLASSES = 10, 8, 16, 4


@dataclass(frozen=True)
class Place:
    """Where a loop runs: what stands for ``pw.prepare``, and the device."""

    prepare: Callable[..., Any]
    device: torch.device

    @property
    def type(self) -> str:
        return self.device.type


Loop = Callable[[Place], Iterator[Any]]


def network(dropout: float = 0.0) -> Any:
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Dropout(dropout), nn.Linear(32, CLASSES))


def data(count: int = STEPS * BATCH, seed: int = 1) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, WIDTH, generator=generator)
    return TensorDataset(inputs, inputs[:, :CLASSES].argmax(1))


def batches(count: int = STEPS) -> DataLoader[Any]:
    return DataLoader(data(count * BATCH), batch_size=BATCH)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def descend(model: Any, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor) -> Tensor:
    """One step; its loss."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()
