"""Process that checks cases. Argument: a file of JSON, a list of [operator, type, samples to leave out, samples
at most, evenly spread].

Prints a line before each sample, and one when the CPU is done with it, so that whoever started it knows what ended the
process or never ended; and one line of JSON after each case.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

import ptpathways as pw
from ptpathways import frontend
from tools.operators import _check, _database, _distributions

PROBLEMS_MAX = 6
VARIANTS_MAX = 4
"""Of so many samples of a case the in-place variant and the one with ``out`` are checked, too."""


def main() -> None:
    warnings.simplefilter("ignore")
    cases = json.loads(Path(sys.argv[1]).read_text())
    pw.init(hosts=1, devices_per_host=1)
    device = pw.device()
    known = _database.operators()
    for operator, dtype, left_out, limit in cases:
        if operator.startswith(_distributions.PREFIX):
            row = draw(operator, _database.DTYPES[dtype], device)
            print(json.dumps({"operator": operator, "dtype": dtype, **row}), flush=True)
            continue
        row = run(known[operator], operator, _database.DTYPES[dtype], device, left_out, limit)
        print(json.dumps({"operator": operator, "dtype": dtype, **row}), flush=True)


def run(
    operator: Any, name: str, dtype: torch.dtype, device: torch.device, left_out: Collection[int], limit: int
) -> dict[str, Any]:
    """The counts and the first problems of one case."""
    counts: Counter[str] = Counter()
    client: set[str] = set()
    problems: list[list[Any]] = []
    samples = list(_database.samples(operator, dtype))
    stride = max(1, -(-len(samples) // limit)) if limit else 1
    for number, sample in enumerate(samples):
        if number in left_out or number % stride:
            continue
        for variant in _variants(operator, sample, number):
            print(f"sample {number} {variant}", flush=True)
            check = {"": _check.check, "in place": _check.check_in_place, "out": _check.check_out}[variant]
            verdict = check(operator, name, sample, dtype, device)
            if variant and verdict.kind == _check.NOT_ON_CPU:
                continue
            counts[verdict.kind] += 1
            client.update(verdict.client)
            known = [text for kind, *_, text in problems if kind == verdict.kind]
            if verdict.what and len(known) < PROBLEMS_MAX and verdict.what not in known:
                problems.append([verdict.kind, number, variant, verdict.what])
    return {"counts": dict(counts), "client": sorted(client), "problems": problems}


def draw(name: str, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """As ``run``, of a distribution."""
    print("sample 0 ", flush=True)
    _check.at_device()
    before = dict(frontend.client_operations())
    try:
        what = _distributions.check(name.removeprefix(_distributions.PREFIX), dtype, device)
        verdict = _check.Verdict(_check.WRONG if what else _check.RANDOM, what)
    except Exception as error:
        verdict = _check.refusal(error)
    after = frontend.client_operations()
    client = sorted(key for key, count in after.items() if count != before.get(key, 0))
    problems = [[verdict.kind, 0, "", verdict.what]] if verdict.what else []
    return {"counts": {verdict.kind: 1}, "client": client, "problems": problems}


def _variants(operator: Any, sample: Any, number: int) -> list[str]:
    found = [""]
    if number < VARIANTS_MAX:
        tensor = isinstance(sample.input, torch.Tensor) and not sample.broadcasts_input
        if operator.inplace_variant is not None and tensor:
            found.append("in place")
        if operator.supports_out:
            found.append("out")
    return found


if __name__ == "__main__":
    main()
