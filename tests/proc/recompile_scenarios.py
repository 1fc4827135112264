"""Loops that are compiled again after warm-up, one per cause, and loops that are not. A program of its own.

    python recompile_scenarios.py DEVICES

Prints one JSON object: for each scenario the warnings and ``pw.recompiles()`` that it added.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import ptpathways as pw


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def batches(rows: Iterable[int], features: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(r, features, generator=generator), torch.randn(r, 1, generator=generator)) for r in rows]


def adamw_with_a_schedule() -> None:
    """Nothing is compiled after step 3, also when metrics are logged."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=40)
    model, optimizer, loader = pw.prepare(model, optimizer, batches([8] * 14))
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        pw.log({"loss": loss}, every=3)
    pw.metrics.flush()


def last_batch_uneven() -> None:
    """Two epochs whose last batch has 4 rows, not 8."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    model, optimizer, loader = pw.prepare(model, optimizer, batches([8, 8, 8, 8, 4]))
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()


def lengths_vary() -> None:
    """A dictionary of sequences, of which two are longer."""
    model = nn.Embedding(10, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    loader = [{"tokens": torch.ones(4, length, dtype=torch.int64)} for length in (16, 16, 16, 16, 24, 24, 16, 24)]
    model, optimizer, loader = pw.prepare(model, optimizer, loader)
    for batch in loader:
        optimizer.zero_grad()
        model(batch["tokens"]).square().mean().backward()
        optimizer.step()


def bucketed_lengths() -> None:
    """As before, but padded to one size."""
    model = nn.Embedding(10, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = [{"tokens": torch.ones(4, length, dtype=torch.int64)} for length in (17, 19, 32, 30, 24, 24, 18, 24)]
    model, optimizer, loader = pw.prepare(model, optimizer, [pw.bucket(batch, mask=True) for batch in loader])
    for batch in loader:
        optimizer.zero_grad()
        (model(batch["tokens"]).square().mean(2) * batch["mask"]).mean().backward()
        optimizer.step()


def type_changes() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = [(x.half() if at == 5 else x, y) for at, (x, y) in enumerate(batches([8] * 7))]
    model, optimizer, loader = pw.prepare(model, optimizer, data)
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(model(x.float()) * 3, y).backward()
        optimizer.step()


def number_becomes_zero() -> None:
    """A weight of the loss that is 0 at first, and 0 again."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    model, optimizer, loader = pw.prepare(model, optimizer, batches([8] * 8))
    for step, (x, y) in enumerate(loader):
        weight = 0.0 if step == 6 else 0.1 + step
        optimizer.zero_grad()
        output = model(x)
        (F.mse_loss(output, y) + weight * output.abs().mean()).backward()
        optimizer.step()


def number_baked_in() -> None:
    """A Python number that PyTorch/XLA always makes part of the computation."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    model, optimizer, loader = pw.prepare(model, optimizer, batches([8] * 6))
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        F.mse_loss(model(x).abs() ** (4.25 if step == 4 else 2.5), y).backward()
        optimizer.step()


def slice_moves() -> None:
    """Two other ranges: the second needs no compile."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    model, optimizer, loader = pw.prepare(model, optimizer, batches([8] * 8, 9))
    for step, (x, y) in enumerate(loader):
        start = {4: 3, 6: 1}.get(step, 2)
        optimizer.zero_grad()
        F.mse_loss(model(x[:, start : start + 6]), y).backward()
        optimizer.step()


def rounds_change() -> None:
    """A loop inside the step takes one more round."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    model, optimizer, loader = pw.prepare(model, optimizer, batches([8] * 6))
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        for _ in range(3 if step == 4 else 2):
            F.mse_loss(model(x), y).backward()
        optimizer.step()


def tensor_kept() -> None:
    """A prediction that is kept at one step only."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    model, optimizer, loader = pw.prepare(model, optimizer, batches([8] * 6))
    kept = []
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        output = model(x)
        if step == 4:
            kept.append(output.detach().sigmoid())
        F.mse_loss(output, y).backward()
        del output
        optimizer.step()


def reads_at_every_step() -> list[float]:
    """``item()`` each step."""
    model = nn.Linear(512, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model, optimizer, loader = pw.prepare(model, optimizer, [torch.ones(256, 512)] * 40)
    losses = []
    for x in loader:
        optimizer.zero_grad()
        output = x
        for _ in range(20):
            output = model(output)
        loss = output.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[:2]


def reads_inside_the_optimizer() -> None:
    """LBFGS asks for values many times per step, each time in front of something else that compiles."""
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-2, max_iter=3, history_size=2)
    model, optimizer, ((x, y),) = pw.prepare(model, optimizer, batches([8]))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(6):
        optimizer.step(closure)


def beyond_the_limit() -> None:
    """One more than ``init`` was told to bear."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    model, optimizer, loader = pw.prepare(model, optimizer, batches([8, 8, 8, 8, 2]))
    for x, y in loader:
        optimizer.zero_grad()
        F.l1_loss(model(x), y).backward()
        optimizer.step()


SCENARIOS: tuple[Callable[[], Any], ...] = (
    adamw_with_a_schedule,
    last_batch_uneven,
    lengths_vary,
    bucketed_lengths,
    type_changes,
    number_becomes_zero,
    number_baked_in,
    slice_moves,
    rounds_change,
    tensor_kept,
    reads_at_every_step,
    reads_inside_the_optimizer,
    beyond_the_limit,
)


def main() -> None:
    only = sys.argv[2:]
    pw.init(hosts=1, devices_per_host=int(sys.argv[1]), recompile_limit=7, recompiles="raise")
    results: dict[str, Any] = {}
    for scenario in SCENARIOS:
        if only and scenario.__name__ not in only:
            continue
        before = len(pw.recompiles())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                scenario()
                error = ""
            except Exception:
                error = traceback.format_exc()
        results[scenario.__name__] = {
            "error": error,
            "recompiles": [dataclasses.asdict(found) for found in pw.recompiles()[before:]],
            "warnings": [
                (warning.category.__name__, str(warning.message), warning.filename == __file__, warning.lineno)
                for warning in caught
            ],
        }
    json.dump(results, sys.stdout)
    print(flush=True)


if __name__ == "__main__":
    main()
