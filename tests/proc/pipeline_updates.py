"""Optimizers of pipelines: hyperparameters that decide what a step does, types, and state that is loaded.

python pipeline_updates.py updates
"""

from __future__ import annotations

import copy
import functools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import ptpathways as pw
from tests.proc import pipeline_models as models
from tests.proc.cluster_scenarios import WAIT_S, Scenario, refused, run
from tests.proc.pipeline_changes import Change, follows
from tests.proc.pipeline_mistakes import Blocks, Pipes, one_batch
from tests.proc.pipeline_scenarios import adamw, sgd, slices_of


def _set(key: str, values: Sequence[Any]) -> Change:
    def change(step: int, module: Any, optimizer: torch.optim.Optimizer) -> None:
        optimizer.param_groups[0][key] = values[step]

    return change


class Repeating(torch.optim.Optimizer):
    """Of a user: one number is squared, one decides, and one must be an integer."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.05, "times": 1, "scale": 1.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                for _ in range(group["times"]):
                    parameter.add_(parameter.grad, alpha=-group["lr"] * group["scale"] ** 2)
                if 2 * group["scale"] > 3:
                    parameter.mul_(0.5)


def numbers_that_decide(cluster: pw.Cluster) -> None:
    """Where torch's step compares a hyperparameter (``if momentum != 0``), the compiled one takes the same branch."""
    pipes = Pipes(cluster)

    def plain(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    def damped(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5)

    def rmsprop(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5)

    cases: list[tuple[Any, str, list[Any]]] = [
        (plain, "momentum", [0.0, 0.9, 0.5, 0.0, 0.9]),
        (damped, "momentum", [0.9, 0, 0.5, 0.0, 0.9]),
        (rmsprop, "momentum", [0.5, 0.0, 0.5, 0.25, 0]),
        (sgd, "weight_decay", [0.0, 0.1, 0.0, 0.2, 0.1]),
        (sgd, "nesterov", [False, True, True, False, True]),
        (sgd, "maximize", [False, True, False, False, True]),
        (sgd, "lr", [0.0, 0.1, 0.0, 0.2, 0.1]),
        (Repeating, "times", [1, 2, 2, 3, 1]),
        (Repeating, "scale", [1.0, 1.2, 2.0, 1.4, 1.7]),
    ]
    for make, key, values in cases:
        torch.manual_seed(0)
        model = Blocks()
        follows(pipes(model, optimizer=make), copy.deepcopy(model), make, _set(key, values))
    pipe = pipes(Blocks(), optimizer=adamw)
    pipe.step(*one_batch())
    pipe.optimizer.param_groups[0]["amsgrad"] = True
    refused(pw.PipelineError, ["AdamW needs 'max_exp_avg_sq'", "exp_avg, exp_avg_sq"], lambda: pipe.step(*one_batch()))


def types(cluster: pw.Cluster) -> None:
    """Hyperparameters are as exact as the parameters."""
    pipes = Pipes(cluster)

    def plain(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    def rates(step: int, optimizer: torch.optim.Optimizer) -> None:
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)

    for kind, tolerance in ((torch.float64, 1e-14), (torch.bfloat16, 0.02)):
        torch.manual_seed(0)
        model = Blocks().to(kind)
        eager, pipe = copy.deepcopy(model), pipes(model, optimizer=plain)
        optimizer = plain(eager.parameters())
        for step in range(4):
            x, y = (one.to(kind) for one in one_batch(step))
            for each in (optimizer, pipe.optimizer):
                rates(step, each)
            pipe.step(x, y)
            optimizer.zero_grad()
            F.mse_loss(eager(x), y).backward()
            optimizer.step()
        for one, other in zip(pipe.module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def resumed(cluster: pw.Cluster) -> None:
    """A pipeline that has not stepped yet takes the state of another one, whatever its parameters' type is."""
    pipes = Pipes(cluster)
    for kind in (torch.bfloat16, torch.float64):
        x, y = (one.to(kind) for one in one_batch())
        torch.manual_seed(0)
        first = pipes(Blocks().to(kind), optimizer=adamw)
        first.step(x, y)
        state = copy.deepcopy(first.state_dict())
        with tempfile.TemporaryDirectory() as folder:
            pw.save(Path(folder) / "run", pipe=first).wait()
            wanted = [float(first.step(x, y).result(WAIT_S)) for _ in range(3)]
            by_dict, by_file = (pipes(Blocks().to(kind), optimizer=adamw) for _ in range(2))
            by_dict.load_state_dict(state)
            pw.load(Path(folder) / "run", pipe=by_file)
        for pipe in (by_dict, by_file):
            assert [float(pipe.step(x, y).result(WAIT_S)) for _ in range(3)] == wanted


def states_that_do_not_fit(cluster: pw.Cluster) -> None:
    """All is checked before anything is changed, before the first step and after it."""
    pipes = Pipes(cluster)
    torch.manual_seed(0)
    other = pipes(Blocks(), optimizer=sgd)
    other.step(*one_batch())
    foreign = copy.deepcopy(other.state_dict())
    model = Blocks()
    control, pipe = (pipes(one, optimizer=adamw) for one in (copy.deepcopy(model), model))
    for steps in (0, 1):
        for one in (control, pipe)[: 2 * steps]:
            one.step(*one_batch())
        good = copy.deepcopy(pipe.state_dict())
        zeros = {name: torch.zeros_like(value) for name, value in good["model"].items()}
        short = {name: value for name, value in zeros.items() if name != "blocks.2.bias"}
        groups = {**good["optimizer"], "param_groups": good["optimizer"]["param_groups"] * 2}
        wrong: list[tuple[type[Exception], str, Any]] = [
            (TypeError, "must be a dictionary {'model': ..., 'optimizer': ...}, got a NoneType", None),
            (TypeError, "the state of model Blocks must be a dictionary, got a list", {**good, "model": []}),
            (pw.PipelineError, "size mismatch", {**good, "model": {**zeros, "blocks.3.bias": torch.zeros(3)}}),
            (pw.PipelineError, 'Missing key(s) in state_dict: "blocks.2.bias"', {**good, "model": short}),
            (pw.PipelineError, "does not fit optimizer AdamW", {"model": zeros, "optimizer": foreign["optimizer"]}),
            (pw.PipelineError, "different number of parameter groups", {"model": zeros, "optimizer": groups}),
            (pw.PipelineError, "must be {'state': ..., 'param_groups': ...}", {"model": zeros, "optimizer": {}}),
        ]
        if steps:
            held = copy.deepcopy(good["optimizer"])
            held["state"][0]["exp_avg"] = torch.zeros(3)
            wrong.append((pw.PipelineError, "'exp_avg' of parameter 'blocks.0.weight'", {**good, "optimizer": held}))
            held = {**good["optimizer"], "state": foreign["optimizer"]["state"]}
            wrong.append((pw.PipelineError, "It has momentum_buffer for", {"model": zeros, "optimizer": held}))
            refused(pw.PipelineError, "optimizer AdamW", functools.partial(pipe.optimizer.load_state_dict, held))
        for kind, said, state in wrong:
            refused(kind, said, functools.partial(pipe.load_state_dict, state))
        with tempfile.TemporaryDirectory() as folder:
            pw.save(Path(folder) / "run", pipe=other).wait()
            refused(
                pw.CheckpointMismatch,
                ["does not fit optimizer AdamW", "momentum_buffer", "Nothing was changed"],
                functools.partial(pw.load, Path(folder) / "run", pipe=pipe),
            )
        for one, kept in zip(pipe.state_dict()["model"].values(), good["model"].values(), strict=True):
            assert torch.equal(one, kept)
    data = one_batch(1)
    assert float(pipe.step(*data).result(WAIT_S)) == float(control.step(*data).result(WAIT_S))
    assert float(pipe.step(*data).result(WAIT_S)) == float(control.step(*data).result(WAIT_S))


def _summed(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    kept = targets % 3 != 0
    each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (each * kept.flatten()).sum(), kept.sum()


def clipped_gradients(cluster: pw.Cluster) -> None:
    """The norm is that of all stages' gradients together, each tied weight's once, as in eager PyTorch."""
    pipes = Pipes(cluster)

    def quotient(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        total, weight = _summed(logits, targets)
        return total / weight

    rows = {"placements": lambda name, tensor: ("x",) if tensor.dim() and tensor.shape[0] % 2 == 0 else None}
    cases: list[tuple[dict[str, Any], Any, bool]] = [
        (rows, models.language_loss, False),
        ({"schedule": "1f1b"}, models.language_loss, False),
        ({"schedule": "zero-bubble", "loss": _summed, "reduction": "weighted"}, quotient, False),
        ({"schedule": "gpipe", "optimizer": adamw}, models.language_loss, True),
    ]
    for options, loss, frozen in cases:
        pipes.slices = slices_of(cluster, 2, devices=2 if options is rows else 1)
        torch.manual_seed(0)
        model = models.Gpt()
        if frozen:
            model.blocks[0].requires_grad_(False)
        eager = copy.deepcopy(model)
        pipe = pipes(model, **{"loss": models.language_loss, **options, "clip_grad_norm": 0.3})
        refused(pw.PipelineError, "there was none yet", functools.partial(getattr, pipe, "grad_norm"))
        optimizer = options.get("optimizer", sgd)(eager.parameters())
        generator = torch.Generator().manual_seed(1)
        for largest in (0.3, 0.1, float("inf"), 0, 0.5, None, 0.2):
            pipe.clip_grad_norm = largest
            batch = models.language_batch(8, generator)
            given = pipe.step(*batch)
            optimizer.zero_grad()
            wanted = loss(eager(batch[0]), batch[1])
            wanted.backward()
            if largest is not None:
                norm = torch.nn.utils.clip_grad_norm_(eager.parameters(), largest)
                torch.testing.assert_close(pipe.grad_norm.result(WAIT_S), norm, rtol=1e-4, atol=1e-6)
            else:
                refused(pw.PipelineError, "clip_grad_norm", functools.partial(getattr, pipe, "grad_norm"))
            optimizer.step()
            torch.testing.assert_close(given.result(WAIT_S), wanted.detach(), rtol=1e-4, atol=1e-5)
        for (name, one), other in zip(pipe.module.named_parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=name)


def norms_that_are_none(cluster: pw.Cluster) -> None:
    """A gradient that is not finite makes the norm so, and with it every gradient, as in eager PyTorch."""
    pipes = Pipes(cluster)
    model = Blocks()
    eager = copy.deepcopy(model)
    pipe = pipes(model, clip_grad_norm=1.0)
    x, y = one_batch()
    x[0, 0] = float("nan")
    pipe.step(x, y)
    assert torch.isnan(pipe.grad_norm.result(WAIT_S))
    optimizer = sgd(eager.parameters())
    F.mse_loss(eager(x), y).backward()
    torch.nn.utils.clip_grad_norm_(eager.parameters(), 1.0)
    optimizer.step()
    for one, other in zip(pipe.module.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
    wrong: list[Any] = [-1.0, float("nan"), "1", True, torch.ones(())]
    for largest in wrong:
        refused(pw.PipelineError, "at least 0", functools.partial(pipes, Blocks(), clip_grad_norm=largest))
    pipe.clip_grad_norm = -2
    refused(pw.PipelineError, "at least 0, or None, got -2", lambda: pipe.step(x, y))


SCENARIOS: list[Scenario] = [
    numbers_that_decide,
    types,
    resumed,
    states_that_do_not_fit,
    clipped_gradients,
    norms_that_are_none,
]

if __name__ == "__main__":
    run({"updates": SCENARIOS}[sys.argv[1]], hosts=2, islands=2)
