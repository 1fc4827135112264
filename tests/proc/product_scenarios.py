"""Products of matrices of all kinds on a device and on the CPU: results and gradients. Prints the largest difference.

python tests/proc/product_scenarios.py HOSTS DEVICES TYPE SEED COUNT
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.proc import kernel_basis


@dataclass(frozen=True)
class Case:
    """A product by ``torch.einsum``, of operands that are stored in the order of the letters in ``stored``."""

    equation: str
    stored: tuple[str, str]
    sizes: tuple[tuple[str, int], ...]

    def shapes(self) -> list[list[int]]:
        sizes = dict(self.sizes)
        return [[sizes[letter] for letter in letters] for letters in self.stored]

    def compute(self, *values: Tensor) -> Tensor:
        operands = self.equation.split("->")[0].split(",")
        seen = [
            value.permute([stored.index(letter) for letter in letters])
            for value, stored, letters in zip(values, self.stored, operands, strict=True)
        ]
        return torch.einsum(self.equation, *seen)


def cases(seed: int) -> Iterator[Case]:
    """Cases without end: with and without a batch, one or two dimensions each of rows, columns and contracted ones."""
    draw = random.Random(seed)

    def letters(of: str, least: int) -> str:
        return of[: draw.randint(least, len(of))]

    def shuffled(of: str) -> str:
        return "".join(draw.sample(of, len(of)))

    while True:
        batch, inner, rows, columns = letters("ab", 0), letters("kl", 1), letters("mn", 0), letters("xy", 0)
        left, right, result = (
            shuffled(part) for part in (batch + rows + inner, batch + inner + columns, batch + rows + columns)
        )
        sizes = {letter: draw.choice((1, 3, 8, 17, 40)) for letter in inner + rows + columns}
        sizes |= {letter: draw.choice((1, 2, 5)) for letter in batch}
        stored = (
            left if draw.random() < 0.5 else shuffled(left),
            right if draw.random() < 0.5 else shuffled(right),
        )
        yield Case(f"{left},{right}->{result}", stored, tuple(sizes.items()))


def drawn(seed: int, dtype: torch.dtype, generator: torch.Generator) -> Iterator[kernel_basis.Drawn]:
    for case in cases(seed):
        yield case, [torch.randn(shape, generator=generator).to(dtype) for shape in case.shapes()]


if __name__ == "__main__":
    kernel_basis.main(drawn, at_once=10)
