"""What scenarios of slices share: a small model, its data, its training, and what the client has transferred."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

import ptpathways as pw

STEPS = 6


def stats() -> dict[str, int]:
    from ptpathways.frontend import session

    found = session().transfer_stats()
    return {name: int(found[name]) for name in ("bytes_uploaded", "bytes_fetched", "runs")}


def model_of(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8))


def data(rows: int = 16) -> torch.Tensor:
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(5))


def train(
    model: nn.Module, x: torch.Tensor, *, steps: int = STEPS, between: Callable[[int], None] | None = None
) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for number in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        if x.device.type == "xla":
            pw.step()
        losses.append(loss.detach())
        if between is not None:
            between(number)
    return losses


def values(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([tensor.cpu() for tensor in tensors])


def same(got: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    torch.testing.assert_close(values(got), values(wanted), rtol=1e-5, atol=1e-6)
