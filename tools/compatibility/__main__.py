"""Trains models and programs that nobody here wrote, on a cluster and in plain PyTorch, and writes the tables.

Usage::

    python -m tools.compatibility --examples ../examples              # everything, into docs/compatibility.md
    python -m tools.compatibility --only gpt2 --output /dev/stdout    # one model
    python -m tools.compatibility --results build/compatibility.jsonl # keeps what is done, and goes on from there

Each case runs in processes of its own. Exits with 1 when one fails.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.compatibility import MODELS, difference
from tools.compatibility import _table as table
from tools.compatibility._examples import EXAMPLES, NOT_RUN, REPOSITORY, Example
from tools.compatibility._training import STEPS, WARM_STEPS

ROOT = Path(__file__).parents[2]
CASE_TIMEOUT_S = 900
_PACKAGES = ("ptpathways", "torch", "torch_xla", "transformers", "torchvision")

Row = dict[str, Any]


def _ask(module: str, arguments: Sequence[str], environment: dict[str, str]) -> Row:
    """The last line that a process printed; its error if it failed."""
    command = [sys.executable, "-W", "ignore", "-m", f"tools.compatibility.{module}", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CASE_TIMEOUT_S, cwd=ROOT, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {CASE_TIMEOUT_S} s"}
    if done.returncode != 0 or not done.stdout.strip():
        return {"error": done.stderr[-2000:] or f"exit code {done.returncode}"}
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def run_model(key: str, given: argparse.Namespace) -> Row:
    """A row of the table of models."""
    sizes = (str(given.hosts), str(given.devices_per_host), str(given.steps))
    return _ask("_model_process", (*sizes, key), {})


def run_example(example: Example, given: argparse.Namespace) -> Row:
    """A row of the table of programs: three runs, or the first error."""
    cluster = {"PTPATHWAYS_HOSTS": str(given.hosts), "PTPATHWAYS_DEVICES_PER_HOST": str(given.devices_per_host)}
    modes = ("plain", "shaken", "cluster")
    arguments = (str(given.examples), example.key, str(given.steps))
    return summary(example, {mode: _ask("_example_process", (mode, *arguments), cluster) for mode in modes})


def summary(example: Example, runs: dict[str, Row]) -> Row:
    """One row of three runs' answers."""
    plain, shaken, cluster = runs["plain"], runs["shaken"], runs["cluster"]
    for mode, answer in runs.items():
        if "error" in answer:
            return {"lines": cluster.get("lines", ""), "error": f"{mode}: {answer['error']}"}
    compiled = cluster["compiled"]
    first = min(WARM_STEPS * example.per_step, len(compiled) - 1)
    noise = difference(plain["losses"], shaken["losses"])
    return {
        "lines": cluster["lines"],
        "difference": difference(plain["losses"], cluster["losses"]),
        "noise": noise if example.optimizer else None,
        "recompiles": compiled[-1] - compiled[first],
        "fallbacks": cluster["fallbacks"],
        "client_ms": statistics.median(cluster["milliseconds"][first:] or [0.0]),
    }


def machine() -> str:
    """This machine, in a few words."""
    return f"{os.cpu_count()} cores, shared"


def document(given: argparse.Namespace, rows: dict[str, dict[str, Row]]) -> str:
    """The text of docs/compatibility.md."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    notes = [(example.key, example.note) for example in EXAMPLES if example.note and example.key in rows["example"]]
    not_run = "Not run: \n\n" + table.notes(NOT_RUN)
    examples = table.examples_table([(e.key, f"`{e.key}`") for e in EXAMPLES], rows["example"])
    return table.TEXT.format(
        steps=given.steps,
        date=datetime.date.today().isoformat(),
        versions=f"{versions}, Python {platform.python_version()}",
        machine=machine(),
        hosts=given.hosts,
        devices=given.devices_per_host,
        models=table.models_table([(case.key, case.title) for case in MODELS], rows["model"]),
        model_notes=table.MODEL_NOTES,
        examples=examples if rows["example"] else "Not run: no checkout was given.",
        example_notes=table.notes(notes) + "\n\n" + not_run.replace(": \n", ":\n"),
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.compatibility", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--examples", type=Path, metavar="DIR", help=f"a checkout of {REPOSITORY}")
    parser.add_argument("--only", nargs="*", metavar="KEY", help="only these models and programs")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--devices-per-host", type=int, default=2)
    parser.add_argument("--results", type=Path, help="a file of finished rows: read first, then added to")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/compatibility.md")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is not in the results yet; the exit code."""
    given = parse(arguments)
    if given.examples is not None:
        given.examples = given.examples.resolve()
        if not (given.examples / "mnist/main.py").is_file():
            print(f"{given.examples} is no checkout of pytorch/examples: mnist/main.py is not there")
            print(f"get one with: git clone --depth 1 {REPOSITORY}")
            return 2
    else:
        print(f"without --examples DIR only models are run; get the programs with: git clone --depth 1 {REPOSITORY}")
    rows: dict[str, dict[str, Row]] = {"model": {}, "example": {}}
    if given.results is not None and given.results.exists():
        for text in given.results.read_text().splitlines():
            finished = json.loads(text)
            rows[finished["kind"]][finished["key"]] = finished
    wanted: list[tuple[str, str]] = [("model", case.key) for case in MODELS]
    wanted += [("example", example.key) for example in EXAMPLES] if given.examples is not None else []
    programs = {example.key: example for example in EXAMPLES}
    for kind, key in wanted:
        if key in rows[kind] or (given.only is not None and key not in given.only):
            continue
        row = run_model(key, given) if kind == "model" else run_example(programs[key], given)
        rows[kind][key] = row
        print(f"{kind:8} {table.line(key, row)}", flush=True)
        if given.results is not None:
            with given.results.open("a") as out:
                out.write(json.dumps({**row, "kind": kind, "key": key}) + "\n")
    given.output.write_text(document(given, rows))
    return 1 if any("error" in row for found in rows.values() for row in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
