"""One model trained in four ways over the devices of several hosts: only where its parameters lie is different.

    python examples/05_tensor_and_fully_sharded.py                           # all four, one host with four devices
    python examples/05_tensor_and_fully_sharded.py --hosts 2 --devices-per-host 2
    python examples/05_tensor_and_fully_sharded.py --method fully-sharded

The model is made on the devices, from one seed: so every way starts from the same parameters and gives the same losses,
on one host or several. A rule says where parameters lie; the loop does not know of it. (torch_xla's ``mark_sharding``
and FSDPv2 work, too.)
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw
from ptpathways.sharding import Mesh


class WideNet(nn.Module):
    """A residual hidden layer between two linear ones; images of shape (batch, 64) to logits of shape (batch, 10)."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.first = nn.Linear(64, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.last = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = torch.tanh(self.first(images))
        x = x + self.down(F.gelu(self.up(x)))
        logits: Tensor = self.last(x)
        return logits


def batches(steps: int) -> list[tuple[Tensor, ...]]:
    """So many batches of 64 digits."""
    digits = load_digits()
    images = torch.from_numpy((digits.images / 16.0).astype(np.float32)).flatten(1)
    data = TensorDataset(images, torch.from_numpy(digits.target.astype(np.int64)))
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(7))
    found: list[tuple[Tensor, ...]] = []
    while len(found) < steps:
        found += [tuple(batch) for batch in loader]
    return found[:steps]


def split_layers(name: str, parameter: Tensor) -> Any:
    """Tensor parallelism: rows of ``up`` and columns of ``down`` along the axis ``model``."""
    return {"up.weight": ("model", None), "up.bias": ("model",), "down.weight": (None, "model")}.get(name)


def options_of(method: str, devices: int) -> dict[str, Any]:
    """What ``pw.prepare`` is told.

    - ``data``: every device has all parameters and a part of each batch, which is what happens when nothing is said.
    - ``tensor``: every device has a part of the hidden layer and sees every batch whole.
    - ``fully-sharded``: every device has a part of each parameter and of each batch.
    - ``data-and-tensor``: batches are divided by two, the hidden layer by half the number of devices.
    """
    if method == "tensor":
        return {"strategy": split_layers, "mesh": Mesh((devices,), ("model",)), "batch_axis": ()}
    if method == "data-and-tensor":
        return {"strategy": split_layers, "mesh": Mesh((2, devices // 2), ("data", "model"))}
    return {"strategy": "fsdp"} if method == "fully-sharded" else {}


METHODS = ("data", "tensor", "fully-sharded", "data-and-tensor")


def train(method: str, devices: int, steps: int) -> list[float]:
    """The losses of so many steps from seed 0."""
    pw.manual_seed(0)
    with pw.device():
        model = WideNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer, loader = pw.prepare(model, optimizer, batches(steps), **options_of(method, devices))
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    numbers: list[float] = torch.stack(losses).tolist()
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=[*METHODS, "all"], default="all")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--devices-per-host", type=int, default=4)
    parser.add_argument("--losses", type=Path, help="write the losses of each method to this JSON file")
    arguments = parser.parse_args()

    cluster = pw.init(hosts=arguments.hosts, devices_per_host=arguments.devices_per_host)
    print(f"cluster {cluster.name}: {cluster.device_count} devices on {len(cluster.hosts)} host(s)")
    losses: dict[str, list[float]] = {}
    for method in METHODS if arguments.method == "all" else [arguments.method]:
        losses[method] = train(method, cluster.device_count, arguments.steps)
        print(f"{method:16} loss {losses[method][0]:.6f} at the first step, {losses[method][-1]:.6f} at the last")
    if arguments.losses is not None:
        arguments.losses.write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
