"""Lightning's `Trainer`: clipping, accumulation, a schedule, validation, checkpoints and resume.

    python examples/10_lightning.py             # 2 hosts with 2 CPU devices each
    USE_TORCH_XLA=0 python examples/10_lightning.py --eager     # the same program on the CPU

Four lines are of ptpathways: two imports, `pw.init`, and the accelerator's name. One process drives all
devices, so the world size is 1, and a batch is divided over the devices.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw
import ptpathways.lightning


class Classifier(pl.LightningModule):
    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.epochs = epochs
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=5e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.epochs)]


def train(eager: bool, epochs: int, folder: Path) -> list[float]:
    """The losses of all epochs, the last of which goes on from a checkpoint, and the accuracy at the end."""
    where: dict[str, Any] = {"accelerator": "cpu"} if eager else {"accelerator": "pathways"}
    pl.seed_everything(0)
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))
    training, validation = DataLoader(data, batch_size=64, shuffle=True), DataLoader(data, batch_size=256)
    losses: list[float] = []
    saved = None
    for last in (epochs - 1, epochs):
        module = Classifier(epochs)
        checkpoints = pl.callbacks.ModelCheckpoint(folder, filename=f"until-{last}")
        trainer = pl.Trainer(
            **where,
            callbacks=[checkpoints],
            max_epochs=last,
            accumulate_grad_batches=2,
            gradient_clip_val=1.0,
            enable_progress_bar=False,
            logger=False,
        )
        trainer.fit(module, training, validation, ckpt_path=saved)
        losses += torch.stack(module.losses).tolist()
        saved = checkpoints.best_model_path
    return [*losses, float(trainer.callback_metrics["accuracy"])]


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
        *losses, accuracy = train(options.eager, options.epochs, Path(folder))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; accuracy {accuracy:.4f}")
    if options.losses:
        options.losses.write_text(json.dumps([*losses, accuracy]))


if __name__ == "__main__":
    main()
