"""A GPT-2 training step in plain PyTorch: saved from here for `ptpathways replay` on a GPU, or run there by PyTorch.

``python -m tests.device.gpt2_step save FILE`` captures the step on simulated devices and saves it; with ``--values N``
on a CPU device, with all values, and prints the loss after 2N + 1 more steps by PyTorch on the CPU, which is what
`replay FILE --chain --repeat N` gives.
``python -m tests.device.gpt2_step torch [--compile]`` runs it with PyTorch's own CUDA kernels, on a machine that need
not have torch_xla, and prints the milliseconds of a step.

AdamW, bfloat16 autocast, cross-entropy in float32; 124 million parameters and 8 x 1,024 tokens unless told otherwise.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ptpathways.bench._models import Block


class GPT2(nn.Module):
    """Heads have 64 dimensions; the last layer shares the embedding's weight."""

    def __init__(self, layers: int, width: int, length: int, vocabulary: int) -> None:
        super().__init__()
        heads = width // 64
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        blocks = [Block(width, heads) for _ in range(layers)]
        for block in blocks:
            block.mlp[1] = nn.GELU(approximate="tanh")
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits ``[batch, length, vocabulary]`` of tokens ``[batch, length]``."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


def _model(arguments: argparse.Namespace) -> GPT2:
    return GPT2(arguments.layers, arguments.width, arguments.length, arguments.vocabulary)


def step_of(
    model: Callable[[torch.Tensor], torch.Tensor], optimizer: Any, mixed: bool = True
) -> Callable[..., torch.Tensor]:
    """One step of training on ``[batch, length + 1]`` tokens, ``mixed`` in bfloat16 and float32; returns the loss."""

    def step(tokens: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=mixed):
            logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def save(arguments: argparse.Namespace) -> None:
    """Captures the step on one CPU device and writes it to ``arguments.file``."""
    import ptpathways as pw

    # Without values nothing has to be computed here, which would take more memory than most hosts have.
    pw.init(hosts=1) if arguments.values else pw.init(simulated=pw.Simulated())
    torch.manual_seed(0)
    mixed = not arguments.float32
    model = _model(arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batch = torch.randint(0, arguments.vocabulary, (arguments.batch, arguments.length + 1))
    tokens = batch.to(pw.device())
    model, optimizer, step = pw.prepare(model, optimizer, step_of(model, optimizer, mixed), capture=True)
    for number in range(4):
        start = time.perf_counter()
        print(f"call {number}: loss {float(step(tokens)):.4f} after {time.perf_counter() - start:.1f} s", flush=True)
    step.save(arguments.file, tokens)
    values = {"argument0": batch}
    if arguments.values:
        values |= {f"model.{name}": value for name, value in model.state_dict().items()}
        for place, state in optimizer.state_dict()["state"].items():
            values |= {f"optimizer.state.{place}.{name}": value for name, value in state.items()}
    _add_values(arguments.file, values)
    if arguments.values:
        print("loss", _continued(model, optimizer, batch, mixed, arguments), flush=True)


def _add_values(file: str, values: dict[str, torch.Tensor]) -> None:
    """Gives the saved program's arguments their values, by name."""
    from ptpathways import programs

    bundle = programs.Bundle.load(file)
    named = {node.outputs[0].name: number for number, node in enumerate(bundle.program.arguments)}
    own = {}
    for name, value in values.items():
        if name in named:
            kind = bundle.program.arguments[named[name]].outputs[0].type.dtype
            own[named[name]] = value.detach().cpu().numpy().astype(programs.numpy_dtype(kind))
    dataclasses.replace(bundle, values={**bundle.values, **own}).save(file)


def _continued(model: nn.Module, optimizer: Any, batch: torch.Tensor, mixed: bool, arguments: Any) -> float:
    """The loss of the last of the steps that follow, by PyTorch on the CPU."""
    plain = _model(arguments)
    plain.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    follower = torch.optim.AdamW(plain.parameters(), lr=3e-4)
    state = optimizer.state_dict()["state"]
    for place, parameter in enumerate(plain.parameters()):
        follower.state[parameter] = {name: value.cpu() for name, value in state[place].items()}
    step = step_of(plain, follower, mixed)
    return [float(step(batch)) for _ in range(2 * arguments.values + 1)][-1]


def run(arguments: argparse.Namespace) -> None:
    """The same step by PyTorch on its GPU: one JSON line."""
    torch.set_float32_matmul_precision("high")
    model = _model(arguments).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    called = torch.compile(model) if arguments.compile else model
    tokens = torch.randint(0, arguments.vocabulary, (arguments.batch, arguments.length + 1), device="cuda")
    step = step_of(called, optimizer, not arguments.float32)
    start = time.perf_counter()
    first = float(step(tokens))
    compiled = time.perf_counter() - start
    for _ in range(5):
        step(tokens)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(arguments.repeat):
        last = step(tokens)
    torch.cuda.synchronize()
    took = (time.perf_counter() - start) * 1e3 / arguments.repeat
    what = "torch.compile" if arguments.compile else "eager"
    print(
        json.dumps(
            {
                "system": f"torch {torch.__version__}, {what}",
                "device": torch.cuda.get_device_name(),
                "ms_a_step": round(took, 3),
                "first_step_s": round(compiled, 2),
                "first_loss": first,
                "last_loss": float(last),
                "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
            }
        )
    )


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    saving = commands.add_parser("save", help="capture it here and save it")
    saving.add_argument("file")
    saving.add_argument(
        "--values", type=int, default=0, metavar="N", help="save all values; the loss after 2N + 1 steps"
    )
    saving.set_defaults(run=save)
    running = commands.add_parser("torch", help="run it with PyTorch on a GPU")
    running.add_argument("--compile", action="store_true", help="with torch.compile")
    running.add_argument("--repeat", type=int, default=30)
    running.set_defaults(run=run)
    for each in (saving, running):
        each.add_argument("--layers", type=int, default=12)
        each.add_argument("--width", type=int, default=768)
        each.add_argument("--vocabulary", type=int, default=50_304)
        each.add_argument("--batch", type=int, default=8)
        each.add_argument("--length", type=int, default=1024)
        each.add_argument("--float32", action="store_true", help="without autocast")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
