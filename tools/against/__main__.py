"""Measures this checkout beside another commit of it, in one run: what a change costs.

Usage::

    python -m tools.against COMMIT [--works NAME ...] [--rounds N] [--starts N]

COMMIT is checked out and built under ``build/against/`` (a few minutes, once), or is the path of a checkout that has
been built. Each work runs in two processes, one for each checkout, with the same environment's packages; round by
round both do the same, in turn. Where a process happens to lie in memory and on the cores lasts as long as it does, so
the rounds are shared among several pairs of processes, each started in the other order than the one before. What is
printed is the ratio of each round's two values, this checkout's to the other's: median, 10th and 90th percentile.
Training losses of both must agree.

A quiet machine is needed: the spread of the ratios says how quiet it was.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from ptpathways.bench._child import Child
from ptpathways.bench._harness import interleave
from ptpathways.bench._stats import summarise
from tools.against._work import WORKS, Figures

ROOT = Path(__file__).resolve().parent.parent.parent
_BUILD_TIMEOUT_S = 1800
_LOSS_TOLERANCE = 1e-4


def checkout(commit: str) -> Path:
    """A folder with ``commit``, built. Raises ``CalledProcessError`` when git or the compiler fails."""
    given = Path(commit)
    if (given / "ptpathways").is_dir():
        return given.resolve()
    sha = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    folder = ROOT / "build" / "against" / sha[:12]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", ROOT, folder], check=True)
        subprocess.run(["git", "checkout", "-q", sha], cwd=folder, check=True)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        check=True,
        timeout=_BUILD_TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    return folder


def _child(folder: Path, work: str) -> Child:
    path = os.pathsep.join((str(folder), str(Path(__file__).parent)))
    return Child("_work", work, environment={"PYTHONPATH": path, "PYTHONSAFEPATH": "1"})


def compare(other: Path, work: str, rounds: int, starts: int) -> dict[str, list[tuple[float, float]]]:
    """By figure: each round's values, this checkout's and the other's; ``rounds`` of each of the ``starts``.

    Raises:
        RuntimeError: the two trainings do not agree on the loss.
        PathwaysError: a process ended or did not answer.
    """
    answers: dict[str, list[Figures]] = {"this": [], "other": []}
    folders = {"this": ROOT, "other": other}

    def ask(name: str, child: Child) -> float:
        answers[name].append(child.ask({}))
        return 0.0

    for start in range(starts):
        with contextlib.ExitStack() as stack:
            names = list(folders) if start % 2 == 0 else list(reversed(folders))
            children = {name: stack.enter_context(_child(folders[name], work)) for name in names}
            interleave({name: partial(ask, name, child) for name, child in children.items()}, repeats=rounds, warm_up=0)
    pairs = {
        figure: [(mine[figure], theirs[figure]) for mine, theirs in zip(*answers.values(), strict=True)]
        for figure in answers["this"][0]
    }
    for mine, theirs in pairs.pop("loss", []):
        if abs(mine - theirs) > _LOSS_TOLERANCE * abs(theirs):
            raise RuntimeError(f"{work}: both must have the same loss after the same steps, got {mine} and {theirs}")
    return pairs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.against", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("commit", help="a commit, or the path of a built checkout")
    parser.add_argument("--works", nargs="+", choices=list(WORKS), default=list(WORKS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5, help="of each start")
    parser.add_argument("--starts", type=int, default=4, help="pairs of processes, one after the other")
    arguments = parser.parse_args()
    other = checkout(arguments.commit)
    print(
        f"this checkout to {other.name}, {arguments.rounds} rounds of {arguments.starts} starts: "
        "ratio of medians of pairs (p10 to p90)"
    )
    for work in arguments.works:
        for figure, pairs in compare(other, work, arguments.rounds, arguments.starts).items():
            ratio = summarise([mine / theirs for mine, theirs in pairs])
            mine, theirs = (summarise([pair[side] for pair in pairs]).median for side in (0, 1))
            print(
                f"{work:18} {figure:30} {mine:.3g} to {theirs:.3g}: "
                f"{ratio.median:.3f} ({ratio.p10:.3f} to {ratio.p90:.3f})",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
