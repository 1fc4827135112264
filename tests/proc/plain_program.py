"""A training program that knows only PyTorch: ``--device=xla`` or ``cpu``. Prints its losses."""

from __future__ import annotations

import argparse
import importlib
import json
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    torch.manual_seed(3)
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        rows = torch.randint(len(inputs), (256,))
        x, y = inputs[rows].to(device), targets[rows].to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    print(json.dumps(torch.stack(losses).tolist()))
    if device != "cpu":  # for the test; a program that imported it would not be a plain one
        cluster = importlib.import_module("ptpathways").cluster()
        state = importlib.import_module("ptpathways.frontend.base._state").runtime()
        print(json.dumps([cluster.device_count, state.connection.transfer_stats()]))
    assert "__main__" in sys.modules and sys.argv[0].endswith("plain_program.py")


if __name__ == "__main__":
    main()
