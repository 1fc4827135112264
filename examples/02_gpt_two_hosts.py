"""A small GPT whose halves live on two hosts; activations and gradients go from worker to worker.

    python examples/02_gpt_two_hosts.py            # two worker processes with one CPU device each
    python examples/02_gpt_two_hosts.py --eager    # the same program without ptpathways: same seed, data and losses

It learns to write, byte by byte, like the language reference that every Python brings along (`help("topics")`), and
prints a sample at the end. Four layers, 128 wide, no dropout.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from pydoc_data.topics import topics

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw

VOCABULARY = 256
WIDTH = 128
HEADS = 4
CONTEXT = 64


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


class FirstHalf(nn.Module):
    """Bytes (batch, time) to activations (batch, time, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.register_buffer("places", torch.arange(CONTEXT), persistent=False)
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.blocks(self.token(tokens) + self.position(self.places))
        return x


class SecondHalf(nn.Module):
    """Activations (batch, time, WIDTH) to logits (batch, time, VOCABULARY)."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def load_text() -> Tensor:
    """The language reference as one row of bytes."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()


def draw_batch(text: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """``size`` random pieces of the text, and the same pieces one byte later: (size, CONTEXT) each."""
    starts = torch.randint(len(text) - CONTEXT, (size,), generator=generator)
    pieces = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])
    return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()


class Model:
    """The two halves on their devices; on the CPU both are in one place and the transfer is nothing."""

    def __init__(self, eager: bool) -> None:
        self.eager = eager
        self.devices = [torch.device("cpu")] * 2 if eager else [pw.device(0), pw.device(1)]
        torch.manual_seed(0)  # the weights are made on the CPU, so they are the same either way
        self.first, self.second = FirstHalf().to(self.devices[0]), SecondHalf().to(self.devices[1])

    def __call__(self, tokens: Tensor) -> Tensor:
        x = self.first(tokens.to(self.devices[0]))
        if not self.eager:
            x = pw.transfer(x, self.devices[1])
        logits: Tensor = self.second(x)
        return logits

    def parameters(self) -> list[nn.Parameter]:
        return [*self.first.parameters(), *self.second.parameters()]


@torch.no_grad()
def write(model: Model, prompt: str, length: int) -> str:
    """The prompt and ``length`` bytes that the model thinks come next; every byte waits for the devices."""
    generator = torch.Generator().manual_seed(1)
    written = list(prompt.encode())
    for _ in range(length):
        window = written[-CONTEXT:]
        tokens = torch.tensor([window + [0] * (CONTEXT - len(window))])
        logits = model(tokens)[0].cpu()[len(window) - 1]
        weights = torch.softmax(logits / 0.7, 0)
        written.append(int(torch.multinomial(weights, 1, generator=generator)))
    return bytes(written).decode(errors="replace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eager", action="store_true", help="plain PyTorch on this process's CPU")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--sample", type=int, default=200, help="bytes to write at the end")
    parser.add_argument("--losses", type=Path, help="write every step's loss to this JSON file")
    arguments = parser.parse_args()

    if not arguments.eager:
        cluster = pw.init(hosts=2, devices_per_host=1)
        print(f"cluster {cluster.name}: {cluster.device_count} devices on {len(cluster.hosts)} host(s)")
    model = Model(arguments.eager)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
    text = load_text()
    generator = torch.Generator().manual_seed(2)

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
        bar = progress.add_task("training", total=arguments.steps, loss="-")
        start = time.perf_counter()
        for step in range(1, arguments.steps + 1):
            tokens, targets = draw_batch(text, arguments.batch_size, generator)
            optimizer.zero_grad()
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.to(model.devices[1]).flatten())
            loss.backward()
            optimizer.step()
            pending.append(loss.detach())
            if not arguments.eager:
                pw.step()
            if step % 20 == 0 or step == arguments.steps:  # the only place that waits
                losses += torch.stack(pending).tolist()
                pending.clear()
                progress.update(bar, loss=f"{losses[-1]:.3f}")
            progress.advance(bar)
        seconds = time.perf_counter() - start

    print(f"{arguments.steps / seconds:.2f} steps/s; loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
    if not arguments.eager:
        waits = pw.wait_stats()
        print(f"the client waited {waits.seconds:.1f} s of {seconds:.1f} s, {waits.count} times")
    if arguments.losses is not None:
        arguments.losses.write_text(json.dumps(losses))
    if arguments.sample:
        print("-" * 60)
        print(write(model, "The statement ", arguments.sample))


if __name__ == "__main__":
    main()
