"""The process that measures one system: ``python runner.py MODULE`` in that system's own environment.

MODULE has ``open_system(setting)``, which gives a ``System``. Imports nothing of ptpathways, so that any interpreter
can run it. Protocol, one line of JSON each way: first the setting, answered by the figures it offers and versions; then
``{"figure": NAME, "seconds": S}``, answered by ``{"amount", "seconds", "p50_s"}``; when stdin closes, it ends.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypedDict

CHAIN = 128
"""Computations of a chained program, and of a fused node; the paper's number."""
STAGES = 8
STAGE_S = 1e-3
"""Of the pipeline: so many stages, each of which waits so long (seconds)."""
ITEMS = 200
"""That pass the pipeline in a batch."""

_PR_SET_TIMERSLACK, _SLACK_NS = 29, 1000
_SPIN_S = 60e-6
_prompt: set[int] = set()

Batch = Callable[[], float]
"""Does some work to its end and returns how much: computations, trips, or the seconds an ideal system would need."""


class Setting(TypedDict):
    """What is measured."""

    work: str
    """"add": every host adds to a scalar it holds. "allreduce": a scalar AllReduce over all, and an addition.
    "pipeline": ``ITEMS`` items pass ``STAGES`` stages that wait ``STAGE_S`` each; a host has neighbouring stages."""
    hosts: int


class System(Protocol):
    """A started system."""

    versions: dict[str, str]

    def figures(self) -> dict[str, Batch]:
        """What it can measure, by name."""

    def close(self) -> None:
        """Ends its processes."""


def stage_places(hosts: int) -> list[int]:
    """The host of each stage. Raises ``ValueError`` unless each has equally many."""
    if STAGES % hosts:
        raise ValueError(f"hosts must divide {STAGES} stages, got {hosts}")
    return [stage * hosts // STAGES for stage in range(STAGES)]


def ideal_seconds(hosts: int) -> float:
    """For a batch of items, once the pipeline is full."""
    return ITEMS * STAGES / hosts * STAGE_S


def wait_for_stage() -> None:
    """A stage: no core is used but for the end, because the kernel wakes a sleeper late."""
    end = time.perf_counter() + STAGE_S
    if threading.get_ident() not in _prompt:
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NS), 0, 0, 0)
        _prompt.add(threading.get_ident())
    time.sleep(STAGE_S - _SPIN_S)
    while time.perf_counter() < end:
        pass


def measure(batch: Batch, seconds: float) -> dict[str, float]:
    """Repeats ``batch`` for about ``seconds``, after once or twice that compile what is to be compiled."""
    batch()
    batch()
    amount, laps = 0.0, list[float]()
    start = last = time.perf_counter()
    while last - start < seconds or not laps:
        amount += batch()
        now = time.perf_counter()
        laps.append(now - last)
        last = now
    return {"amount": amount, "seconds": last - start, "p50_s": statistics.median(laps)}


def main() -> None:
    module = importlib.import_module(sys.argv[1])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a system prints must not look like an answer

    def answer(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    setting: Setting = json.loads(sys.stdin.readline())
    system: System = module.open_system(setting)
    try:
        figures = system.figures()
        answer({"figures": list(figures), "versions": system.versions})
        for line in sys.stdin:
            request = json.loads(line)
            answer(measure(figures[request["figure"]], request["seconds"]))
    finally:
        system.close()


if __name__ == "__main__":
    main()
