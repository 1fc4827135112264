"""Small formulas of one shape, thousands in one process, on a device and on the CPU.

PyTorch/XLA finds compiled computations by a hash. A hash that leaves something out (which input is used where, an
attribute of an operation) takes one formula for another that has been computed before. So all formulas here have the
same few operations, inputs and shapes, and differ in what they use where, in attributes, and in what they return.

``python -m tests.fuzz.formulas FIRST COUNT`` prints those whose results are not the CPU's.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

import ptpathways as pw

Values = list[torch.Tensor]
SIZE = 4
INPUTS, STEPS, RESULTS = 3, 4, 3


def _binary(draw: random.Random) -> tuple[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    alpha = draw.choice((1, 2, 0.5))
    rounding = draw.choice(("floor", "trunc"))
    weight = draw.choice((0.25, 0.75))
    return draw.choice(
        [
            ("multiply", lambda x, y: x * y),
            (f"add {alpha}", lambda x, y: torch.add(x, y, alpha=alpha)),
            (f"subtract {alpha}", lambda x, y: torch.sub(x, y, alpha=alpha)),
            ("maximum", torch.maximum),
            ("where", lambda x, y: torch.where(x > y, x, y * 2)),
            ("matrices", lambda x, y: x @ y * 0.1),
            (f"divide {rounding}", lambda x, y: torch.div(x, y.abs() + 1, rounding_mode=rounding)),
            (f"lerp {weight}", lambda x, y: torch.lerp(x, y, weight)),
            ("rows", lambda x, y: torch.cat([x[:2], y[2:]])),
        ]
    )


def _unary(draw: random.Random) -> tuple[str, Callable[[torch.Tensor], torch.Tensor]]:
    dim, count, number = draw.randrange(2), draw.choice((1, 2, 3)), draw.choice((0.5, 1.5, 2.0))
    descending, correction = draw.random() < 0.5, draw.choice((0, 1))
    return draw.choice(
        [
            ("sine", torch.sin),
            ("transpose", lambda x: x.t() + 0),
            (f"roll {count} {dim}", lambda x: x.roll(count, dim)),
            (f"sum {dim}", lambda x: x.sum(dim, keepdim=True).expand(SIZE, SIZE) * 0.25),
            (f"running sum {dim}", lambda x: x.cumsum(dim) * 0.25),
            (f"softmax {dim}", lambda x: x.softmax(dim)),
            (f"clamp {number}", lambda x: x.clamp(-number, number)),
            (f"elu {number}", lambda x: torch.nn.functional.elu(x, number)),
            (f"leaky {number}", lambda x: torch.nn.functional.leaky_relu(x, number / 4)),
            (f"sort {dim} {descending}", lambda x: x.sort(dim, descending=descending).values),
            (f"deviation {dim} {correction}", lambda x: x.var(dim, correction=correction, keepdim=True) + x),
            (f"norm {dim} {count}", lambda x: x.norm(count, dim, keepdim=True) + x),
            (f"flip {dim}", lambda x: x.flip(dim)),
            (f"diagonal {count}", lambda x: x.triu(count - 2)),
            (f"power {number}", lambda x: x.abs() ** number),
            (f"pad {count}", lambda x: torch.nn.functional.pad(x, (count, 0))[:, :SIZE]),
            (f"pooled {count}", lambda x: torch.nn.functional.avg_pool1d(x, 3, 1, 1, count_include_pad=count > 1)),
        ]
    )


class Formula:
    """What ``seed`` makes of its inputs; ``text`` has it in words."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self._steps: list[Callable[[Values], torch.Tensor]] = []
        words = []
        for number in range(INPUTS, INPUTS + draw.randint(2, STEPS)):
            places = [draw.randrange(number) for _ in range(2)]
            kind = draw.random()
            if kind < 0.6:
                name, function = _binary(draw)
                self._steps.append(lambda v, f=function, p=places: f(v[p[0]], v[p[1]]))  # type: ignore[misc]
                words.append(f"v{number} = {name}(v{places[0]}, v{places[1]})")
            elif kind < 0.95 or number == INPUTS:
                name, alone = _unary(draw)
                self._steps.append(lambda v, f=alone, p=places: f(v[p[0]]))  # type: ignore[misc]
                words.append(f"v{number} = {name}(v{places[0]})")
            else:
                place = draw.randrange(INPUTS, number)
                self._steps.append(lambda v, p=places, at=place: v[at].clone().add_(v[p[1]]))  # type: ignore[misc]
                words.append(f"v{number} = v{place}.clone().add_(v{places[1]})")
        made = range(INPUTS, INPUTS + len(self._steps))
        self._results = [made[-1], *(draw.choice(made) for _ in range(draw.randrange(RESULTS)))]
        self.text = "; ".join([*words, f"return {self._results}"])

    def __call__(self, inputs: Values) -> Values:
        values = list(inputs)
        for step in self._steps:
            values.append(step(values))
        return [values[place] for place in self._results]


def check(seeds: Iterable[int], device: torch.device, say: Callable[[str], None]) -> int:
    """How many formulas have other results on ``device``; says which."""
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(SIZE, SIZE, generator=generator) for _ in range(INPUTS)]
    there = [value.to(device) for value in given]
    wrong = 0
    for seed in seeds:
        formula = Formula(seed)
        expected = formula(given)
        found = formula(there)
        pw.step()
        differing = [
            place
            for place, (one, other) in enumerate(zip(expected, found, strict=True))
            if not torch.allclose(one, other.cpu(), rtol=1e-4, atol=1e-4)
        ]
        if differing:
            wrong += 1
            say(f"seed {seed}: result {differing[0]} of {formula.text}")
    return wrong


def main(first: int, count: int) -> Any:
    pw.init(hosts=1, devices_per_host=1, recompiles="ignore")
    warnings.simplefilter("ignore")
    wrong = check(range(first, first + count), pw.device(), lambda text: print(text, flush=True))
    print(f"{count} formulas, {wrong} wrong", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
