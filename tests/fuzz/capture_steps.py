"""Makes training loops from a grammar and compares what captured and eager runs of each leave, in everything.

    python -m tests.fuzz.capture_steps FIRST COUNT

Prints one JSON line per seed whose runs differ, and a summary. A loop is a text: pieces of code that ordinary steps
have (counters, flags, schedulers, arguments on the CPU, hooks, aliases), some in the step, some around it.
"""

from __future__ import annotations

import json
import linecache
import random
import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

import torch

import ptpathways as pw

STEPS = 18


@dataclass(frozen=True)
class Piece:
    """What one property of a loop adds to its text. ``{n}`` in ``loop`` is the number of the call."""

    name: str
    setup: str = ""
    first: str = ""
    """In the step, before the forward pass."""
    loss: str = ""
    """In the step, with ``loss``, before the backward pass."""
    last: str = ""
    """In the step, after the optimizer."""
    loop: str = ""
    """Before each call."""
    after: str = ""
    """After each call; ``loss`` is what it returned."""
    argument: str = ""
    """``name=expression``: one more argument."""


PIECES = (
    Piece("scheduler outside", "schedule = lr.StepLR(optimizer, 3, 0.7)", after="schedule.step()"),
    Piece("scheduler inside", "schedule = lr.CosineAnnealingLR(optimizer, 16)", last="schedule.step()"),
    Piece("scheduler with rare steps inside", "rare = lr.StepLR(optimizer, 7, 0.5)", last="rare.step()"),
    Piece("own counter", "t.n = 0", last="t.n += 1", loss="loss = loss * (1.0 if t.n % 4 else 2.0)"),
    Piece("counter nobody reads", "t.calls = 0", last="t.calls += 1"),
    Piece("cycle", "t.turn = 0", first="t.turn = (t.turn + 1) % 3", loss="loss = loss * (1 + t.turn)"),
    Piece(
        "flag reset inside",
        "t.fresh = True",
        "if t.fresh:\n    hidden.zero_()\n    t.fresh = False",
        loop="if n % 6 == 0: t.fresh = True",
    ),
    Piece(
        "flag from outside",
        "t.double = False",
        loss="loss = loss * 2 if t.double else loss",
        loop="t.double = n % 7 == 5",
    ),
    Piece("hidden attribute", loss="loss = loss * t.factor", loop="if n == 9: t.factor = 3.0"),
    Piece("global number", "box = {'k': 1.0}", loss="loss = loss * box['k']", loop="box['k'] = 1.0 if n < 8 else 2.5"),
    Piece("list of numbers", "row = [1.0, 2.0]", loss="loss = loss * row[1]", loop="row[1] = 2.0 if n < 10 else 0.5"),
    Piece(
        "branch on the rate",
        loss="loss = loss * (3.0 if optimizer.param_groups[0]['lr'] < 0.04 else 1.0)",
        loop="optimizer.param_groups[0]['lr'] = 0.05 - 0.002 * n",
    ),
    Piece("momentum changes", loop="optimizer.param_groups[0]['momentum'] = 0.5 + 0.02 * n"),
    Piece(
        "lengths on the CPU",
        argument="lengths=torch.tensor([3, 2]) if n < 8 else torch.tensor([8, 5])",
        first="x = x[:, : int(lengths.max())]\nx = F.pad(x, (0, 8 - x.shape[1]))",
    ),
    Piece(
        "clamped on the CPU",
        argument="extra=torch.full((4, 8), 0.5 if n < 8 else 9.0)",
        first="x = x + extra.clamp(-2, 2).to(place)",
    ),
    Piece(
        "two masks",
        argument="one=torch.ones(4, 1), other=torch.ones(4, 1) if n < 8 else torch.zeros(4, 1)",
        loss="loss = loss + (model(x) * one.to(place)).mean() + 0.1 * (model(x) * other.to(place)).sum()",
    ),
    Piece(
        "the same twice",
        argument="first=x, second=x if n < 8 else x + 1",
        loss="loss = loss + (first.to(place) * second.to(place)).mean() * model[0].weight.mean()",
    ),
    Piece("scalar on the CPU", argument="scale=torch.tensor(0.5 + 0.1 * n)", loss="loss = loss * scale.to(place)"),
    Piece(
        "branch on a scalar", argument="level=torch.tensor(0.1 * n)", loss="loss = loss * (2.0 if level > 0.8 else 1.0)"
    ),
    Piece("number argument", argument="beta=0.5 if n < 9 else 0.25", loss="loss = loss * beta"),
    Piece(
        "statistics as an argument",
        "totals = {'sum': torch.zeros(1, device=place)}",
        argument="totals=totals",
        last="totals['sum'] += loss.detach()",
    ),
    Piece(
        "parameters as an argument",
        argument="weights=list(model.parameters())",
        loss="loss = loss + 0.01 * sum(w.square().sum() for w in weights)",
    ),
    Piece(
        "target network",
        "target = copy.deepcopy(model)",
        loss="with torch.no_grad(): aim = target(x)\nloss = loss + F.mse_loss(model(x), aim)",
        last="with torch.no_grad():\n    for a, b in zip(target.parameters(), model.parameters()): a.lerp_(b, 0.1)",
    ),
    Piece(
        "target every few steps",
        "target = copy.deepcopy(model)\nt.k = 0",
        loss="with torch.no_grad(): aim = target(x)\nloss = loss + F.mse_loss(model(x), aim)",
        last="t.k += 1\nif t.k % 5 == 0: target.load_state_dict(model.state_dict())",
    ),
    Piece("kept loss", "kept = []", last="t.loss = loss.detach()", after="kept.append(t.loss)"),
    Piece("kept gradients", "kept = []", after="kept.append([p.grad for p in model.parameters()][0])"),
    Piece("kept views of gradients", "kept = []", after="kept.append(model[0].weight.grad.detach())"),
    Piece("hook later", loop="if n == 8: model[0].weight.register_hook(lambda g: g * 2)"),
    Piece("forward hook later", loop="if n == 8: model[0].register_forward_hook(lambda m, a, o: o * 2)"),
    Piece(
        "mode inside",
        last="model.eval()",
        loss="loss = loss * (2.0 if model.training else 1.0)",
        loop="if n % 5 == 0: model.train()",
    ),
    Piece("freeze", loop="model[0].requires_grad_(n not in (7, 8, 9, 10))"),
    Piece("data assigned", loop="if n == 8: model[0].weight.data = torch.ones(16, 8, device=place) * 0.1"),
    Piece(
        "buffer data assigned",
        loss="loss = loss * scale_buffer.mean()",
        setup="scale_buffer = torch.ones(3, device=place)",
        loop="if n == 8: scale_buffer.data = torch.full((3,), 2.0, device=place)",
    ),
    Piece(
        "array behind a tensor",
        "array = np.ones((4, 1), np.float32)\nrows = torch.from_numpy(array)",
        loss="loss = loss + (model(x) * rows.to(place)).mean()",
        loop="if n == 8: array[:2] = 5.0",
    ),
    Piece(
        "array",
        "array = np.ones(4, np.float32)",
        loss="loss = loss * float(array[1])",
        loop="if n == 8: array[1] = 3.0",
    ),
    Piece("list turned in the step", "turned = [1.0, 3.0]", first="turned.reverse()", loss="loss = loss * turned[0]"),
    Piece("set", "chosen = {1}", loss="loss = loss * (2.0 if 2 in chosen else 1.0)", loop="if n == 8: chosen.add(2)"),
    Piece(
        "generator of one's own", "own = random.Random(3)", loss="loss = loss * (2.0 if own.random() < 0.2 else 1.0)"
    ),
    Piece("iterator", "numbers = iter([1.0] * 6 + [2.0] * 40)", loss="loss = loss * next(numbers)"),
    Piece("history in the step", "t.history = []", last="t.history.append(len(t.history))"),
    Piece("history outside", "t.past = []", after="t.past.append(n)"),
    Piece(
        "function attribute",
        "def scaled(v): return v * scaled.k\nscaled.k = 1.0",
        loss="loss = scaled(loss)",
        loop="if n == 8: scaled.k = 2.0",
    ),
    Piece(
        "dataclass",
        "config = Config(1.0)",
        loss="loss = loss * (2.0 if config == Config(2.0) else 1.0)",
        loop="if n == 8: config.level = 2.0",
    ),
    Piece("slots", "slotted = Slotted(1.0)", loss="loss = loss * slotted.level", loop="if n == 8: slotted.level = 2.0"),
    Piece(
        "match",
        "config = Config(1.0)",
        loss="match config:\n    case Config(level=2.0): loss = loss * 2\n    case _: pass",
        loop="if n == 8: config.level = 2.0",
    ),
    Piece(
        "two in one buffer",
        "shadow = hidden.clone()",
        first="hidden.copy_(shadow)\nhidden.add_(1)",
        loss="loss = loss + 0.01 * (hidden - shadow).mean()",
    ),
    Piece(
        "previous weights",
        "before = model[0].weight.detach().clone()",
        loss="loss = loss + (model[0].weight - before).square().sum()",
        last="before.copy_(model[0].weight.detach())",
    ),
    Piece("accumulation", "t.m = 0", last="", first="t.m = (t.m + 1) % 2\nif t.m: optimizer.zero_grad()"),
    Piece(
        "lookahead",
        "slow = [p.detach().clone() for p in model.parameters()]\nt.k6 = 0",
        last="t.k6 = (t.k6 + 1) % 3\nif t.k6 == 0:\n    with torch.no_grad():\n"
        "        for s, p in zip(slow, model.parameters()): s.lerp_(p, 0.5); p.copy_(s)",
    ),
    Piece("clipping", last="", loss="", first="", setup="", after="", loop=""),
    Piece(
        "result of a closure",
        "state = {'h': torch.zeros(4, 16, device=place)}",
        loss="state['h'] = torch.tanh(state['h'].detach() + model[0](x))\nloss = loss + state['h'].mean()",
    ),
    Piece(
        "nonlocal",
        "level = 1.0\ndef raise_level():\n    global level\n    level += 0.0",
        first="raise_level()",
        loss="loss = loss * level",
        loop="if n == 8: level = 2.0",
    ),
)
OPTIMIZERS = (
    "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)",
    "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01, nesterov=True)",
    "torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)",
    "torch.optim.Adagrad(model.parameters(), lr=0.05, lr_decay=0.1)",
    "torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.3)",
)
HEAD = """import copy, random
import numpy as np
import torch
from dataclasses import dataclass
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as lr
class Trainer:
    factor = 1.0
t = Trainer()
@dataclass
class Config:
    level: float
class Slotted:
    __slots__ = ("level",)
    def __init__(self, level): self.level = level
"""


