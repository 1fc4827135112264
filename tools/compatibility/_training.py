"""The loop that trains a model of somebody else, in plain PyTorch and on the cluster, and what is measured of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import ptpathways as pw
from tools.compatibility._models import BATCH, Batch, ModelCase

STEPS = 20
WARM_STEPS = 3
"""What is compiled up to here is expected: a warm-up begins with a learning rate of 0, which is a graph of its own."""

Prepare = Callable[..., Any]


@dataclass
class Trained:
    """What a loop did. Losses are those of each step, in order."""

    losses: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    """What each step took of the client's thread, until it had said what to compute."""
    compiled: list[int] = field(default_factory=list)
    """How many computations had been compiled after each step; empty in plain PyTorch."""
    fallbacks: list[str] = field(default_factory=list)
    replays: int = 0
    """How many of the steps were replayed, where they were a captured step."""

    @property
    def recompiles(self) -> int:
        """Compiled after the warm-up."""
        return self.compiled[-1] - self.compiled[WARM_STEPS - 1] if len(self.compiled) > WARM_STEPS else 0

    @property
    def client_ms(self) -> float:
        """The median after the warm-up."""
        return statistics.median(self.milliseconds[WARM_STEPS:] or [0.0])


def unchanged(*things: Any) -> Any:
    """``pw.prepare`` for plain PyTorch."""
    return things[0] if len(things) == 1 else things


def train(
    case: ModelCase,
    prepare: Prepare,
    steps: int = STEPS,
    counters: Counters | None = None,
    shaken: bool = False,
    captured: bool = False,
) -> Trained:
    """Trains from seed 0. The model is made on the CPU, so that both begin with the same weights.

    Args:
        counters: asked after each step; None in plain PyTorch.
        shaken: change the weights by about one rounding first, to see what a loss difference between two right
            implementations is.
        captured: make the step one of ``pw.program``; its schedule steps outside, as docs/capture.md has it.
    """
    torch.manual_seed(0)
    model = case.build().train()
    if shaken:
        _shake(model)
    optimizer = case.optimizer(list(model.parameters()))
    scheduler = _schedule(case, optimizer, steps)
    generator = torch.Generator().manual_seed(1)
    rows = [case.batch(generator) for _ in range(steps)]
    loader = DataLoader(_Rows(rows), batch_size=BATCH)
    model, optimizer, loader = prepare(model, optimizer, loader)
    result = Trained()
    losses: list[Tensor] = []

    def step(batch: Batch) -> Tensor:
        optimizer.zero_grad()
        loss = case.loss(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    run = pw.program(step, kind="step") if captured else step
    for batch in loader:
        start = time.perf_counter()
        loss = run(batch)
        if scheduler is not None:
            scheduler.step()
        result.milliseconds.append((time.perf_counter() - start) * 1e3)
        losses.append(loss.detach())
        if counters is not None:
            result.compiled.append(counters.compiled())
    result.losses = [float(loss) for loss in losses]
    if counters is not None:
        result.fallbacks = counters.fallbacks()
    if isinstance(run, pw.CapturedStep):
        result.replays = run.replays
    return result


def _shake(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            unit = torch.finfo(parameter.dtype).eps
            parameter.mul_(1 + unit * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))


class _Rows(torch.utils.data.Dataset[Batch]):
    """Batches, taken apart again for a ``DataLoader`` to put together, as a loop of a user would have it."""

    def __init__(self, batches: list[Batch]) -> None:
        self._rows = [{name: value[row] for name, value in batch.items()} for batch in batches for row in range(BATCH)]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Batch:
        return self._rows[index]


def _schedule(case: ModelCase, optimizer: torch.optim.Optimizer, steps: int) -> Any:
    if not case.schedule:
        return None
    import transformers

    return transformers.get_scheduler(case.schedule, optimizer, num_warmup_steps=4, num_training_steps=steps + 1)


class Counters:
    """What PyTorch/XLA has counted since this object was made."""

    def __init__(self) -> None:
        import torch_xla

        self._binding = torch_xla._XLAC
        self._compiled = 0
        self._compiled = self.compiled()
        self._fallbacks: dict[str, int] = {}
        self._fallbacks = {name: self._count(name) for name in self._binding._get_executed_fallback_ops()}

    def compiled(self) -> int:
        """How many computations were compiled."""
        data = self._binding._xla_metric_data("CompileTime")
        return int(data[0]) - self._compiled if data else 0

    def fallbacks(self) -> list[str]:
        """Which operations ran on the client; not reading a value, which every loop does that prints its loss."""
        executed = self._binding._get_executed_fallback_ops()
        moved = {name for name in executed if self._count(name) != self._fallbacks.get(name, 0)}
        return sorted(moved - {"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"})

    def _count(self, name: str) -> int:
        return int(self._binding._xla_counter_value(name) or 0)


def difference(eager: list[float], cluster: list[float]) -> float:
    """The largest relative difference of two runs' losses; infinite if one has fewer, or a loss is not a number."""
    if len(eager) != len(cluster) or not eager:
        return float("inf")
    pairs = zip(eager, cluster, strict=True)
    differences = [abs(mine - theirs) / max(abs(theirs), 1e-12) for theirs, mine in pairs]
    return max(number if number == number else float("inf") for number in differences)
