"""The training loop that ``step`` times, the same for every system: only the device and how a trace is cut differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ptpathways.bench._models import BATCH, CONTEXT, VOCABULARY, Gpt

_BATCHES = 16


class Loop:
    """Model, AdamW and a few batches of random bytes, which it goes round."""

    def __init__(self, device: torch.device, cut: Callable[[], None]) -> None:
        torch.manual_seed(0)
        self.device = device
        self.cut = cut
        self.model = Gpt().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
        pieces = torch.randint(VOCABULARY, (_BATCHES, BATCH, CONTEXT + 1))
        self.batches = [(piece[:, :-1].contiguous(), piece[:, 1:].contiguous()) for piece in pieces]
        self.steps = 0

    def block(self, steps: int) -> dict[str, float]:
        """Makes ``steps`` steps, of which only the end waits: for the last ``loss``.

        ``seconds`` is all of it, ``submit_seconds`` until everything was traced and handed over.
        """
        start = time.perf_counter()
        for _ in range(steps):
            tokens, targets = self.batches[self.steps % _BATCHES]
            self.steps += 1
            self.optimizer.zero_grad()
            logits = self.model(tokens.to(self.device))
            loss = F.cross_entropy(logits.flatten(0, 1), targets.to(self.device).flatten())
            loss.backward()
            self.optimizer.step()
            self.cut()
        submitted = time.perf_counter()
        value = loss.item()
        return {"seconds": time.perf_counter() - start, "submit_seconds": submitted - start, "loss": value}

    def answer(self, request: Any) -> Any:
        """For ``serve``: ``{"steps": n}`` to what ``block`` returns."""
        return self.block(int(request["steps"]))