def text_of(seed: int) -> tuple[str, list[str]]:
    """A loop, and the names of its pieces."""
    chance = random.Random(seed)
    pieces = chance.sample(PIECES, chance.choice([1, 1, 2, 2, 3]))
    optimizer = chance.choice(OPTIMIZERS)
    if any("momentum" in piece.loop for piece in pieces) and "momentum" not in optimizer:
        optimizer = OPTIMIZERS[0]
    lines = [HEAD, "model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(place)"]
    lines += ["hidden = torch.zeros(3, device=place)", f"optimizer = {optimizer}"]
    lines += [piece.setup for piece in pieces]
    own = [part.strip() for piece in pieces if piece.argument for part in _arguments(piece.argument)]
    names = [part.split("=")[0] for part in own]
    lines += ["@capture", f"def step({', '.join(['x', 'y', *names])}):"]
    body = ["x, y = x.to(place), y.to(place)"] if chance.random() < 0.7 else ["x = x.to(place)", "y = y.to(place)"]
    body += [piece.first for piece in pieces]
    if not any(piece.name == "accumulation" for piece in pieces):
        body.append("optimizer.zero_grad()")
    body += ["loss = F.mse_loss(model(x), y)", *(piece.loss for piece in pieces), "loss.backward()"]
    body += ["optimizer.step()", *(piece.last for piece in pieces), "return loss.detach()"]
    lines += ["    " + line for part in body for line in part.split("\n") if line]
    lines += ["losses = []", "for n, (x, y) in enumerate(batches):"]
    loop = [piece.loop for piece in pieces]
    loop += [f"loss = step({', '.join(['x', 'y', *own])})", "losses.append(loss)", *(piece.after for piece in pieces)]
    lines += ["    " + line for part in loop for line in part.split("\n") if line]
    return "\n".join(lines) + "\n", [piece.name for piece in pieces] + [optimizer.split("(")[0]]


