"""Example 07 with an eager policy beside it: argv are a mode and a strategy; prints the greatest differences as JSON.

The eager policy begins with the same weights and is given the same texts. What the trainer's update returns and what
the generator says of its bytes' probabilities are compared at every step, the weights at the end.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import ptpathways as pw
from tests.scenarios import ROOT

STEPS = 3


class Eager:
    """Takes the place of ``pw.prepare`` and passes everything on; learns what the update was given and returned."""

    def __init__(self, example: Any, mode: str) -> None:
        self.example, self.mode = example, mode
        self.prepare = pw.prepare
        self.differences = {"loss": 0.0, "log-probability": 0.0, "weight": 0.0}
        self.updates = 0

    def __call__(self, policy: Any, adam: Any, update: Callable[..., Tensor], **options: Any) -> Any:
        self.policy = copy.deepcopy(policy)
        self.writers = [copy.deepcopy(self.policy)] * 2  # the generator's, and of the texts that come now
        self.adam = torch.optim.AdamW(self.policy.parameters(), lr=adam.param_groups[0]["lr"])
        self.trained, adam, update = self.prepare(policy, adam, update, **options)

        def both(*given: Tensor) -> Tensor:
            loss = update(*given)
            self._follow(float(loss), *(value.cpu() for value in given))
            return loss

        return self.trained, adam, both

    def _follow(self, loss: float, tokens: Tensor, logs: Tensor, advantages: Tensor) -> None:
        if self.updates % self.example.UPDATES == 0:
            with torch.no_grad():
                own = self._log_probabilities(self.writers.pop(0), tokens)
            self._differ("log-probability", (own - logs).abs().max())
        self.adam.zero_grad()
        ratio = torch.exp(self._log_probabilities(self.policy, tokens) - logs)
        clip = self.example.CLIP
        own_loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()
        own_loss.backward()
        self.adam.step()
        self._differ("loss", abs(float(own_loss.detach()) - loss))
        self.updates += 1
        if self.updates % self.example.UPDATES == 0:
            self.writers.append(copy.deepcopy(self.policy))
            if self.mode == "sync":
                self.writers = self.writers[-1:]

    @staticmethod
    def _log_probabilities(policy: Any, tokens: Tensor) -> Tensor:
        found: Tensor = policy(tokens[:, :-1]).gather(2, tokens[:, 1:, None])[..., 0]
        return found

    def _differ(self, what: str, by: Tensor | float) -> None:
        self.differences[what] = max(self.differences[what], float(by))

    def finish(self) -> None:
        for own, trained in zip(self.policy.parameters(), self.trained.parameters(), strict=True):
            self._differ("weight", (own.detach() - trained.detach().cpu()).abs().max())


def main() -> None:
    mode, strategy = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("example", ROOT / "examples" / "07_trainer_and_generator.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    eager = Eager(example, mode)
    pw.prepare = eager  # type: ignore[assignment]
    sys.argv = ["example", "--mode", mode, "--strategy", strategy, "--steps", str(STEPS)]
    example.main()
    eager.finish()
    print(json.dumps({"updates": eager.updates, **eager.differences}))


if __name__ == "__main__":
    main()
