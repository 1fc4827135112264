"""Loops of every kind, as PyTorch users write them: on a cluster as in eager PyTorch. A program: one process.

    python loop_scenarios.py HOSTS DEVICES_PER_HOST [NAME...]

A loop is a generator that yields, once per step, what is compared: a number, a tensor, or a list of them. A text says
that from here on something else is done, which may be compiled anew. Each loop runs in eager PyTorch first and then on
the devices, from the same seed. Nothing is fetched before it ends, unless it does so itself. Prints one JSON object:
for each loop both lists of numbers, and how many computations each step compiled.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import Any

import torch

import ptpathways as pw
from tests import inside
from tests.proc import loop_mistakes, loops_of_models, loops_of_optimizers
from tests.proc.loop_basis import Loop, Place

LOOPS: tuple[Loop, ...] = (
    loops_of_optimizers.accumulation,
    loops_of_optimizers.clipping,
    loops_of_optimizers.nesterov,
    loops_of_models.adversarial,
    loops_of_optimizers.schedulers,
    loops_of_optimizers.optimizers,
    loops_of_optimizers.averaged,
    loops_of_models.recomputed,
    loops_of_models.recomputed_dropout,
    loops_of_models.functional,
    loops_of_models.evaluation,
    loops_of_optimizers.closures,
    loops_of_optimizers.line_search,
    loops_of_optimizers.frozen,
    loops_of_models.hooks,
    loops_of_optimizers.step_in_backward,
    loops_of_models.mixed_precision,
    loops_of_optimizers.scaled,
    loops_of_models.compiled,
    loops_of_models.compiled_by_default,
    loops_of_optimizers.early_stopping,
    loops_of_models.parametrized,
    loops_of_models.parametrized_there,
    loops_of_models.weight_norm_of_old,
    loops_of_optimizers.gradients_stay,
    loops_of_optimizers.saved,
    loops_of_models.two_losses,
    loops_of_models.recurrent,
)

MORE: tuple[Loop, ...] = (loops_of_optimizers.every_optimizer,)
"""Too slow for every test run: run when they are named."""


def compiles() -> int:
    """Computations that PyTorch/XLA has compiled so far."""
    return inside.counter("UncachedCompile")


def run(loop: Loop, place: Place) -> dict[str, Any]:
    torch.manual_seed(0)
    made: list[Any] = []
    compiled: dict[str, list[int]] = {}
    phase, steps, before = "", 0, compiles()
    for numbers in loop(place):
        if isinstance(numbers, str):
            phase = numbers
            continue
        made += numbers if isinstance(numbers, list) else [numbers]
        steps += 1
        compiled.setdefault(phase, []).append(compiles() - before)
        before = compiles()
    return {"numbers": [float(number) for number in made], "steps": steps, "compiled": compiled}


def main() -> None:
    hosts, devices = map(int, sys.argv[1:3])
    pw.init(hosts=hosts, devices_per_host=devices)
    eager = Place(lambda *things: things[0] if len(things) == 1 else things, torch.device("cpu"))
    cluster = Place(pw.prepare, pw.device())
    results: dict[str, Any] = {}
    for loop in [loop for loop in (*LOOPS, *MORE) if loop.__name__ in sys.argv[3:]] or LOOPS:
        start = time.monotonic()
        try:
            results[loop.__name__] = {"eager": run(loop, eager), "cluster": run(loop, cluster)}
        except Exception:
            results[loop.__name__] = {"error": traceback.format_exc()}
        print(f"{loop.__name__}: {time.monotonic() - start:.1f} s", file=sys.stderr)
    results["mistakes"] = loop_mistakes.all_of_them()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
