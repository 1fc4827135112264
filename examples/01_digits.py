"""Handwritten digits on four devices: the training loop is plain PyTorch, `pw.prepare` is the only change.

    python examples/01_digits.py             # one worker process with four CPU devices, data parallel
    python examples/01_digits.py --eager     # the same program without ptpathways: same seed, data and losses

It prints the accuracy on held-out digits, steps per second and how much of the time the client waited for the
devices, and leaves a picture of the loss.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw


class DigitNet(nn.Module):
    """Two convolutions and two linear layers; images of shape (batch, 1, 8, 8) to logits of shape (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.hidden = nn.Linear(64 * 4 * 4, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.conv1(images))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.hidden(x.flatten(1)))
        logits: Tensor = self.out(x)
        return logits


def make_loaders(batch_size: int) -> tuple[DataLoader[tuple[Tensor, ...]], DataLoader[tuple[Tensor, ...]]]:
    """1437 digits to train on, shuffled, and 360 to test on."""
    digits = load_digits()
    images = torch.from_numpy((digits.images / 16.0).astype(np.float32)).unsqueeze(1)
    labels = torch.from_numpy(digits.target.astype(np.int64))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(7))
    train, test = order[:1437], order[1437:]
    return (
        DataLoader(TensorDataset(images[train], labels[train]), batch_size=batch_size, shuffle=True),
        DataLoader(TensorDataset(images[test], labels[test]), batch_size=120),
    )


def draw(losses: list[float], path: Path) -> None:
    """Saves the training loss over the steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.semilogy(losses)
    axes.set(xlabel="step", ylabel="training loss", title="Handwritten digits")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eager", action="store_true", help="plain PyTorch on this process's CPU")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--devices-per-host", type=int, default=4)
    parser.add_argument("--losses", type=Path, help="write every step's loss to this JSON file")
    parser.add_argument("--picture", type=Path, default=Path("digits_loss.png"))
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    loader, test_loader = make_loaders(arguments.batch_size)
    step_count = min(arguments.epochs * len(loader), arguments.steps or 10**9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs * len(loader))

    if not arguments.eager:
        cluster = pw.init(hosts=arguments.hosts, devices_per_host=arguments.devices_per_host)
        print(f"cluster {cluster.name}: {cluster.device_count} devices on {len(cluster.hosts)} host(s)")
        model, optimizer, loader, test_loader, scheduler = pw.prepare(model, optimizer, loader, test_loader, scheduler)

    losses: list[float] = []
    pending: list[Tensor] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("loss {task.fields[loss]}"),
    )
    with Progress(*columns) as progress:
        bar = progress.add_task("training", total=step_count, loss="-")
        steps, start, start_step, waited = 0, time.perf_counter(), 0, None if arguments.eager else pw.wait_stats()
        while steps < step_count:
            model.train()
            for images, labels in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                scheduler.step()
                pending.append(loss.detach())
                steps += 1
                progress.advance(bar)
                if steps == step_count:
                    break
            losses += torch.stack(pending).tolist()  # once per epoch: the only place that waits
            pending.clear()
            progress.update(bar, loss=f"{losses[-1]:.4f}")
            if start_step == 0:  # the first epoch compiles; measure from the second
                start, start_step = time.perf_counter(), steps
                waited = None if arguments.eager else pw.wait_stats()
        seconds = time.perf_counter() - start

    if steps > start_step:
        print(f"{(steps - start_step) / seconds:.1f} steps/s after the first epoch")
        if waited is not None:
            waits = pw.wait_stats() - waited
            share = 100 * waits.seconds / seconds
            print(f"the client waited {waits.seconds:.2f} s of {seconds:.2f} s ({share:.0f}%), {waits.count} times")

    model.eval()
    correct: Tensor | int = 0
    with torch.no_grad():
        for images, labels in test_loader:
            correct += (model(images).argmax(1) == labels).sum()
    print(f"test accuracy {100 * int(correct) / 360:.2f}%")

    draw(losses, arguments.picture)
    print(f"loss picture in {arguments.picture}")
    if arguments.losses is not None:
        arguments.losses.write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
