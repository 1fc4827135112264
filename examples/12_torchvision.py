"""torchvision as its reference scripts use it, with data of Hugging Face's `datasets` and metrics of `torchmetrics`.

    python examples/12_torchvision.py             # 2 hosts with 2 CPU devices each
    USE_TORCH_XLA=0 python examples/12_torchvision.py --eager     # the same program on the CPU

Transforms, CutMix and MixUp, no decay for norms and biases, warm-up and cosine, averaged weights. Two lines are of
ptpathways: the import and `pw.init`. The device is PyTorch's `xla`, and a batch is divided over the devices.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, Image
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, default_collate
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from torchvision.models import VisionTransformer
from torchvision.transforms import v2

import ptpathways as pw

SIZE = 32


def load(transform: v2.Transform) -> Any:
    """scikit-learn's digits as a dataset of images, split and transformed when read."""
    digits = load_digits()
    features = Features({"image": Image(), "label": ClassLabel(num_classes=10)})
    images = [np.stack([image] * 3, axis=-1) for image in (digits.images * 15.9).astype(np.uint8)]
    whole = Dataset.from_dict({"image": images, "label": digits.target}, features=features)

    def read(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {**rows, "image": [transform(image) for image in rows["image"]]}

    return whole.train_test_split(test_size=0.2, seed=0).with_transform(read)


def batches(rows: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    together = default_collate(rows)
    return together["image"], together["label"]


def without_decay(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Two groups of parameters: matrices, and the norms and biases, which do not decay."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


def train(device: torch.device, epochs: int) -> list[float]:
    """The losses, then accuracy and F1 score of the model and of its averaged weights."""
    torch.manual_seed(0)
    np.random.seed(0)
    resize = v2.Compose([v2.PILToTensor(), v2.Resize(SIZE), v2.ToDtype(torch.float32, scale=True)])
    data = load(v2.Compose([resize, v2.RandomCrop(SIZE, padding=2), v2.Normalize([0.3] * 3, [0.3] * 3)]))
    mix = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=10), v2.CutMix(num_classes=10)])
    training = DataLoader(data["train"], 64, shuffle=True, drop_last=True, collate_fn=lambda rows: mix(*batches(rows)))
    testing = DataLoader(data["test"], 64, collate_fn=batches)

    model = VisionTransformer(SIZE, 8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10).to(device)
    averaged = AveragedModel(model, device=device, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(without_decay(model, 0.05), lr=3e-3)
    warmup, rest = LinearLR(optimizer, 0.3, total_iters=1), CosineAnnealingLR(optimizer, max(1, epochs - 1))
    schedule = SequentialLR(optimizer, [warmup, rest], [1])
    losses = []
    for _ in range(epochs):
        for images, targets in training:
            loss = criterion(model(images.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            averaged.update_parameters(model)
            losses.append(loss.item())
        schedule.step()
    return [*losses, *evaluate(model, testing, device), *evaluate(averaged, testing, device)]


def evaluate(model: nn.Module, testing: DataLoader[Any], device: torch.device) -> list[float]:
    metrics = MetricCollection([MulticlassAccuracy(10), MulticlassF1Score(10)]).to(device)
    model.eval()
    with torch.inference_mode():
        for images, targets in testing:
            metrics.update(model(images.to(device)), targets.to(device))
    model.train()
    return [float(value) for value in metrics.compute().values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eager", action="store_true", help="without ptpathways")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--devices-per-host", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--losses", type=Path, help="a JSON file to write the losses to")
    options = parser.parse_args()
    if not options.eager:
        pw.init(hosts=options.hosts, devices_per_host=options.devices_per_host)
    found = train(torch.device("cpu" if options.eager else "xla"), options.epochs)
    *losses, accuracy, f1, averaged, _ = found
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; accuracy {accuracy:.3f}, F1 {f1:.3f}; averaged {averaged:.3f}")
    if options.losses:
        options.losses.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
