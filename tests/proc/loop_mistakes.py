"""Mistakes in loops, and what is said about them. Called by loop_scenarios.py, in its process."""

from __future__ import annotations

import copy
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import ptpathways as pw
from ptpathways import train


class Mixing(nn.Module):
    """Keeps a tensor that is neither parameter nor buffer, so prepare() leaves it on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.mixing = torch.ones(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.linear(x) @ self.mixing
        return mixed


def _prepared() -> tuple[Any, Tensor, Tensor]:
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    pw.prepare(model)
    x, labels = pw.prepare([torch.ones(4, 4), torch.zeros(4, dtype=torch.long)])
    return model, x, labels


def a_batch_that_stayed_here() -> None:
    model, _, _ = _prepared()
    model(torch.ones(2, 4))


def labels_that_stayed_here() -> None:
    model, x, labels = _prepared()
    F.cross_entropy(model(x), labels.cpu())


def an_expression_of_the_cpu() -> None:
    _, x, _ = _prepared()
    torch.cat([x, torch.zeros(4, 4)])


def an_attribute_that_is_no_buffer() -> None:
    model = nn.Sequential(Mixing())
    pw.prepare(model)
    (x,) = pw.prepare([torch.ones(4, 4)])
    model(x)


def a_parameter_on_a_gpu() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    with FakeTensorMode(allow_non_fake_inputs=True):
        second.weight = nn.Parameter(torch.empty(2, 2, device="cuda"))
    try:
        pw.prepare(first, second)
    finally:
        assert first.weight.device.type == "cpu"  # nothing was moved


def an_optimizer_of_another_model() -> None:
    model, x, labels = _prepared()
    optimizer = pw.prepare(torch.optim.SGD(copy.deepcopy(model).parameters(), 0.1))
    F.cross_entropy(model(x), labels).backward()
    optimizer.step()


def a_closure_of_another_model() -> None:
    model, x, labels = _prepared()
    optimizer = pw.prepare(torch.optim.SGD(copy.deepcopy(model).parameters(), 0.1))

    def closure() -> Tensor:
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        return loss

    optimizer.step(closure)


def a_closure_that_makes_the_gradients() -> None:
    """No mistake: before the step there are none."""
    model, x, labels = _prepared()
    optimizer = pw.prepare(torch.optim.LBFGS(model.parameters(), max_iter=1))

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    optimizer.step(closure=closure)


def a_group_without_gradients() -> None:
    model, x, _ = _prepared()
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters()}]
    optimizer = pw.prepare(torch.optim.SGD(groups, 0.1))
    for _ in range(2):
        model[0](x).sum().backward()
        optimizer.step()


def an_autocast_for_another_device() -> None:
    model, x, _ = _prepared()
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model(x).dtype is torch.float32
    with torch.autocast("cuda", dtype=torch.float16):
        model(x)


def a_gpu_without_bfloat16() -> None:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        pass


def a_layer_that_overflows() -> None:
    """Watched twice: one tells a callback and the loop goes on, the other raises. No step waits."""
    model: Any = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 3))
    with torch.no_grad():
        model[0].weight.fill_(1e20)
    optimizer = pw.prepare(model, torch.optim.SGD(model.parameters(), 0.0))[1]
    told: list[pw.NonFinite] = []
    watches = [pw.watch(model, optimizer, told.append), pw.watch(model, optimizer)]
    batches = [torch.ones(4, 4) for _ in range(5)]
    batches[3] *= 1e20
    waits = []
    try:
        for x in pw.prepare(batches):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            waits.append(pw.wait_stats().count)
        assert waits[-1] == waits[0], waits
    finally:
        watches[0].check()
        assert [(one.step, one.tensor) for one in told] == [(4, "the output of 0")], told
        watches[0].remove()
    watches[1].check()


def prepared_twice() -> None:
    """No mistake: the second time changes nothing."""
    model, _, _ = _prepared()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = pw.prepare([torch.ones(4, 4)])
    pw.prepare(model, optimizer)
    weight, hooks = model[0].weight, (len(model._forward_hooks), len(optimizer._optimizer_step_post_hooks))
    again = pw.prepare(model, optimizer, loader)
    assert again[0] is model and again[1] is optimizer and again[2] is loader and model[0].weight is weight
    assert (len(model._forward_hooks), len(optimizer._optimizer_step_post_hooks)) == hooks == (1, 2)


def trained_before() -> None:
    """No mistake: a step on the CPU, then prepare(), and its momentum goes on."""
    torch.manual_seed(1)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    results = []
    for prepared in (False, True):
        one, its = copy.deepcopy((model, optimizer))
        x = torch.ones(4, 4)
        for index in range(3):
            if index == 1 and prepared:
                pw.prepare(one, its)
                x = x.to(pw.device())
            its.zero_grad()
            one(x).square().sum().backward()
            its.step()
        results.append(one.weight.detach().cpu())
    torch.testing.assert_close(*results)


ALL: tuple[Callable[[], None], ...] = (
    a_batch_that_stayed_here,
    labels_that_stayed_here,
    an_expression_of_the_cpu,
    an_attribute_that_is_no_buffer,
    a_parameter_on_a_gpu,
    an_optimizer_of_another_model,
    a_closure_of_another_model,
    a_closure_that_makes_the_gradients,
    a_group_without_gradients,
    an_autocast_for_another_device,
    a_gpu_without_bfloat16,
    a_layer_that_overflows,
    prepared_twice,
    trained_before,
)


def said_about(mistake: Callable[[], None]) -> dict[str, Any]:
    """The error that ends it, as the interpreter would show it, and the warnings."""
    error = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            mistake()
        except Exception as raised:
            shown, sys.stderr = sys.stderr, _Kept()
            try:
                sys.excepthook(type(raised), raised, raised.__traceback__)
                error = f"{type(raised).__name__}: {raised}"
                assert str(raised) in sys.stderr.text, traceback.format_exc()
            finally:
                sys.stderr = shown
    mine = [one for one in caught if one.category.__module__ == train.NothingTrainedWarning.__module__]
    return {"error": error, "warnings": [f"{one.category.__name__}: {one.message}" for one in mine]}


class _Kept:
    """A text stream that keeps what is written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


def all_of_them() -> dict[str, Any]:
    return {mistake.__name__: said_about(mistake) for mistake in ALL}
