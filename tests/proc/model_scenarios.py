"""Models of public libraries, trained in plain PyTorch and on two devices; operations that their layers need.

A program of its own: one process, one use. Prints one JSON object: for each name the two runs, or the error.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

import ptpathways as pw
from ptpathways import frontend
from tools import compatibility

STEPS = 8


def truths(place: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """``all`` and ``any`` of divided tensors, over all dimensions and over one."""
    generator = torch.Generator().manual_seed(0)
    for kind, share in itertools.product((torch.bool, torch.int64, torch.float32, torch.uint8), (0.0, 0.5, 1.0)):
        values = place((torch.rand((8, 4), generator=generator) < share).to(kind))
        yield from (values.all(), values.any(), values.all(dim=0), values.any(dim=1, keepdim=True))
        yield torch.any(values, dim=(0, 1))
    yield from (place(torch.tensor(2.0)).all(), place(torch.zeros(0, 3)).all(), place(torch.zeros(0, 3)).any(dim=0))


def histograms(place: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """``histc`` with bounds, without, with one value only, with some outside; of integers where torch has floats."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(64, generator=generator)
    yield torch.histc(place(normal), 10, -1, 1)
    yield torch.histc(place(normal), 7)
    yield torch.histc(place(torch.full((8,), 3.0)), 4)
    numbers = torch.randint(0, 6, (32,), generator=generator)
    here = place(numbers)
    yield torch.histc(here if here.device.type == "xla" else numbers.float(), 4, 0, 3).float()


def grouped_products(place: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """``torch._grouped_mm`` with an empty group and rows of no group, its gradients, and its other two forms."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return place(torch.randn(*shape, generator=generator))

    rows, matrices, gradient = random(8, 8), random(3, 8, 4), random(8, 4)
    rows.requires_grad_()
    matrices.requires_grad_()
    ends = place(torch.tensor([3, 3, 8], dtype=torch.int32))
    product = torch._grouped_mm(rows, matrices, offs=ends)
    (product * gradient).sum().backward()
    assert rows.grad is not None and matrices.grad is not None
    yield from (product.detach(), rows.grad, matrices.grad)
    yield torch._grouped_mm(random(3, 4, 8), random(8, 8), offs=ends)
    yield torch._grouped_mm(random(3, 4, 8), random(3, 8, 8))


OPERATIONS = (truths, histograms, grouped_products)


def compare(operation: Callable[[Callable[[Tensor], Tensor]], Iterator[Tensor]]) -> dict[str, Any]:
    """The values of ``operation`` here and there, each with its type, and what was computed on the client."""
    plain = [(str(value.dtype), value.tolist()) for value in operation(lambda value: value)]
    counters = compatibility.Counters()
    layout = frontend.batch_layout()
    values = list(operation(lambda value: frontend.upload([value], layout)[0]))
    pw.step()  # One computation for all of them.
    there = [(str(value.dtype), value.cpu().tolist()) for value in values]
    return {"eager": plain, "cluster": there, "fallbacks": counters.fallbacks()}


def main(names: Sequence[str]) -> None:
    """Prints what came out for each of these models and operations, as JSON by name."""
    pw.init(hosts=1, devices_per_host=2)
    results: dict[str, Any] = {}
    for case in compatibility.SMALL:
        if case.key not in names:
            continue
        try:
            eager = compatibility.train(case, compatibility.unchanged, STEPS)
            cluster = compatibility.train(case, pw.prepare, STEPS, compatibility.Counters())
            captured = compatibility.train(case, pw.prepare, STEPS, captured=True)
            results[case.key] = {
                "captured_difference": compatibility.difference(eager.losses, captured.losses),
                "captured_replays": captured.replays,
                "difference": compatibility.difference(eager.losses, cluster.losses),
                "recompiles": cluster.recompiles,
                **dataclasses.asdict(cluster),
            }
        except Exception:
            results[case.key] = {"error": traceback.format_exc()}
    for operation in OPERATIONS:
        if operation.__name__ not in names:
            continue
        try:
            results[operation.__name__] = compare(operation)
        except Exception:
            results[operation.__name__] = {"error": traceback.format_exc()}
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
