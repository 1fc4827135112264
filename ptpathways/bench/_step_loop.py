"""The training loop that ``step`` and ``train`` time, the same for every system: what differs is the device, how a
trace is cut, and what becomes of the step function."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from ptpathways.bench._models import BATCH, CONTEXT, VOCABULARY, Gpt, GptShape

_BATCHES = 16
_CLASSES = 10
_IMAGE = 32

Step = Callable[[Tensor, Tensor], Tensor]
"""Inputs and targets on the CPU to the loss: forward, backward, optimizer."""


@dataclass(frozen=True, slots=True)
class Training:
    """A model to train: how it is made, and its batches of random inputs (samples, ...) and int64 targets."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    """Of so many samples."""
    targets: Callable[[int], Tensor]
    samples: int
    """Of a batch."""


def _gpt(shape: GptShape, samples: int) -> Training:
    def text(count: int) -> Tensor:
        return torch.randint(VOCABULARY, (count, CONTEXT))

    return Training(lambda: Gpt(shape), text, text, samples)


def _resnet18() -> nn.Module:
    from torchvision.models import resnet18

    model: nn.Module = resnet18(num_classes=_CLASSES)
    return model


def _mobilenet() -> nn.Module:
    from torchvision.models import mobilenet_v3_small

    model: nn.Module = mobilenet_v3_small(num_classes=_CLASSES, dropout=0.0)
    return model


def _regnet() -> nn.Module:
    from torchvision.models import regnet_y_400mf

    model: nn.Module = regnet_y_400mf(num_classes=_CLASSES)
    return model


def _convnext() -> nn.Module:
    """Of the size that is called atto, of which torchvision has no function."""
    from torchvision.models import convnext

    widths, depths = (40, 80, 160, 320), (2, 2, 6, 2)
    blocks = [
        convnext.CNBlockConfig(width, after, depth)
        for width, after, depth in zip(widths, (*widths[1:], None), depths, strict=True)
    ]
    model: nn.Module = convnext.ConvNeXt(blocks, num_classes=_CLASSES)
    return model


def _images(make: Callable[[], nn.Module]) -> Training:
    return Training(
        make,
        lambda count: torch.rand(count, 3, _IMAGE, _IMAGE),
        lambda count: torch.randint(_CLASSES, (count,)),
        8,
    )


TRAININGS = {
    "gpt 4/128": _gpt(GptShape(), BATCH),
    "gpt 4/256": _gpt(GptShape(layers=4, width=256, heads=4), 8),
    "gpt 12/768": _gpt(GptShape(layers=12, width=768, heads=12), 2),
    "resnet18": _images(_resnet18),
    "mobilenet v3 small": _images(_mobilenet),
    "regnet y 400mf": _images(_regnet),
    "convnext atto": _images(_convnext),
}
"""By name; a GPT's says layers and width. A GPT's sample is a row of ``CONTEXT`` bytes, the others' an image."""


class Loop:
    """A model, AdamW and a few batches, which it goes round.

    Args:
        cut: submits what was traced.
        wrap: makes something of the step function, such as a captured step.
    """

    def __init__(
        self,
        training: str,
        device: torch.device,
        cut: Callable[[], None] = lambda: None,
        wrap: Callable[[nn.Module, Optimizer, Step], Step] = lambda model, optimizer, step: step,
    ) -> None:
        torch.manual_seed(0)
        self._device = device
        self._cut = cut
        what = TRAININGS[training]
        model = what.make().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
        self._batches = [(what.inputs(what.samples), what.targets(what.samples)) for _ in range(_BATCHES)]
        self._steps = 0

        def step(inputs: Tensor, targets: Tensor) -> Tensor:
            optimizer.zero_grad()
            logits = model(inputs.to(device))
            loss = F.cross_entropy(logits.flatten(0, -2), targets.to(device).flatten())
            loss.backward()
            optimizer.step()
            return loss.detach()

        self._step = wrap(model, optimizer, step)

    def block(self, steps: int) -> dict[str, float]:
        """Makes ``steps`` steps, of which only the end waits: for the last loss.

        ``seconds`` is all of it, ``submit_seconds`` until everything was traced and handed over, ``client_seconds``
        what the calling thread computed until then.
        """
        loss: Tensor | None = None
        start, thread = time.perf_counter(), time.thread_time()
        for _ in range(steps):
            inputs, targets = self._batches[self._steps % _BATCHES]
            self._steps += 1
            loss = self._step(inputs, targets)
            self._cut()
        submitted = time.perf_counter()
        client = time.thread_time() - thread
        assert loss is not None
        value = loss.item()
        return {
            "seconds": time.perf_counter() - start,
            "submit_seconds": submitted - start,
            "client_seconds": client,
            "loss": value,
        }

    def answer(self, request: Any) -> Any:
        """For ``serve``: ``{"steps": n}`` to what ``block`` returns."""
        return self.block(int(request["steps"]))
