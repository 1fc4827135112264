"""Makes training loops from a grammar and compares what captured and eager runs of each leave, in everything.

    python -m tests.fuzz.capture_steps FIRST COUNT
    python -m tests.fuzz.capture_steps found    # those that were wrong once
    python -m tests.fuzz.capture_steps reach    # one for each piece of reach_pieces; also given, shared

Prints one JSON line per seed whose runs differ, and a summary, also after Ctrl-C. A loop is a text: pieces of code that
ordinary steps have (counters, flags, schedulers, arguments on the CPU, hooks, aliases), some in it, some around it.
"""

from __future__ import annotations

import json
import linecache
import random
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

import ptpathways as pw
from tests.fuzz import given_pieces, reach_pieces, sharing_pieces
from tests.fuzz import pieces as plain_pieces
from tests.fuzz.pieces import OPTIMIZERS, Piece

STEPS = 18
GROUPS = {"reach": reach_pieces.REACH, "given": given_pieces.GIVEN, "shared": sharing_pieces.SHARED}
PIECES = (*plain_pieces.PIECES, *(piece for group in GROUPS.values() for piece in group))
HEAD = plain_pieces.HEAD + reach_pieces.HEAD

Loop = tuple[str, list[str]]
"""Its text, and the names of its pieces."""

FOUND = (
    ("early stop", "view kept", "optimizer loaded", "AdamW"),
    ("kept views of gradients", "accumulation", "RMSprop"),
    ("state passed on", "SGD"),
    ("spectral norm on top", "SGD"),
    ("warm-up from 0", "gradients of 0", "AdamW"),
    ("number like the rate", "AdamW"),
    ("sparse", "no rows", "SGD"),
    ("state passed on", "rows that vary", "SGD"),
)
"""Loops that were found wrong once: names of pieces and of an optimizer."""


def loop_of(seed: int) -> Loop:
    """One of the loops of the grammar, by its number. Another one when the grammar has more pieces."""
    chance = random.Random(seed)
    pieces = chance.sample(PIECES, chance.choice([1, 1, 2, 2, 3]))
    optimizer = chance.choice(OPTIMIZERS)
    if any("momentum" in piece.loop for piece in pieces) and "momentum" not in optimizer:
        optimizer = OPTIMIZERS[0]
    return _compose(pieces, optimizer, chance.random() < 0.7)


def loop_named(*names: str) -> Loop:
    """The loop of these pieces, the last of which is an optimizer."""
    optimizer = next(text for text in OPTIMIZERS if f".{names[-1]}(" in text)
    known = {piece.name: piece for piece in PIECES}
    return _compose([known[name] for name in names[:-1]], optimizer, True)


def _compose(pieces: Sequence[Piece], optimizer: str, together: bool) -> Loop:
    """``together``: both tensors are uploaded by one line."""
    lines = [HEAD, "model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(place)"]
    lines += ["hidden = torch.zeros(3, device=place)", f"optimizer = {optimizer}"]
    lines += [piece.setup for piece in pieces]
    own = [part.strip() for piece in pieces if piece.argument for part in _arguments(piece.argument)]
    names = [part.split("=")[0] for part in own]
    lines += ["@capture", f"def step({', '.join(['x', 'y', *names])}):"]
    body = ["x, y = x.to(place), y.to(place)"] if together else ["x = x.to(place)", "y = y.to(place)"]
    body += [piece.first for piece in pieces]
    if not any(piece.name == "accumulation" for piece in pieces):
        body.append("optimizer.zero_grad()")
    body += ["loss = F.mse_loss(model(x), y)", *(piece.loss for piece in pieces), "loss.backward()"]
    body += [
        *(piece.grads for piece in pieces),
        "optimizer.step()",
        *(piece.last for piece in pieces),
        "return loss.detach()",
    ]
    lines += ["    " + line for part in body for line in part.split("\n") if line]
    lines += ["losses = []", "for n, (x, y) in enumerate(batches):"]
    loop = [piece.loop for piece in pieces]
    loop += [f"try: loss = step({', '.join(['x', 'y', *own])})", "except ValueError: loss = torch.zeros(())"]
    loop += ["losses.append(loss)", *(piece.after for piece in pieces)]
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
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # else rounding that grows would hide what is wrong, or look like it
    try:
        return _run(text, name, place, capture)
    finally:
        torch.set_default_dtype(before)


def _run(text: str, name: str, place: torch.device, capture: Any) -> dict[str, Any]:
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
        one, other = float(one), float(other)
        near = abs(one - other) <= 1e-6 * abs(one) + 1e-8 or one == other or (one != one and other != other)
        return "" if near else f"{at}: {one} and {other}"
    return "" if one == other else f"{at}: {one!r} and {other!r}"


def check(loop: Loop, number: int) -> dict[str, Any]:
    """Runs one loop in all ways; ``wrong`` says what differs."""
    text, pieces = loop
    name = f"<loop {number}>"
    outcome: dict[str, Any] = {"seed": number, "pieces": pieces, "wrong": "", "told": []}
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


def main(loops: Iterable[tuple[int, Loop]]) -> int:
    pw.init(hosts=1, devices_per_host=1)
    started = time.monotonic()
    totals = {"loops": 0, "replayed": 0, "told": 0, "mismatch": 0, "wrong": 0}
    try:
        for number, loop in loops:
            outcome = check(loop, number)
            totals["loops"] += "invalid" not in outcome
            totals["replayed"] += outcome["replays"] > 0
            totals["told"] += bool(outcome["told"])
            totals["mismatch"] += "mismatch" in outcome
            totals["wrong"] += bool(outcome["wrong"])
            if outcome["wrong"] or "mismatch" in outcome or sys.argv[-1] == "-v":
                print(json.dumps(outcome), flush=True)
    except KeyboardInterrupt:
        print(f"ended in loop {number}", file=sys.stderr)
    print(json.dumps({**totals, "seconds": round(time.monotonic() - started, 1)}), flush=True)
    return 1 if totals["wrong"] or totals["mismatch"] else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["found"]:
        chosen = [(number, loop_named(*names)) for number, names in enumerate(FOUND)]
    elif sys.argv[1] in GROUPS:
        chosen = [(n, _compose([piece], OPTIMIZERS[0], True)) for n, piece in enumerate(GROUPS[sys.argv[1]])]
    else:
        first, count = int(sys.argv[1]), int(sys.argv[2])
        chosen = [(seed, loop_of(seed)) for seed in range(first, first + count)]
    sys.exit(main(chosen))
