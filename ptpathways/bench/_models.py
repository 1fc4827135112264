"""The models that ``step``, ``train`` and ``data-parallel`` train, as plain PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY = 256
CONTEXT = 64
BATCH = 16


@dataclass(frozen=True, slots=True)
class GptShape:
    """Of a ``Gpt``."""

    layers: int = 4
    width: int = 128
    heads: int = 4


SMALL = GptShape()


class DigitNet(nn.Module):
    """Images (batch, 1, 8, 8) to logits (batch, 10), both float32, by two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.hidden = nn.Linear(64 * 4 * 4, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.conv1(images))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        logits: Tensor = self.out(F.relu(self.hidden(x.flatten(1))))
        return logits


class Block(nn.Module):
    """Pre-norm attention and MLP on (batch, time, width) float32."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, time_steps, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, time_steps, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, time_steps, width))
        output: Tensor = x + self.mlp(self.norm2(x))
        return output


class Gpt(nn.Module):
    """Bytes (batch, CONTEXT) int64 to logits (batch, CONTEXT, VOCABULARY) float32."""

    places: Tensor

    def __init__(self, shape: GptShape = SMALL) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, shape.width)
        self.position = nn.Embedding(CONTEXT, shape.width)
        self.register_buffer("places", torch.arange(CONTEXT), persistent=False)
        self.blocks = nn.Sequential(*(Block(shape.width, shape.heads) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.blocks(self.token(tokens) + self.position(self.places))))
        return logits
