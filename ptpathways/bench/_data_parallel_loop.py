"""The training loop of ``data-parallel``, the same for every system: what differs is how model, optimizer and batches
were prepared, and which part of a batch this process sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from ptpathways.bench._models import BATCH, CONTEXT, VOCABULARY, DigitNet, Gpt

SAMPLES_PER_HOST = {"digits": 32, "gpt": BATCH}
"""Of a step, by the model's name. A sample of the GPT is a row of ``CONTEXT`` bytes."""

_BATCHES = 16
_ROUNDS = 1000
_CLASSES = 10

Pair = tuple[Tensor, Tensor]
Step = Callable[[Tensor, Tensor], Tensor]


class Batches:
    """Pairs (inputs, targets) of a few random batches, round and round; this process's part of each.

    Inputs are float32 (samples, 1, 8, 8) for the digits, int64 (samples, CONTEXT) for the GPT.
    """

    def __init__(self, model: str, hosts: int, part: slice) -> None:
        generator = torch.Generator().manual_seed(1)
        samples = SAMPLES_PER_HOST[model] * hosts
        self._pairs: list[Pair] = []
        for _ in range(_BATCHES):
            if model == "digits":
                images = torch.rand(samples, 1, 8, 8, generator=generator)
                labels = torch.randint(_CLASSES, (samples,), generator=generator)
                self._pairs.append((images[part], labels[part]))
            else:
                text = torch.randint(VOCABULARY, (samples, CONTEXT + 1), generator=generator)[part]
                self._pairs.append((text[:, :-1].contiguous(), text[:, 1:].contiguous()))

    def __iter__(self) -> Iterator[Pair]:
        for _ in range(_ROUNDS):
            yield from self._pairs


def make(model: str) -> tuple[nn.Module, Optimizer]:
    """The model called ``model``, and its optimizer, on this process's CPU; the same in every process."""
    torch.manual_seed(0)
    module: nn.Module = DigitNet() if model == "digits" else Gpt()
    return module, torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01)


def step_of(model: nn.Module, optimizer: Optimizer) -> Step:
    """What the loop does with a batch: inputs and targets to the loss."""

    def train_step(inputs: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train_step


class Loop:
    """Steps of a training, one after the other."""

    def __init__(self, step: Step, batches: Iterable[Pair]) -> None:
        self._step = step
        self._batches = batches
        self._next: Iterator[Pair] = iter(())

    def _batch(self) -> Pair:
        pair = next(self._next, None)
        if pair is None:
            self._next = iter(self._batches)
            pair = next(self._next)
        return pair

    def block(self, steps: int, whole: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Makes ``steps`` steps, of which only the end waits: for ``whole`` of the last loss.

        ``seconds`` is all of it, ``submit_seconds`` until every step was submitted, ``client_seconds`` what the calling
        thread computed until then.
        """
        loss: Tensor | None = None
        start, thread = time.perf_counter(), time.thread_time()
        for _ in range(steps):
            loss = self._step(*self._batch())
        submitted = time.perf_counter()
        client = time.thread_time() - thread
        assert loss is not None
        value = whole(loss).item()
        return {
            "seconds": time.perf_counter() - start,
            "submit_seconds": submitted - start,
            "client_seconds": client,
            "loss": value,
        }

    def answer(self, request: Any) -> Any:
        """For ``serve``: ``{"steps": n}`` to what ``block`` returns."""
        return self.block(int(request["steps"]), lambda loss: loss)
