"""What it costs to look for operands on two slices: 300 small operations, traced with one slice and with two.

python -m tests.proc.operand_cost
"""

from __future__ import annotations

import statistics
import time

import torch

import ptpathways as pw

ROUNDS = 60


def traced(x: torch.Tensor) -> float:
    """Seconds of this thread's time for 300 operations."""
    pw.wait()
    start, y = time.thread_time(), x
    for _ in range(150):
        y = y * 1.5 + x
    taken = time.thread_time() - start
    pw.wait()
    return taken


def main() -> None:
    cluster = pw.init(hosts=1, devices_per_host=2)
    s = cluster.slice(2)
    x = torch.ones(4, 4).to(s.device)
    times: dict[str, list[float]] = {"one slice": [], "two slices": []}
    for _ in range(ROUNDS):  # in turn, so that whatever else the machine does meets both
        times["one slice"].append(traced(x))
        with cluster.slice(1) as t:
            assert t.device != s.device
            times["two slices"].append(traced(x))
    for name, taken in times.items():
        print(f"{name}: median {statistics.median(taken[5:]) * 1e3:.2f} ms, least {min(taken) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
