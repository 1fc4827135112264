"""Captured steps as programs, to be compiled for other devices. A program of its own: one process.

    python captured_target_scenarios.py FOLDER [TARGET...]

Saves steps in the folder, and prints one JSON object: what their programs are, what was refused and how, and what
compiling them for the targets found.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from ptpathways import programs
from ptpathways.sharding import Mesh

ROWS, WIDTH, HIDDEN = 16, 64, 256


def batch(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, WIDTH), torch.randn(rows, WIDTH)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Dropout(0.1), nn.Linear(HIDDEN, WIDTH))


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except pw.PathwaysError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


class Program:
    """What a saved step is."""

    def __init__(self, step: Any, path: Path, *arguments: Any) -> None:
        self.path = step.save(path, *arguments)
        self.bundle = programs.Bundle.load(self.path)

    def described(self) -> dict[str, Any]:
        program = self.bundle.program
        return {
            "slices": [str(part.mesh) for part in program.slices],
            "nodes": [node.kind.value for node in program.nodes if node.kind.value in ("compute", "transfer")],
            "arguments": {
                value.name: [value.type.on(program.slice(value.slice).mesh), node.donated]
                for node in program.arguments
                for value in node.outputs
            },
            "results": list(program.results),
            "donated": [len(function.donated) for function in program.functions],
            "own_calls": [
                call.decode()
                for module in self.bundle.modules.values()
                for call in (b"pathways.shard", b"pathways.collective", b"pathways.wait", b"onednn")
                if call in module
            ],
        }


def main(folder: Path, targets: list[str]) -> dict[str, Any]:
    cluster = pw.init(hosts=2, devices_per_host=2)
    torch.manual_seed(0)
    found: dict[str, Any] = {}

    # On all devices, with what a training loop has: autocast, dropout, an optimizer's state, a schedule.
    model = network().to(pw.device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)

    @pw.program
    def train(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("xla", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x.to(pw.device())), y.to(pw.device()))
        loss.backward()
        optimizer.step()
        return loss

    refused: dict[str, Any] = {"never called": refusal(lambda: train.compile_for("v5e:2x4", *batch()))}
    for _ in range(4):
        train(*batch())
        schedule.step()
    before = [parameter.detach().cpu() for parameter in model.parameters()]
    whole = Program(train, folder / "train.zip", *batch())
    found["train"] = whole.described()
    found["same without arguments"] = Program(train, folder / "again.zip").bundle.program == whole.bundle.program
    found["compiled"] = [dataclasses.asdict(train.compile_for(target, *batch())) for target in targets]
    found["untouched"] = all(
        torch.equal(old, parameter.detach().cpu()) for old, parameter in zip(before, model.parameters(), strict=True)
    )
    captured = train.replays + train.audits
    for _ in range(2):
        train(*batch())
    found["goes on"] = train.replays + train.audits == captured + 2
    refused["other shapes"] = refusal(lambda: train.compile_for("v5e:2x4", *batch(4)))
    refused["another structure"] = refusal(lambda: train.compile_for("v5e:2x4", batch()[0], y=batch()[1]))
    refused["target"] = refusal(lambda: train.compile_for("v9:2x4"))
    small = [f"{target.partition(':')[0]}:1x2" for target in targets]
    refused["too few devices"] = [refusal(functools.partial(train.compile_for, target)) for target in small]

    # By prepare, with a mesh of its own whose axes divide batches and a parameter.
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
    momentum = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        momentum.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        momentum.step()
        return loss

    data: Any = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*batch(5 * ROWS)), batch_size=ROWS)

    def lies(name: str, parameter: Tensor) -> tuple[str | None, ...] | None:
        return ("model", None) if name == "0.weight" else None

    mesh = Mesh((2, 2), ("data", "model"))
    model, momentum, data, prepared = pw.prepare(model, momentum, data, step, mesh=mesh, strategy=lies, capture=True)
    for x, y in data:
        prepared(x, y)
    found["prepared"] = Program(prepared, folder / "prepared.zip", *batch()).described()  # of the CPU: only types count
    found["prepared for"] = [dataclasses.asdict(prepared.compile_for(target)) for target in targets]

    # Over two slices, for batches of two sizes.
    slices = [cluster.slice(shape=(2,), axis_names=("data",)) for _ in range(2)]
    layers = [nn.Linear(WIDTH, WIDTH).to(slice.device) for slice in slices]
    adam = torch.optim.Adam([parameter for layer in layers for parameter in layer.parameters()])

    @pw.program
    def halves(x: Tensor) -> Tensor:
        adam.zero_grad()
        for layer, slice in zip(layers, slices, strict=True):
            x = layer(x.to(slice.device)).relu()
        loss = x.square().mean()
        loss.backward()
        adam.step()
        return loss

    for rows in (8, 8, 8, 8, 4, 4, 4):
        halves(torch.randn(rows, WIDTH))
    refused["several kinds"] = refusal(lambda: halves.save(folder / "none.zip"))
    found["halves"] = Program(halves, folder / "halves.zip", torch.randn(4, WIDTH)).described()

    # Of a method, and one that cannot be captured.
    class Evaluation:
        @pw.program
        def loss(self, x: Tensor) -> Tensor:
            loss: Tensor = layers[0](x.to(slices[0].device)).square().mean().detach()
            return loss

    evaluation = Evaluation()
    for _ in range(4):
        evaluation.loss(torch.randn(8, WIDTH))
    method = Program(Evaluation.loss, folder / "method.zip", evaluation, torch.randn(8, WIDTH))
    found["method"] = method.described()
    seen: list[float] = []

    @pw.program
    def keeps(x: Tensor) -> Tensor:
        seen.append(len(seen))
        total: Tensor = layers[0](x.to(slices[0].device)).sum().detach()
        return total

    for _ in range(4):
        keeps(torch.randn(8, WIDTH))
    refused["refused"] = refusal(lambda: keeps.compile_for("v5e:2x4"))
    found["refused"] = refused
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])))
