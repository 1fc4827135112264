"""What users change between the steps of a pipeline: it counts at the next step, as in eager PyTorch, or is refused.

python pipeline_changes.py changes
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # by name, before any pipeline is made

import ptpathways as pw
from tests.proc.cluster_scenarios import WAIT_S, Scenario, refused, run
from tests.proc.pipeline_mistakes import WIDTH, Blocks, Pipes, one_batch
from tests.proc.pipeline_scenarios import adamw, sgd, slices_of

Change = Callable[[int, Any, torch.optim.Optimizer], None]


def follows(pipe: pw.Pipeline, eager: Any, make: Any, change: Change, *, current: bool = False, steps: int = 5) -> None:
    """Trains both, with ``change(step, module, optimizer)`` of both before each step. ``current``: of pipe.module."""
    optimizer = make(eager.parameters())
    for step in range(steps):
        data = one_batch(step)
        change(step, pipe.module if current else pipe._model, pipe.optimizer)
        change(step, eager, optimizer)
        got = float(pipe.step(*data).result(WAIT_S))
        optimizer.zero_grad()
        wanted = F.mse_loss(eager(*data[:-1]), data[-1])
        wanted.backward()
        optimizer.step()
        assert abs(got - wanted.item()) < 1e-5, (step, got, wanted.item())
    for (name, one), (_, other) in zip(pipe.module.named_parameters(), eager.named_parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), (name, (one - other).abs().max())


class Scaled(Blocks):
    factor = 1.0
    table = torch.ones(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = super().forward(x) * self.factor * self.table
        return made


def settings(cluster: pw.Cluster) -> None:
    """What is trained, modes of submodules, attributes that the forward pass reads, buffers."""
    pipes = Pipes(cluster)

    def frozen(step: int, module: Any, optimizer: Any) -> None:
        module.blocks[1].requires_grad_(step not in (2, 3))

    def flipped(step: int, module: Any, optimizer: Any) -> None:
        module.blocks[1][1].train(step == 2)

    def attributes(step: int, module: Any, optimizer: Any) -> None:
        if step:
            module.factor = 1.0 + step // 2
            module.unread = step
        if step == 3:
            module.table = torch.full((WIDTH,), 0.5)

    def buffers(step: int, module: Any, optimizer: Any) -> None:
        if step == 1:
            module.scale.mul_(2.0)
        if step == 3:
            module.scale = torch.full((WIDTH,), 0.7)

    def group(step: int, module: Any, optimizer: Any) -> None:
        if step == 2:
            optimizer.add_param_group({"params": list(module.blocks[3].parameters()), "lr": 0.05})

    for make in (sgd, adamw):
        torch.manual_seed(0)
        model = Scaled()
        follows(pipes(model, optimizer=make), copy.deepcopy(model), make, frozen)

        def some(parameters: Any, make: Any = make) -> torch.optim.Optimizer:
            made: torch.optim.Optimizer = make(list(parameters)[:6])
            return made

        model = Scaled()
        follows(pipes(model, optimizer=some), copy.deepcopy(model), some, group)
    for change in (attributes, buffers):
        model = Scaled()
        pipe = pipes(model)
        follows(pipe, copy.deepcopy(model), sgd, change)
    assert len(pipe._steps) <= 3, "what the forward pass does not read compiles nothing"
    dropping: Any = Blocks()
    dropping.blocks[1] = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.0))
    follows(pipes(dropping), copy.deepcopy(dropping), sgd, flipped)
    drawing = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH))
    pipe = pipes(drawing, optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    pipe.step(*one_batch())
    drawing[1].eval()
    quiet = [float(pipe.step(*one_batch()).result(WAIT_S)) for _ in range(2)]
    assert quiet[0] == quiet[1], quiet


class Called(Blocks):
    """Computes with functions and numbers in attributes, lists and dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.act = torch.tanh
        self.factors, self.options = [1.0, 1.0], {"scale": {"by": 1.0}}
        self.seen: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        made: Tensor = self.act(super().forward(x)) * self.factors[1] * self.options["scale"]["by"]
        return made


