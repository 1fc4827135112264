"""A small GPT whose program cuts its batches itself and knows no loader, as many a training script does.

    python examples/13_own_batches.py             # 2 hosts with 2 CPU devices each
    USE_TORCH_XLA=0 python examples/13_own_batches.py --eager     # the same program on the CPU

Two lines are of ptpathways: the import and `pw.init`. The device is PyTorch's `xla`, and each batch is divided over the
devices without being told. The program has what such programs have: random pieces of a file of tokens, weights that
are tied, two groups of parameters, a rate that is set at each step, accumulated and clipped gradients, losses that are
estimated on both parts of the text, and a checkpoint from which a second run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw

CONTEXT, WIDTH, HEADS, LAYERS, VOCABULARY = 32, 64, 4, 2, 256
BATCH, ACCUMULATED = 16, 2
RATE, WARM_UP = 3e-3, 4
EVALUATE_EVERY, EVALUATED = 8, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, bias=False) for _ in range(2))
        self.attention = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.size()
        parts = self.attention(self.norms[0](x)).split(WIDTH, dim=2)
        q, k, v = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).contiguous().view(batch, length, WIDTH))
        output: Tensor = x + self.mlp(self.norms[1](x))
        return output


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.tokens.weight = self.head.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (batch, time) to logits (batch, time, VOCABULARY) and their loss."""
        x = self.tokens(inputs) + self.places(torch.arange(inputs.size(1), device=inputs.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), ignore_index=-1)


class Training:
    """From the beginning, or from ``checkpoint``."""

    def __init__(self, device: torch.device, steps: int, folder: Path, checkpoint: Any = None) -> None:
        torch.manual_seed(1337)
        self.device, self.steps, self.folder = device, steps, folder
        self.model = Transformer()
        if checkpoint:
            self.model.load_state_dict(checkpoint["model"])
        self.model.to(device)
        named = dict(self.model.named_parameters())
        groups = [
            {"params": [one for one in named.values() if one.dim() >= 2], "weight_decay": 0.1},
            {"params": [one for one in named.values() if one.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
        self.step = 0
        if checkpoint:
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            self.step = checkpoint["step"]

    def get_batch(self, split: str) -> tuple[Tensor, Tensor]:
        """Tokens (BATCH, CONTEXT) and those that follow them."""
        data = np.memmap(self.folder / f"{split}.bin", dtype=np.uint16, mode="r")
        starts = torch.randint(len(data) - CONTEXT, (BATCH,))
        inputs = torch.stack([torch.from_numpy(data[at : at + CONTEXT].astype(np.int64)) for at in starts])
        targets = torch.stack([torch.from_numpy(data[at + 1 : at + 1 + CONTEXT].astype(np.int64)) for at in starts])
        return inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)

    def rate(self) -> float:
        if self.step < WARM_UP:
            return RATE * (self.step + 1) / (WARM_UP + 1)
        done = (self.step - WARM_UP) / max(1, self.steps - WARM_UP)
        return RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))

    @torch.no_grad()
    def estimate_loss(self) -> list[float]:
        found = []
        self.model.eval()
        for split in ("train", "val"):
            losses = torch.zeros(EVALUATED)
            for number in range(EVALUATED):
                _, loss = self.model(*self.get_batch(split))
                losses[number] = loss.item()
            found.append(losses.mean().item())
        self.model.train()
        return found

    def run(self, until: int) -> list[float]:
        """The losses of the steps, with the estimates between."""
        found = []
        inputs, targets = self.get_batch("train")
        while self.step < until:
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate()
            if self.step % EVALUATE_EVERY == 0:
                found += self.estimate_loss()
            for _ in range(ACCUMULATED):
                _, loss = self.model(inputs, targets)
                loss = loss / ACCUMULATED
                inputs, targets = self.get_batch("train")  # while the devices compute
                loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            found.append(loss.item() * ACCUMULATED)
            self.step += 1
        return found

    def save(self) -> Path:
        path = self.folder / "checkpoint.pt"
        kept = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        torch.save(kept, path)
        return path


def write_tokens(folder: Path) -> None:
    """The language reference that every Python brings along, a byte a token."""
    data = np.frombuffer("".join(topics.values()).encode(), np.uint8).astype(np.uint16)
    cut = len(data) * 9 // 10
    data[:cut].tofile(folder / "train.bin")
    data[cut:].tofile(folder / "val.bin")


def run(device: torch.device, steps: int, folder: Path) -> list[float]:
    write_tokens(folder)
    first = Training(device, steps, folder)
    losses = first.run(steps // 2)
    second = Training(device, steps, folder, torch.load(first.save(), map_location="cpu"))
    return losses + second.run(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eager", action="store_true", help="without ptpathways")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--devices-per-host", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--losses", type=Path, help="a JSON file to write the losses to")
    options = parser.parse_args()
    if not options.eager:
        pw.init(hosts=options.hosts, devices_per_host=options.devices_per_host)
    with tempfile.TemporaryDirectory() as folder:
        losses = run(torch.device("cpu" if options.eager else "xla"), options.steps, Path(folder))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    if options.losses:
        options.losses.write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
