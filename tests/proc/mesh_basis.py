"""What the loops on slices share: a transformer, and batches of tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS, BATCH, LENGTH, WORDS, WIDTH, HEADS = 20, 8, 6, 32, 16, 4
Batches = list[tuple[Tensor, Tensor]]


class Block(nn.Module):
    """A transformer block on (batch, length, WIDTH): attention, then a hidden layer, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        # A bias of the keys changes nothing after the softmax: its gradient is rounding, which AdamW would follow.
        self.query, self.key, self.value, self.merge = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        query, key, value = (
            layer(y).unflatten(2, (HEADS, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        weights = (query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5).softmax(3)
        x = x + self.merge((weights @ value).transpose(1, 2).flatten(2))
        hidden: Tensor = self.down(F.gelu(self.up(x)))
        return x + hidden


class Net(nn.Module):
    """Tokens (batch, length) to logits (batch, length, WORDS)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.block = Block()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.block(self.embedding(tokens)))
        return logits


def batches(count: int = STEPS, rows: int = BATCH) -> Batches:
    generator = torch.Generator().manual_seed(1)
    tokens = [torch.randint(0, WORDS, (rows, LENGTH), generator=generator) for _ in range(count)]
    return [(x, (x * 5 + 3) % WORDS) for x in tokens]
