"""An `accelerate` loop, unmodified: accumulation, clipping, a schedule, gathered metrics, saved and loaded state.

    python examples/09_accelerate.py             # 2 hosts with 2 CPU devices each
    USE_TORCH_XLA=0 python examples/09_accelerate.py --eager     # the same program on the CPU

Two lines are of ptpathways: the import and `pw.init`. One process drives all devices, so `accelerator.num_processes` is
1, and a batch is divided over the devices.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw


def train(eager: bool, epochs: int, folder: Path) -> tuple[list[float], float]:
    """The losses, and the accuracy at the end."""
    set_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=eager)
    digits = load_digits()
    order = torch.randperm(len(digits.data))  # and no shuffle=True: accelerate shuffles otherwise on XLA devices
    data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32)[order], torch.tensor(digits.target)[order])
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    loader = DataLoader(data, batch_size=64)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader) // 2)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for epoch in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
        if epoch == 0:
            accelerator.save_state(str(folder))
    expected = accelerator.gather(torch.stack(losses)).tolist()
    accelerator.load_state(str(folder))  # after the first epoch
    correct = []
    with torch.no_grad():
        for x, y in loader:
            correct.append(accelerator.gather_for_metrics(model(x).argmax(1) == y))
    return expected, float(torch.cat(correct).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eager", action="store_true", help="without ptpathways")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--devices-per-host", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--losses", type=Path, help="a JSON file to write the losses to")
    options = parser.parse_args()
    if not options.eager:
        pw.init(hosts=options.hosts, devices_per_host=options.devices_per_host)
    with tempfile.TemporaryDirectory() as folder:
        losses, accuracy = train(options.eager, options.epochs, Path(folder))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; accuracy after the first epoch {accuracy:.4f}")
    if options.losses:
        options.losses.write_text(json.dumps([*losses, accuracy]))


if __name__ == "__main__":
    main()
