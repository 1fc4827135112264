"""Reinforcement learning in one process: a policy is trained on one slice and writes on another.

    python examples/07_trainer_and_generator.py --strategy fsdp --mode off-policy

A byte-level GPT learns to write syllables (GRPO). The generator has a key-value cache and replays one captured step for
each byte. Weights go from worker to worker; off-policy they are one step old, and both slices compute at the same time.
"""

from __future__ import annotations

import argparse
import itertools
from statistics import median
from timeit import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw

BYTES, WIDTH, HEADS, LAYERS, LENGTH, PROMPTS, GROUP, UPDATES, CLIP = 128, 128, 4, 2, 24, 4, 16, 2, 0.2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.qkv, self.project = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm2, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, at: Tensor, cache: Tensor | None) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (HEADS, 3, -1)).permute(3, 0, 2, 1, 4)
        if cache is not None:
            k, v = cache.index_copy_(3, at, torch.stack([k, v]))
        seen = torch.arange(LENGTH, device=x.device) <= at[:, None]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(BYTES, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES)

    def forward(self, tokens: Tensor, at: Tensor | None = None, caches: Any = (None,) * LAYERS) -> Tensor:
        """Log-probabilities of what follows each token; with ``caches`` the only token is at the position ``at``."""
        at = torch.arange(LENGTH, device=tokens.device) if at is None else at
        x = self.token(tokens) + self.position(at)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, at, cache)
        return self.head(self.norm(x)).log_softmax(-1)  # type: ignore[no-any-return]


def tensor_parallel(name: str, tensor: Tensor) -> Any:
    """Each device has some of the heads and of the hidden units, and a copy of everything else."""
    if name.endswith(("qkv.weight", "up.weight", "qkv.bias", "up.bias")):
        return ("model", None)[: tensor.dim()]
    return (None, "model") if name.endswith(("project.weight", "down.weight")) else ()


def reward(text: str) -> float:
    """The share of bytes that are letters, and of neighbours that are a vowel and a consonant."""
    kinds = "".join("v" if byte in "aeiou" else "c" if "a" <= byte <= "z" else " " for byte in text)
    syllables = sum(pair in (("c", "v"), ("v", "c")) for pair in itertools.pairwise(kinds))
    return 0.5 * (1 - kinds.count(" ") / len(kinds)) + 0.5 * syllables / (len(kinds) - 1)


class Generator:
    """A tensor parallel copy of the policy, the texts that it wrote, and the log-probabilities of their bytes."""

    def __init__(self, slice: pw.VirtualSlice) -> None:
        self.device = slice.device
        self.policy = pw.shard(Policy().to(self.device).requires_grad_(False), tensor_parallel)
        empty = torch.zeros(2, PROMPTS * GROUP, HEADS, LENGTH, WIDTH // HEADS)
        self.caches = [pw.shard(empty.to(self.device), (None, None, "model")) for _ in range(LAYERS)]
        self.write_byte = pw.program(self._write_byte)

    def _write_byte(self) -> None:
        """The position is a tensor and no Python number, so that one executable writes every byte."""
        logs = self.policy(self.tokens.index_select(1, self.at), self.at, self.caches)[:, 0]
        chosen = (logs - torch.empty_like(logs).exponential_().log()).argmax(1, keepdim=True)
        self.logs.index_copy_(1, self.at, logs.gather(1, chosen))
        self.at += 1
        self.tokens.index_copy_(1, self.at, chosen)

    def sample(self) -> None:
        prompts = torch.randint(97, 123, (PROMPTS,)).repeat_interleave(GROUP)  # letters
        self.tokens = F.pad(prompts[:, None], (0, LENGTH)).to(self.device)
        self.logs = torch.zeros(len(prompts), LENGTH).to(self.device)
        self.at = torch.zeros(1, dtype=torch.long).to(self.device)
        for _ in range(LENGTH):
            self.write_byte()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["sync", "off-policy"], default="sync")
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp", help="how the trainer's weights lie")
    for name, default in {"steps": 40, "hosts": 2, "devices-per-host": 2, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    cluster = pw.init(hosts=options.hosts, devices_per_host=options.devices_per_host)
    torch.manual_seed(options.seed)
    trainer, writer = (cluster.slice((cluster.device_count // 2,), (axis,)) for axis in ("data", "model"))
    generator, policy = Generator(writer), Policy()
    adam = torch.optim.AdamW(policy.parameters(), lr=1e-3)

    def update(tokens: Tensor, logs: Tensor, advantages: Tensor) -> Tensor:
        adam.zero_grad()
        ratio = torch.exp(policy(tokens[:, :-1]).gather(2, tokens[:, 1:, None])[..., 0] - logs)
        loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
        loss.backward()
        adam.step()
        return loss

    policy, adam, update = pw.prepare(policy, adam, update, slice=trainer, strategy=options.strategy, capture=True)
    send_weights = pw.program(lambda: generator.policy.load_state_dict(policy.state_dict()))
    send_weights()
    generator.sample()
    order = (send_weights, generator.sample) if options.mode == "sync" else (generator.sample, send_weights)
    show = pw.metrics.Callback(lambda step, found: print(step, {name: round(found[name], 3) for name in found}))
    pw.metrics.to(show, every=1)  # prints when the values are there; the loop does not wait for them
    for _ in range(options.steps):
        texts = [bytes(text).decode() for text in generator.tokens.tolist()]
        rewards = torch.tensor([reward(text) for text in texts]).view(PROMPTS, GROUP)
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        given = [tensor.to(trainer.device) for tensor in (generator.tokens, generator.logs, advantages.view(-1, 1))]
        for _ in range(UPDATES):
            loss = update(*given)
        for do in order:
            do()
        pw.log({"reward": rewards.mean(), "loss": loss})
    pw.metrics.flush()
    print("it writes:", *texts[::GROUP])
    weights = zip(policy.parameters(), generator.policy.parameters(), strict=True)
    print("the generator has the trainer's weights:", all(torch.equal(a.cpu(), b.cpu()) for a, b in weights))
    plain = torch.zeros(sum(weight.numel() for weight in policy.parameters())).to(pw.device(trainer.devices[0]))
    sent, copied = (
        1e3 * median(repeat("work(); wait()", number=1, repeat=15, globals={"work": work, "wait": pw.wait}))
        for work in (send_weights, lambda: plain.to(pw.device(writer.devices[0])))
    )
    print(f"{plain.nbytes / 1e6:.1f} MB of weights: {sent:.2f} ms, {100 * copied / sent:.0f}% of the link: latency")


if __name__ == "__main__":
    main()
