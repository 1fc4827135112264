"""A small GPT in four stages on four slices of two devices each, trained with 1F1B as one program per step.

    python examples/06_pipeline_gpt.py            # four worker processes with two CPU devices each
    python examples/06_pipeline_gpt.py --eager    # the same program without ptpathways: same seed, data and losses
    python examples/06_pipeline_gpt.py --plan plan.svg   # also draws the schedule

The model is plain PyTorch, with the embedding's weights used once more by the head. Five lines are the pipeline's: the
import and those under `else:`. It learns to write like the language reference that every Python brings along.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw

VOCABULARY = 256
WIDTH = 64
HEADS = 4
CONTEXT = 32
LAYERS = 8


class Block(nn.Module):
    """Pre-norm attention and MLP on (batch, time, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        batch, time_steps, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, time_steps, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, time_steps, WIDTH))
        output: Tensor = x + self.mlp(self.norm2(x))
        return output


class Gpt(nn.Module):
    """Bytes (batch, CONTEXT) to logits (batch, CONTEXT, VOCABULARY)."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.token.weight, std=0.02)
        self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(CONTEXT))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_text() -> Tensor:
    """The language reference as one row of bytes."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()


def draw_batch(text: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """``size`` random pieces of the text, and the same pieces one byte later: (size, CONTEXT) each."""
    starts = torch.randint(len(text) - CONTEXT, (size,), generator=generator)
    pieces = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])
    return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eager", action="store_true", help="plain PyTorch on this process's CPU")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--losses", type=Path, help="write every step's loss to this JSON file")
    parser.add_argument("--plan", type=Path, help="draw the planned schedule to this SVG file")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = Gpt()
    text, generator = load_text(), torch.Generator().manual_seed(2)

    def make_optimizer(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)  # type: ignore[arg-type]

    if arguments.eager:
        optimizer = make_optimizer(model.parameters())
    else:
        pw.init(hosts=4, devices_per_host=2)
        pipe = pw.pipeline(model, stages=4, microbatches=8, loss=loss_of, optimizer=make_optimizer)
        optimizer = pipe.optimizer
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)

    pending: list[Tensor | pw.Future] = []
    start = time.perf_counter()
    for _ in range(arguments.steps):
        tokens, targets = draw_batch(text, arguments.batch_size, generator)
        if arguments.eager:
            optimizer.zero_grad()
            loss = loss_of(model(tokens), targets)
            loss.backward()
            optimizer.step()
            pending.append(loss.detach())
        else:
            pending.append(pipe.step(tokens, targets))
        scheduler.step()
    losses = [float(loss) for loss in pending]  # the only place that waits
    seconds = time.perf_counter() - start

    print(f"{arguments.steps / seconds:.2f} steps/s; loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
    if not arguments.eager:
        print(pipe.plan())
        for number, names in enumerate(pipe.stages()):
            print(f"stage {number}: {len(names)} parameters, {names[0]} to {names[-1]}")
        if arguments.plan is not None:
            pipe.plan().svg(arguments.plan)
    if arguments.losses is not None:
        arguments.losses.write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
