"""Convolutions of all kinds on a device and on the CPU: results and gradients. Prints the largest differences as JSON.

python tests/proc/convolution_scenarios.py HOSTS DEVICES TYPE SEED COUNT
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.proc import kernel_basis

_FORWARD: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}


@dataclass(frozen=True)
class Case:
    """One convolution. ``padded`` pads (or cuts, where negative) its input on each side first."""

    transposed: bool
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    options: dict[str, Any]
    padded: tuple[int, ...]
    channels_last: bool

    def compute(self, *values: Tensor) -> Tensor:
        x, w, b = values
        rank = len(self.inputs) - 2
        if self.padded:
            x = F.pad(x, self.padded)
        if self.channels_last:
            order = [0, rank + 1, *range(1, rank + 1)]
            x = x.movedim(1, -1).contiguous().permute(order)
        function = (_TRANSPOSED if self.transposed else _FORWARD)[rank]
        return function(x, w, b, **self.options)


def cases(seed: int) -> Iterator[Case]:
    """Cases without end, some of which PyTorch refuses."""
    draw = random.Random(seed)
    while True:
        rank = draw.choice((1, 2, 2, 2, 3))
        groups = draw.choice((1, 1, 1, 2, 3, 8))
        transposed = draw.random() < 0.25
        one_in, one_out = (draw.choice((1, 1, 2, 5, 16)) for _ in range(2))
        stride = [draw.choice((1, 1, 2, 3)) for _ in range(rank)]
        options: dict[str, Any] = {
            "stride": stride,
            "padding": [draw.choice((0, 1, 1, 2, 3)) for _ in range(rank)],
            "dilation": [draw.choice((1, 1, 1, 2)) for _ in range(rank)],
            "groups": groups,
        }
        if transposed:
            options["output_padding"] = [draw.randrange(step) for step in stride]
        first, second = (one_in * groups, one_out) if transposed else (one_out * groups, one_in)
        yield Case(
            transposed,
            (draw.choice((1, 2, 5)), one_in * groups, *(draw.randint(3, 11) for _ in range(rank))),
            (first, second, *(draw.choice((1, 2, 3, 3, 5)) for _ in range(rank))),
            options,
            tuple(draw.randint(-1, 2) for _ in range(2 * rank)) if draw.random() < 0.2 else (),
            draw.random() < 0.2,
        )


def _values(case: Case, dtype: torch.dtype, generator: torch.Generator) -> list[Tensor]:
    bias = case.weights[1] * case.options["groups"] if case.transposed else case.weights[0]
    shapes = (case.inputs, case.weights, (bias,))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def _accepted(case: Case, values: list[Tensor]) -> Tensor | None:
    try:
        return case.compute(*values)
    except RuntimeError:
        return None


def drawn(seed: int, dtype: torch.dtype, generator: torch.Generator) -> Iterator[kernel_basis.Drawn]:
    """Those that PyTorch accepts."""
    for case in cases(seed):
        values = _values(case, dtype, generator)
        result = _accepted(case, values)
        if result is not None and result.numel() > 0:
            yield case, values


if __name__ == "__main__":
    kernel_basis.main(drawn, at_once=20)