def _arguments(text: str) -> list[str]:
    """The parts of a list of keyword arguments."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def run(text: str, name: str, place: torch.device, capture: Any) -> dict[str, Any]:
    """What a loop leaves behind: everything by name, as lists of numbers or texts."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    batches = [(torch.randn(4, 8, generator=generator), torch.randn(4, 1, generator=generator)) for _ in range(STEPS)]
    space: dict[str, Any] = {"place": place, "capture": capture, "batches": batches, "__name__": "__main__"}
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), space)
    found: dict[str, Any] = {"losses": [float(loss) for loss in space["losses"]]}
    for name, parameter in space["model"].named_parameters():
        found[f"model.{name}"] = numbers(parameter)
        found[f"model.{name}.grad"] = None if parameter.grad is None else numbers(parameter.grad)
    for number, slots in enumerate(space["optimizer"].state.values()):
        found |= {f"state {number} {key}": numbers(value) for key, value in slots.items() if value is not None}
    for group in space["optimizer"].param_groups:
        found["lr"] = float(group["lr"])
    found["model.training"] = space["model"].training
    for key, value in {**vars(space["t"]), **space}.items():
        if key.startswith("__") or key in ("batches", "loss", "losses", "x", "y"):
            continue
        if isinstance(value, torch.Tensor):
            found[f"left {key}"] = numbers(value)
        elif isinstance(value, bool | int | float | str):
            found[f"left {key}"] = value
        elif isinstance(value, list) and key != "losses":
            found[f"left {key}"] = [numbers(one) if isinstance(one, torch.Tensor) else one for one in value]
        elif isinstance(value, dict) and key in ("totals", "state", "box"):
            found[f"left {key}"] = {k: numbers(v) if isinstance(v, torch.Tensor) else v for k, v in value.items()}
    return found


