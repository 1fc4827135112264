"""What the tests of kernels share: results and gradients of many cases on a device, compared with the CPU's."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

import ptpathways as pw


class Case(Protocol):
    """Something that a kernel computes."""

    def compute(self, *values: Tensor) -> Tensor: ...


Drawn = tuple[Case, list[Tensor]]
"""A case and what it is given."""


def _results(case: Case, values: list[Tensor], along: Tensor) -> list[Tensor]:
    inputs = [value.detach().requires_grad_() for value in values]
    result = case.compute(*inputs)
    return [result.detach(), *torch.autograd.grad(result, inputs, along)]


def compare(device: torch.device, cases: Iterator[Drawn], generator: torch.Generator, count: int, at_once: int) -> Any:
    """The largest difference of any of ``count`` cases, and of which.

    It is relative to the largest sum of magnitudes, as rounding is when the terms of a sum cancel each other.

    Args:
        at_once: cases in one computation, because most of the time goes into compiling.
    """
    worst, of, done = 0.0, "", 0
    while done < count:
        batch = []
        for _ in range(min(at_once, count - done)):
            case, values = next(cases)
            result = case.compute(*values)
            batch.append((case, values, torch.randn(result.shape, generator=generator).to(result.dtype)))
        # Other work in the same computation: without it XLA keeps its own kernels (docs/kernels.md).
        other = torch.ones(10_000, device=device) * 3 - 1
        there = [_results(case, [value.to(device) for value in values], g.to(device)) for case, values, g in batch]
        fetched = [[result.cpu() for result in results] for results in there]
        assert bool((other == 2).all())
        for (case, values, along), found in zip(batch, fetched, strict=True):
            expected = _results(case, [value.double() for value in values], along.double())
            scales = _results(case, [value.double().abs() for value in values], along.double().abs())
            for mine, right, scale in zip(found, expected, scales, strict=True):
                difference = ((mine.double() - right).abs().max() / scale.max().clamp(min=1e-3)).item()
                assert mine.dtype == along.dtype and mine.shape == right.shape
                if not difference <= worst:
                    worst, of = difference, str(case)
        done += len(batch)
    return {"worst": worst, "of": of, "done": done}


def main(draw: Callable[[int, torch.dtype, torch.Generator], Iterator[Drawn]], at_once: int) -> None:
    """The program ``... HOSTS DEVICES TYPE SEED COUNT``; prints what ``compare`` gives as JSON."""
    hosts, devices, dtype, seed, count = sys.argv[1:]
    warnings.simplefilter("ignore")
    pw.init(hosts=int(hosts), devices_per_host=int(devices))
    generator = torch.Generator().manual_seed(int(seed))
    drawn = draw(int(seed), getattr(torch, dtype), generator)
    print(json.dumps(compare(pw.device(), drawn, generator, int(count), at_once)))
