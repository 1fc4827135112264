"""Models that the pipelines' scenarios train: what users have, in small."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY = 32


class Block(nn.Module):
    """Pre-norm attention and MLP, with dropout."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, 2, width // 2).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.drop(self.project(mixed.transpose(1, 2).reshape(batch, length, width)))
        made: Tensor = x + self.drop(self.mlp(self.norm2(x)))
        return made


class Gpt(nn.Module):
    """Embeddings, blocks, head; the head's weights are the embedding's, if ``tied``."""

    def __init__(self, layers: int = 4, width: int = 16, *, tied: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        if tied:
            nn.init.normal_(self.token.weight, std=0.1)
            self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class GptWithLoss(Gpt):
    """As language models of libraries: called with the targets, it gives the loss."""

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        logits = super().forward(tokens)
        return logits if targets is None else language_loss(logits, targets)


def language_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def language_batch(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(VOCABULARY, (size, 9), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class Skips(nn.Module):
    """Values skip over stages, like a U-Net's, and a scale made before the first block is used by all."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.enter = nn.Linear(4, width)
        self.scale = nn.Linear(4, width)
        self.down = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(3))
        self.up = nn.ModuleList(nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(inplace=True)) for _ in range(3))
        self.leave = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.sigmoid(self.scale(x))
        x = self.enter(x)
        kept = []
        for block in self.down:
            x = block(x) * scale
            kept.append(x)
        for block in self.up:
            x = block(torch.cat([x, kept.pop()], 1)) * scale
        made: Tensor = self.leave(x)
        return made


def perceptron(depth: int = 4) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(4, 16)]
    for _ in range(depth - 2):
        layers += [nn.ReLU(inplace=True), nn.Linear(16, 16)]
    return nn.Sequential(*layers, nn.Tanh(), nn.Linear(16, 1))


def regression_batch(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(size, 4, generator=generator)
    return x, x.square().sum(1, keepdim=True)
