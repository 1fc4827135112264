"""The training of ``pipeline``, the same for every system: model, cut, batches, optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ptpathways.bench._models import CONTEXT, VOCABULARY, Gpt, GptShape

LAYERS = 8
SAMPLES = 32
MICROBATCHES = 16
"""Four per stage, as in the paper's Table 2."""
_BATCHES = 8
_ROUNDS = 1000


def cuts(stages: int) -> list[str]:
    """The first block of the second and later stages."""
    return [f"blocks.{LAYERS * stage // stages}" for stage in range(1, stages)]


def make_model() -> Gpt:
    """On this process's CPU, the same in every process."""
    torch.manual_seed(0)
    return Gpt(GptShape(layers=LAYERS))


def make_optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


class Batches:
    """Pairs of bytes and the bytes after them, (SAMPLES, CONTEXT) int64 each; a few random ones, round and round."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self._pairs: list[tuple[Tensor, Tensor]] = []
        for _ in range(_BATCHES):
            text = torch.randint(VOCABULARY, (SAMPLES, CONTEXT + 1), generator=generator)
            self._pairs.append((text[:, :-1].contiguous(), text[:, 1:].contiguous()))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(_ROUNDS):
            yield from self._pairs


class StageOf(nn.Module):
    """A stage of the model, as a module: for systems that want one."""

    def __init__(self, model: Gpt, stage: int, stages: int) -> None:
        super().__init__()
        first, last = LAYERS * stage // stages, LAYERS * (stage + 1) // stages
        self.blocks = model.blocks[first:last]
        self.token = model.token if stage == 0 else None
        self.position = model.position if stage == 0 else None
        self.norm = model.norm if stage == stages - 1 else None
        self.head = model.head if stage == stages - 1 else None
        self.register_buffer("places", model.places, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.token is not None and self.position is not None:
            x = self.token(x) + self.position(self.places)
        x = self.blocks(x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x