def code(cluster: pw.Cluster) -> None:
    """Forward hooks, functions in attributes, and what lists and dictionaries hold."""
    pipes = Pipes(cluster)
    handles: dict[int, list[Any]] = {}

    def hooked(step: int, module: Any, optimizer: Any) -> None:
        if step == 1:
            handles[id(module)] = [
                module.blocks[1].register_forward_hook(lambda own, inputs, made: made * 2),
                module.blocks[2].register_forward_pre_hook(lambda own, inputs: (inputs[0] * 2,)),
            ]
        if step == 3:
            for handle in handles.pop(id(module)):
                handle.remove()

    def everywhere(step: int, module: Any, optimizer: Any) -> None:
        if step == 1 and not handles:
            hook = nn.modules.module.register_module_forward_hook
            handles[0] = [hook(lambda own, inputs, made: made * 2 if isinstance(own, nn.Linear) else None)]
        if step == 3 and handles:
            handles.pop(0)[0].remove()

    def replaced(step: int, module: Any, optimizer: Any) -> None:
        if step == 1:
            module.blocks[1].forward = torch.sin
        if step == 3:
            del module.blocks[1].forward

    def function(step: int, module: Any, optimizer: Any) -> None:
        module.act = torch.sin if step in (1, 2) else torch.tanh

    def elements(step: int, module: Any, optimizer: Any) -> None:
        module.factors[1] = 1.0 + step // 2
        module.options["scale"]["by"] = 1.0 - step // 3

    def kind(step: int, module: Any, optimizer: Any) -> None:
        module.blocks[1].__class__ = Doubled if step in (1, 2) else nn.Linear

    for change in (hooked, everywhere, replaced, function, elements, kind):
        torch.manual_seed(0)
        model = Called()
        pipe = pipes(model)
        follows(pipe, copy.deepcopy(model), sgd, change)
        assert not model.seen, "what runs is the graph"
    for _ in range(2):  # two shapes: each is compiled once, though the forward pass adds to a list
        for samples in (8, 16):
            pipe.step(*(torch.cat([one] * (samples // 8)) for one in one_batch()))
    known = len(pipe._steps)
    assert known <= 4, known


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 2


def autocasts(cluster: pw.Cluster) -> None:
    """Autocast around a step is that of the model and its loss, as in eager PyTorch; it may come and go."""
    torch.manual_seed(0)
    model = Blocks()
    eager, pipe = copy.deepcopy(model), Pipes(cluster)(model)
    optimizer = sgd(eager.parameters())
    differ = 0
    for step, enabled in enumerate((True, True, False, True, False)):
        x, y = one_batch(step)
        plain = F.mse_loss(eager(x), y)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            wanted = F.mse_loss(eager(x), y)
            loss = pipe.step(x, y)
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        assert loss.dtype == wanted.dtype == torch.float32
        got = float(loss.result(WAIT_S))
        assert abs(got - wanted.item()) < 2e-3, (step, got, wanted.item())
        differ += abs(got - plain.item()) > 2e-5
    assert differ >= 3, "bfloat16 tells"
    assert len(pipe._steps) == 2


def values(cluster: pw.Cluster) -> None:
    """Parameters and optimizer state that are changed on the CPU; what is old there is refused, not overwritten."""
    pipes = Pipes(cluster)
    torch.manual_seed(0)
    other = Blocks().state_dict()

    def loaded(step: int, module: Any, optimizer: Any) -> None:
        if step == 2:
            module.load_state_dict(other)

    def written(step: int, module: Any, optimizer: Any) -> None:
        with torch.no_grad():
            module.blocks[step % 4].weight.clamp_(-0.1, 0.1)
        module.blocks[0].bias.data.mul_(0.5)

    for change in (loaded, written):
        plain = Blocks()
        follows(pipes(plain, optimizer=adamw), copy.deepcopy(plain), adamw, change, current=True)

    held: dict[int, Any] = {}

    def rewound(step: int, module: Any, optimizer: Any) -> None:
        if step == 2:
            held[id(optimizer)] = copy.deepcopy(optimizer.state_dict())
        if step == 4:
            optimizer.load_state_dict(held[id(optimizer)])

    model: Any = Blocks()
    pipe = pipes(model, optimizer=adamw)
    follows(pipe, copy.deepcopy(model), adamw, rewound, steps=6)
    assert float(pipe.optimizer.state_dict()["state"][0]["step"]) == 4
    for value in pipe.optimizer.state.values():
        value["exp_avg"].zero_()
    pipe.step(*one_batch())
    with torch.no_grad():
        model.blocks[0].weight.mul_(0.5)
    refused(pw.PipelineError, ["blocks.0.weight", "take pipe.module"], lambda: pipe.step(*one_batch()))
    refused(pw.PipelineError, "earlier step", lambda: pipe.module)
    pipe.load_state_dict({"model": other, "optimizer": pipe.optimizer.state_dict()})
    pipe.step(*one_batch())
    wrong = {"model": {**other, "blocks.0.bias": torch.zeros(3)}, "optimizer": pipe.optimizer.state_dict()}
    refused(RuntimeError, "size mismatch", lambda: pipe.load_state_dict(wrong))
    pipe.step(*one_batch())
    refused(pw.PipelineError, "['optimizer'] is missing", lambda: pipe.load_state_dict({"model": other}))


def hooks(cluster: pw.Cluster) -> None:
    """Hooks that no compiled step would call are refused, when the pipeline is made and when they come later."""
    pipes = Pipes(cluster)
    model: Any = Blocks()
    handle = model.blocks[0].weight.register_hook(lambda gradient: gradient * 10)
    refused(pw.ModelCannotBeCut, "parameter 'blocks.0.weight' has hooks on its gradient", lambda: pipes(model))
    handle.remove()
    pipe = pipes(model)
    pipe.step(*one_batch())
    handles = [
        (model.blocks[2].register_full_backward_hook(lambda *_: None), "module 'blocks.2' has backward hooks"),
        (model.blocks[2].bias.register_post_accumulate_grad_hook(lambda _: None), "hooks on its gradient"),
        (pipe.optimizer.register_step_pre_hook(lambda *_: None), "has hooks around its step"),
    ]
    for handle, said in handles:
        refused(pw.PipelineError, said, lambda: pipe.step(*one_batch()))
        handle.remove()
    pipe.step(*one_batch())


def calls_without_effect(cluster: pw.Cluster) -> None:
    """A loop's own step, or clipping, finds no gradients: warned of once for each pipeline."""
    pipes = Pipes(cluster)

    def said(call: Callable[[pw.Pipeline], Any]) -> list[str]:
        pipe = pipes(Blocks())
        scheduler = torch.optim.lr_scheduler.StepLR(pipe.optimizer, 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                pipe.optimizer.zero_grad()
                pipe.step(*one_batch())
                call(pipe)
                scheduler.step()
        return [str(one.message) for one in caught]

    def clip_values(pipe: pw.Pipeline) -> None:
        with contextlib.suppress(RuntimeError):  # torch's own, which says nothing of gradients
            clip_grad_value_(pipe.module.parameters(), 1.0)

    assert not said(lambda pipe: nn.utils.clip_grad_norm_(Blocks().parameters(), 1.0))
    calls: list[tuple[Callable[[pw.Pipeline], Any], str]] = [
        (lambda pipe: pipe.optimizer.step(), "optimizer.step()"),
        (lambda pipe: nn.utils.clip_grad_norm_(pipe.module.parameters(), 1.0), "clip_grad_norm_()"),
        (lambda pipe: clip_grad_norm_(pipe.module.parameters(), 1.0), "clip_grad_norm_()"),
        (clip_values, "clip_grad_value_()"),
    ]
    for call, name in calls:
        (one,) = said(call)
        assert f"{name} of what a pipeline trains has no effect" in one, one


def nothing_to_train(cluster: pw.Cluster) -> None:
    """Values behind ``detach`` get no gradient at all, so no decay; a loss without gradients is refused."""
    pipes = Pipes(cluster)

    class Cut(Blocks):
        def forward(self, x: Tensor) -> Tensor:
            for number, block in enumerate(self.blocks):
                x = torch.tanh(block(x))
                x = x.detach() if number == 2 else x
            return x

    for schedule in ("1f1b", "zero-bubble"):
        torch.manual_seed(0)
        model = Cut()
        follows(pipes(model, optimizer=adamw, schedule=schedule), copy.deepcopy(model), adamw, lambda *_: None)
    pipes.refuses(Blocks(), "the loss requires no gradient", loss=lambda made, y: F.mse_loss(made, y).detach())
    pipes.refuses(Blocks().requires_grad_(False), "the loss requires no gradient")


def threads(cluster: pw.Cluster) -> None:
    """First steps of several pipelines at the same time, and one pipeline in several threads; prints stay visible."""
    slices = slices_of(cluster, 4)
    torch.manual_seed(0)
    made = [
        pw.pipeline(Blocks(), stages=2, microbatches=4, slices=two, loss=F.mse_loss, optimizer=sgd)
        for two in (slices[:2], slices[2:])
    ]
    failed: list[BaseException] = []
    losses: list[float] = []

    def train(pipe: pw.Pipeline) -> None:
        try:
            losses.extend(float(pipe.step(*one_batch()).result(WAIT_S)) for _ in range(5))
        except BaseException as error:
            failed.append(error)

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        running = [threading.Thread(target=train, args=(pipe,)) for pipe in (*made, made[0], made[1])]
        for thread in running:
            thread.start()
        print("seen")
        for thread in running:
            thread.join(WAIT_S)
        assert sys.stdout is printed
    assert printed.getvalue() == "seen\n"
    assert not failed and len(losses) == 20, failed


SCENARIOS: list[Scenario] = [settings, code, autocasts, values, hooks, calls_without_effect, nothing_to_train, threads]

if __name__ == "__main__":
    run({"changes": SCENARIOS}[sys.argv[1]], hosts=2, islands=2)
