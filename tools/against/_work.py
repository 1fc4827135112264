"""Process of ``tools.against``: one piece of work on one checkout's package, timed on request.

Argument: the name of the work. Everything here is what both checkouts have: the public interface, the native session,
and a few modules of the benchmarks that have stayed what they are. ``PYTHONPATH`` says whose package it is.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ptpathways.bench._child import serve
from ptpathways.bench._hlo import add_chain, all_reduce

Figures = dict[str, float]
"""By name; all are seconds, or of another unit of which less is better."""

_TIMEOUT_S = 60.0
_MEBIBYTE = 1 << 20


def training(how: str, hosts: int, devices: int) -> Callable[[], Figures]:
    """Steps of the GPT of ``bench step`` on the slice of everything; ``how`` is lazy or captured."""
    import torch
    from torch.nn import functional as F

    import ptpathways as pw

    pw.init(hosts=hosts, devices_per_host=devices)
    from ptpathways.bench._models import CONTEXT, VOCABULARY, Gpt

    torch.manual_seed(0)
    plain = Gpt()
    model, optimizer = pw.prepare(plain, torch.optim.AdamW(plain.parameters(), lr=1e-3))

    def text() -> torch.Tensor:
        return torch.randint(VOCABULARY, (8, CONTEXT))

    batches = [next(iter(pw.prepare([(text(), text())]))) for _ in range(16)]

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    call = pw.program(step) if how == "captured" else step
    made = 0

    def measure(steps: int) -> Figures:
        nonlocal made
        start, thread = time.perf_counter(), time.thread_time()
        for _ in range(steps):
            loss = call(*batches[made % len(batches)])
            made += 1
        client = time.thread_time() - thread
        value = loss.item()
        return {
            "step, s": (time.perf_counter() - start) / steps,
            "client's thread of a step, s": client / steps,
            "loss": value,
        }

    measure(16)  # compiles
    return lambda: measure(40)


def dispatch() -> Callable[[], Figures]:
    """A scalar addition on one device."""
    from ptpathways import core
    from ptpathways.launch import local

    session = local.start(core.Options(hosts=1)).session
    function = session.register(add_chain(1), "mlir", name="add_one")
    argument = session.put(np.float32(1.0), 0)
    session.run(function, [argument], 0)[0].wait(_TIMEOUT_S)

    def measure() -> Figures:
        runs, trips = 20_000, 2_000
        cpp = session.bench_pipelined(function, [argument], 0, runs) / runs
        start = time.perf_counter()
        for _ in range(runs):
            session.run(function, [argument], 0)
        session.drain(_TIMEOUT_S)
        python = (time.perf_counter() - start) / runs
        round_trip = statistics.median(session.bench_round_trip(function, [argument], 0, trips))
        return {"pipelined by C++, s": cpp, "pipelined by Python, s": python, "round trip, s": round_trip}

    return measure


def transfer() -> Callable[[], Figures]:
    """64 MiB between client and worker, and between workers."""
    from ptpathways import core
    from ptpathways.launch import local

    session = local.start(core.Options(hosts=2)).session
    there = session.hosts()[1]["first_device"]
    array = np.random.default_rng(0).random(64 * _MEBIBYTE // 4, dtype=np.float32)
    buffer = session.put(array, 0)

    def seconds(work: Callable[[], object]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def measure() -> Figures:
        return {
            "client to worker, s": seconds(lambda: session.put(array, 0).wait(_TIMEOUT_S)),
            "worker to client, s": seconds(lambda: buffer.result(_TIMEOUT_S)),
            "worker to worker, s": seconds(lambda: buffer.copy_to(there).wait(_TIMEOUT_S)),
        }

    measure()
    return measure


def collectives() -> Callable[[], Figures]:
    """An all-reduce of a scalar among four workers, one call each; and of 4 MiB between two threads here."""
    from ptpathways import core, native
    from ptpathways.bench._programs import chain
    from ptpathways.launch import local

    session = local.start(core.Options(hosts=4)).session
    devices = [host["first_device"] for host in session.hosts()]
    function = session.register(all_reduce(len(devices), 1), "mlir", name="all_reduce", devices=devices)
    program = chain(session, "reduce", function, devices, 1)
    program.wait_ready(_TIMEOUT_S)
    held = session.put_sharded([np.zeros((), np.float32) for _ in devices], devices)
    ranks = ThreadPoolExecutor(2)
    name = f"against_{os.getpid()}"
    groups = list(ranks.map(lambda rank: native.CollectiveGroup(name, rank, 2), range(2)))
    arrays = [np.zeros(_MEBIBYTE, np.float32) for _ in groups]

    def measure() -> Figures:
        nonlocal held
        calls, reductions = 200, 20
        start = time.perf_counter()
        for _ in range(calls):
            (held,) = session.run_program(program, (held,))
        held.wait(_TIMEOUT_S)
        middle = time.perf_counter()
        for _ in range(reductions):
            list(ranks.map(lambda group, array: group.all_reduce(array), groups, arrays))
        return {
            "all-reduce of a scalar, s": (middle - start) / calls,
            "all-reduce of 4 MiB, s": (time.perf_counter() - middle) / reductions,
        }

    return measure


def startup() -> Callable[[], Figures]:
    """A cluster of four hosts from nothing to the first result of each, and its end."""
    from ptpathways import core
    from ptpathways.launch import local

    def measure() -> Figures:
        start = time.perf_counter()
        with local.start(core.Options(hosts=4)) as cluster:
            up = time.perf_counter()
            session = cluster.session
            function = session.register(add_chain(1), "mlir", name="add_one")
            firsts = [host["first_device"] for host in session.hosts()]
            for result in [session.run(function, [session.put(np.float32(1.0), at)], at)[0] for at in firsts]:
                result.wait(_TIMEOUT_S)
            done = time.perf_counter()
        return {"cluster up, s": up - start, "first results, s": done - up, "end, s": time.perf_counter() - done}

    return measure


WORKS: dict[str, Callable[[], Callable[[], Figures]]] = {
    "lazy 1x1": lambda: training("lazy", 1, 1),
    "captured 1x1": lambda: training("captured", 1, 1),
    "lazy 1x2": lambda: training("lazy", 1, 2),
    "captured 1x2": lambda: training("captured", 1, 2),
    "data-parallel 4x1": lambda: training("lazy", 4, 1),
    "dispatch": dispatch,
    "transfer": transfer,
    "collectives": collectives,
    "startup": startup,
}
"""By name: what starts a work and gives what measures one round of it."""


def main() -> None:
    measures: list[Callable[[], Figures]] = []

    def answer(_: Any) -> Figures:
        if not measures:  # starts after serve has set stdout aside
            measures.append(WORKS[sys.argv[1]]())
        return measures[0]()

    serve(answer)


if __name__ == "__main__":
    main()