def numbers(value: Any) -> Any:
    """A tensor as a list."""
    return value.detach().cpu().double().reshape(-1).tolist() if isinstance(value, torch.Tensor) else value


def difference(one: Any, other: Any, at: str = "") -> str:
    """Where two of what ``run`` gives differ; empty if nowhere."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return f"{at} has {sorted(one.keys() ^ other.keys())} only once"
        return next((text for key in one if (text := difference(one[key], other[key], f"{at} {key}"))), "")
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return f"{at} has {len(one)} and {len(other)} elements"
        pairs = enumerate(zip(one, other, strict=True))
        return next((text for place, (a, b) in pairs if (text := difference(a, b, f"{at}[{place}]"))), "")
    if isinstance(one, float) or isinstance(other, float):
        near = abs(float(one) - float(other)) <= 2e-3 * abs(float(one)) + 2e-4
        return "" if near else f"{at}: {one} and {other}"
    return "" if one == other else f"{at}: {one!r} and {other!r}"


def check(seed: int) -> dict[str, Any]:
    """Runs one loop in all ways; ``wrong`` says what differs."""
    text, pieces = text_of(seed)
    name = f"<loop {seed}>"
    outcome: dict[str, Any] = {"seed": seed, "pieces": pieces, "wrong": "", "told": []}
    try:
        eager = run(text, name, torch.device("cpu"), lambda function: function)
    except Exception as error:  # pieces that do not go together
        return {**outcome, "invalid": str(error), "replays": 0}
    made: list[Any] = []
    captured: dict[str, Any] | None = None

    def capture(function: Any) -> Any:
        made.append(pw.program(function, kind="step"))
        return made[-1]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            captured = run(text, name, pw.device(), capture)
            outcome["wrong"] = difference(eager, captured)
        except pw.CaptureMismatch as error:
            outcome["mismatch"] = str(error)
        except Exception as error:
            outcome["wrong"] = f"{type(error).__name__}: {error}"
    outcome["told"] = [str(one.message)[:200] for one in caught if issubclass(one.category, pw.CaptureWarning)]
    outcome["replays"] = made[0].replays if made else 0
    if outcome["wrong"] and captured is not None:  # rounding grows in some loops: then a lazy run differs as well
        lazy = run(text, name, pw.device(), _lazily)
        if difference(eager, lazy):
            outcome["wrong"] = difference(lazy, captured)
    return outcome


def _lazily(function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        pw.step()
        return result

    return call


def main(first: int, count: int) -> int:
    pw.init(hosts=1, devices_per_host=1)
    started = time.monotonic()
    totals = {"loops": 0, "replayed": 0, "told": 0, "mismatch": 0, "wrong": 0}
    for seed in range(first, first + count):
        outcome = check(seed)
        totals["loops"] += "invalid" not in outcome
        totals["replayed"] += outcome["replays"] > 0
        totals["told"] += bool(outcome["told"])
        totals["mismatch"] += "mismatch" in outcome
        totals["wrong"] += bool(outcome["wrong"])
        if outcome["wrong"] or "mismatch" in outcome:
            print(json.dumps(outcome), flush=True)
    print(json.dumps({**totals, "seconds": round(time.monotonic() - started, 1)}), flush=True)
    return 1 if totals["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
