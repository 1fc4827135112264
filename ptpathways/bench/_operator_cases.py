"""The operators that ``operators`` times: convolutions with their gradients, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

PASSES = ("forward", "input gradient", "weight gradient")


@dataclass(frozen=True, slots=True)
class Convolution:
    """A 2D convolution of square images with square windows; padding keeps the size, at stride 1."""

    batch: int
    channels: int
    size: int
    out: int
    window: int
    groups: int = 1
    stride: int = 1

    def arguments(self, which: str) -> list[Tensor]:
        x = torch.randn(self.batch, self.channels, self.size, self.size)
        w = torch.randn(self.out, self.channels // self.groups, self.window, self.window)
        if which == PASSES[0]:
            return [x, w]
        return [torch.randn_like(self.function(PASSES[0])(x, w)), x, w]

    def function(self, which: str) -> Callable[..., Tensor]:
        padding = self.window // 2
        if which == PASSES[0]:
            return lambda x, w: F.conv2d(x, w, stride=self.stride, padding=padding, groups=self.groups)
        wanted = [which == PASSES[1], which == PASSES[2], False]

        def gradient(g: Tensor, x: Tensor, w: Tensor) -> Tensor:
            along = torch.ops.aten.convolution_backward(
                g, x, w, None, [self.stride] * 2, [padding] * 2, [1, 1], False, [0, 0], self.groups, wanted
            )
            result: Tensor = along[wanted.index(True)]
            return result

        return gradient


@dataclass(frozen=True, slots=True)
class Product:
    """``batch`` products of (rows, inner) and (inner, columns)."""

    batch: int
    rows: int
    inner: int
    columns: int

    def arguments(self, which: str) -> list[Tensor]:
        return [
            torch.randn(self.batch, self.rows, self.inner),
            torch.randn(self.batch, self.inner, self.columns),
        ]

    def function(self, which: str) -> Callable[..., Tensor]:
        return lambda a, b: torch.bmm(a, b)


CONVOLUTIONS = {
    "dense 3x3, 64 of 16x16": Convolution(8, 64, 16, 64, 3),
    "dense 3x3, 256 of 14x14": Convolution(8, 256, 14, 256, 3),
    "dense 3x3 by 2, 128 of 28x28": Convolution(8, 128, 28, 256, 3, stride=2),
    "dense 1x1, 256 of 14x14": Convolution(8, 256, 14, 512, 1),
    "dense 7x7 by 2, 3 of 112x112": Convolution(8, 3, 112, 64, 7, stride=2),
    "8 groups 3x3, 64 of 16x16": Convolution(8, 64, 16, 64, 3, groups=8),
    "depthwise 3x3, 64 of 16x16": Convolution(8, 64, 16, 64, 3, groups=64),
    "depthwise 3x3 by 2, 96 of 56x56": Convolution(8, 96, 56, 96, 3, groups=96, stride=2),
    "depthwise 7x7, 96 of 28x28": Convolution(8, 96, 28, 96, 7, groups=96),
}
PRODUCTS = {
    "512x768 by 768x3072": Product(1, 512, 768, 3072),
    "48 of 64x64 by 64x64": Product(48, 64, 64, 64),
}


def cases() -> list[tuple[str, str]]:
    """Every operator as a name and one of its passes."""
    passes = [(name, which) for name in CONVOLUTIONS for which in PASSES]
    return passes + [(name, PASSES[0]) for name in PRODUCTS]


def operator(name: str) -> Convolution | Product:
    """The one of that name."""
    return CONVOLUTIONS[name] if name in CONVOLUTIONS else PRODUCTS[name]
