"""Compares every operator of PyTorch's database with the CPU, and writes docs/operators.md.

Usage::

    python -m tools.operators                                    # all; hours on two cores
    python -m tools.operators --only nn.functional.elu roll --output /dev/stdout
    python -m tools.operators --types float32 int64 --samples 3  # the first samples of each
    python -m tools.operators --shard 2/4                        # the second of four parts

What is done is kept in ``--results``, and a further run goes on from there; ``--again`` repeats what did not come out
right. An operator that ends or blocks its process is named, and the others go on. Exits with 1 when anything is wrong,
ends the process, hangs, or is refused without saying why.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.operators import _database, _distributions, _table, _watch
from tools.operators._database import DTYPES, Case

ROOT = Path(__file__).parents[2]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.operators", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", metavar="NAME", help="operators, as the database calls them; * for any")
    parser.add_argument("--types", nargs="*", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--samples", type=int, default=0, help="at most so many of each operator and type; 0: all")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="every N-th case, from the K-th")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds after which a sample counts as hanging")
    parser.add_argument("--again", action="store_true", help="repeat cases of the results that are not right")
    parser.add_argument("--results", type=Path, default=ROOT / "build/operators.jsonl")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/operators.md")
    return parser.parse_args(arguments)


def read_results(path: Path) -> dict[Case, _watch.Row]:
    """The latest row of each case."""
    rows: dict[Case, _watch.Row] = {}
    if path.exists():
        for text in path.read_text().splitlines():
            row = json.loads(text)
            rows[Case(row.pop("operator"), row.pop("dtype"))] = row
    return rows


def bad(row: _watch.Row) -> bool:
    return any(row["counts"].get(kind) for kind in _table.BAD)


def cases() -> list[Case]:
    """Every operator of the database with every type, and every distribution."""
    draws = [
        Case(_distributions.PREFIX + name, dtype)
        for name, draw in _distributions.DRAWS.items()
        for dtype in draw.dtypes
    ]
    return _database.cases() + draws


def wanted(given: argparse.Namespace, done: dict[Case, _watch.Row]) -> list[Case]:
    """The cases to run now."""
    part, parts = (int(number) for number in given.shard.split("/"))
    chosen = [
        case
        for number, case in enumerate(cases())
        if number % parts == part - 1
        and case.dtype in given.types
        and (given.only is None or any(fnmatch.fnmatchcase(case.operator, name) for name in given.only))
    ]
    return [case for case in chosen if case not in done or (given.again and bad(done[case]))]


def about(given: argparse.Namespace) -> dict[str, str]:
    """When, with what and where, for the table."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("ptpathways", "torch", "torch_xla")]
    command = "all samples" if not given.samples else f"at most {given.samples} samples of each, evenly spread"
    return {
        "date": datetime.date.today().isoformat(),
        "versions": ", ".join([*versions, f"Python {platform.python_version()}"]),
        "machine": f"{os.cpu_count()} cores, shared",
        "command": command,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is not in the results yet; the exit code."""
    given = parse(arguments)
    rows = read_results(given.results)
    todo = wanted(given, rows)
    print(f"{len(todo)} of {len(cases())} cases to run", flush=True)
    given.results.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with given.results.open("a") as out:
        for number, (case, row) in enumerate(_watch.run(todo, given.samples, given.timeout), 1):
            rows[case] = row
            out.write(json.dumps({"operator": case.operator, "dtype": case.dtype, **row}) + "\n")
            out.flush()
            if bad(row):
                print(f"{number}/{len(todo)} {time.monotonic() - began:.0f} s {case} {row['counts']}", flush=True)
                for kind, sample, variant, text in row["problems"]:
                    print(f"    {kind} {sample} {variant} {text}", flush=True)
    given.output.write_text(_table.document(rows, about(given)))
    return 1 if any(bad(row) for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
