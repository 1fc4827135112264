"""timm, as its own train.py puts it together: loader, mixup, optimizer, schedule, averaged weights, checkpoints.

    python examples/11_timm.py             # 2 hosts with 2 CPU devices each
    USE_TORCH_XLA=0 python examples/11_timm.py --eager     # the same program on the CPU

Two lines are of ptpathways: the import and `pw.init`. The device is PyTorch's `xla`, and a batch is divided over the
devices.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from timm.data import FastCollateMixup, create_loader
from timm.loss import SoftTargetCrossEntropy
from timm.models import create_model, resume_checkpoint
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import AverageMeter, CheckpointSaver, ModelEmaV3, accuracy, dispatch_clip_grad, random_seed
from torch import nn
from torch.utils.data import Dataset

import ptpathways as pw

SIZE = (3, 32, 32)


class Digits(Dataset[tuple[torch.Tensor, int]]):
    """scikit-learn's digits as images; `create_loader` sets the transform."""

    def __init__(self, *, training: bool) -> None:
        digits = load_digits()
        part = slice(None, 1500) if training else slice(1500, None)
        self.images = (digits.images[part] * 15.9).astype(np.uint8)
        self.targets = digits.target[part]
        self.transform: Any = None

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.fromarray(self.images[index]).resize(SIZE[1:]).convert("RGB")
        return self.transform(image), int(self.targets[index])


class Training:
    def __init__(self, device: torch.device, epochs: int, folder: Path) -> None:
        random_seed(0)
        loading: dict[str, Any] = {"num_workers": 0, "persistent_workers": False, "device": device}
        mixup = FastCollateMixup(mixup_alpha=0.2, cutmix_alpha=0.5, label_smoothing=0.1, num_classes=10)
        self.train = create_loader(
            Digits(training=True), SIZE, 64, is_training=True, hflip=0, color_jitter=0, collate_fn=mixup, **loading
        )
        self.evaluate = create_loader(Digits(training=False), SIZE, 64, **loading)
        self.model = create_model("test_vit", img_size=32, num_classes=10).to(device)
        self.ema = ModelEmaV3(self.model, decay=0.95)
        self.optimizer = create_optimizer_v2(self.model, opt="adamw", lr=2e-3, weight_decay=0.05, layer_decay=0.9)
        self.schedule, _ = create_scheduler_v2(
            self.optimizer,
            sched="cosine",
            num_epochs=epochs,
            warmup_epochs=1,
            step_on_epochs=False,
            updates_per_epoch=len(self.train),
        )
        self.saver = CheckpointSaver(self.model, self.optimizer, model_ema=self.ema, checkpoint_dir=str(folder))
        self.updates = 0

    def epoch(self) -> list[float]:
        """The losses of an epoch."""
        self.model.train()
        criterion, losses = SoftTargetCrossEntropy(), []
        for images, targets in self.train:
            loss = criterion(self.model(images), targets)
            loss.backward()
            dispatch_clip_grad(self.model.parameters(), 1.0, mode="norm")
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.updates += 1
            self.ema.update(self.model, step=self.updates)
            self.schedule.step_update(self.updates)
            losses.append(loss.item())
        return losses

    def validate(self, model: nn.Module) -> float:
        """The share of right answers, in percent."""
        model.eval()
        top1 = AverageMeter()
        with torch.inference_mode():
            for images, targets in self.evaluate:
                (right,) = accuracy(model(images), targets)
                top1.update(right.item(), len(targets))
        return float(top1.avg)


def run(device: torch.device, epochs: int, folder: Path) -> list[float]:
    """The losses, the last epoch of which goes on from a checkpoint, and the accuracies of model and averaged model."""
    first = Training(device, epochs, folder)
    losses = [loss for _ in range(epochs - 1) for loss in first.epoch()]
    first.saver.save_checkpoint(epochs - 2, metric=first.validate(first.model))
    resumed = Training(device, epochs, folder)
    resume_checkpoint(resumed.model, str(folder / "last.pth.tar"), resumed.optimizer)
    resumed.ema.module.load_state_dict(first.ema.module.state_dict())
    resumed.updates = first.updates
    losses += resumed.epoch()
    return [*losses, resumed.validate(resumed.model), resumed.validate(resumed.ema.module)]


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
        found = run(torch.device("cpu" if options.eager else "xla"), options.epochs, Path(folder))
    *losses, accuracy, averaged = found
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; accuracy {accuracy:.1f} %, of averaged weights {averaged:.1f} %")
    if options.losses:
        options.losses.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
