"""Loops as programs for PyTorch/XLA have them, each beside the same one on the CPU (docs/migration.md)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw

STEPS, ROWS = 4, 16


def trained(model: nn.Module, device: Any, batches: Iterable[Any], end: Callable[[Any], object]) -> list[Tensor]:
    """All that the model has after the loop, on the CPU."""
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
        end(optimizer)
    return [value.detach().cpu() for value in model.state_dict().values()]


def main() -> None:
    pw.init(hosts=2, devices_per_host=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    data = TensorDataset(torch.randn(STEPS * ROWS, 6), torch.randint(0, 3, (STEPS * ROWS,)))
    batches = list(DataLoader(data, batch_size=ROWS))
    expected = trained(model, "cpu", batches, torch.optim.SGD.step)
    device = torch_xla.device()
    device_loader: Any = pl.MpDeviceLoader(DataLoader(data, batch_size=ROWS), device)  # type: ignore[no-untyped-call]
    loops: dict[str, tuple[Any, Callable[[Any], object]]] = {
        "sync": (batches, lambda optimizer: (optimizer.step(), torch_xla.sync())),
        "mark_step": (batches, lambda optimizer: (optimizer.step(), xm.mark_step())),
        "optimizer_step": (batches, xm.optimizer_step),
        "MpDeviceLoader": (device_loader, torch.optim.SGD.step),
    }
    for name, (loader, end) in loops.items():
        for value, other in zip(trained(model, device, loader, end), expected, strict=True):
            assert torch.allclose(value, other, rtol=1e-5, atol=1e-6), name
    assert xm.xla_device() == pw.device() == device
    assert (xr.world_size(), xr.global_ordinal(), xr.global_runtime_device_count()) == (1, 0, 4)
    ones = torch.ones(2, device=device)
    (total,) = xm.all_reduce(xm.REDUCE_SUM, [ones])
    assert torch.equal(total.cpu(), torch.ones(2))
    assert xm.mesh_reduce("metric", 3.0, sum) == 3.0
    print("right")


if __name__ == "__main__":
    main()
