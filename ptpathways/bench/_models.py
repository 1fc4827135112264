"""The models that ``step`` and ``data-parallel`` train: those of the examples, as plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY = 256
WIDTH = 128
HEADS = 4
CONTEXT = 64
LAYERS = 4
BATCH = 16


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
    """Pre-norm attention and MLP on (batch, time, WIDTH) float32."""

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
    """Bytes (batch, CONTEXT) int64 to logits (batch, CONTEXT, VOCABULARY) float32."""

    places: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.register_buffer("places", torch.arange(CONTEXT), persistent=False)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.blocks(self.token(tokens) + self.position(self.places))))
        return logits
