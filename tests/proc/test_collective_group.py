"""Processes that reduce together without a cluster: shared memory, messages, and ranks that do not come."""

from __future__ import annotations

import multiprocessing
import secrets
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest

from ptpathways import core, native

SIZES = (1, 5000, 300_000)
"""Elements of f32: in the header's cache line, in one chunk, in many."""
TIMEOUT_S = 60.0


def _rank(name: str, rank: int, size: int, options: dict[str, Any], pipe: Connection) -> None:
    group = native.CollectiveGroup(name, rank, size, options)
    pipe.send(group.endpoint)
    endpoints = pipe.recv()
    if endpoints[0]:
        group.connect(endpoints)
    sums = []
    for elements in SIZES:
        values = np.full(elements, rank + 1, np.float32)
        group.all_reduce(values)
        sums.append(sorted({float(value) for value in values}))
    highest = np.array([[rank, -rank]], np.int64)
    group.all_reduce(highest, "max")
    pipe.send((sums, highest.tolist()))
    pipe.recv()  # leave together, as ranks may still read what others sent
    group.close()


@pytest.mark.parametrize(
    "options", [{}, {"listen": "tcp://127.0.0.1:*", "token": core.make_token()}], ids=["shared memory", "messages"]
)
def test_three_processes_reduce(options: dict[str, Any]) -> None:
    size = 3
    context = multiprocessing.get_context("spawn")
    name = f"test-{secrets.token_hex(4)}"
    pipes, processes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe()
        pipes.append(ours)
        processes.append(context.Process(target=_rank, args=(name, rank, size, options, theirs), daemon=True))
        processes[-1].start()
    try:
        endpoints = [_receive(pipe) for pipe in pipes]
        for pipe in pipes:
            pipe.send(endpoints)
        for pipe in pipes:
            sums, highest = _receive(pipe)
            assert sums == [[6.0]] * len(SIZES)
            assert highest == [[2, 0]]
        for pipe in pipes:
            pipe.send(None)
        for process in processes:
            process.join(TIMEOUT_S)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
    assert native.clean_up_shared_memory(name) == 0, "the ranks left shared memory behind"


def test_a_rank_that_does_not_come_is_named() -> None:
    group = native.CollectiveGroup(f"test-{secrets.token_hex(4)}", 0, 2, {"limit_s": 0.1})
    with pytest.raises(native.NativeError, match=r"host 1 .rank1. did not arrive"):
        group.all_reduce(np.ones(4, np.float32))
    group.close()
    with pytest.raises(native.NativeError, match="has left"):
        group.all_reduce(np.ones(4, np.float32))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(native.NativeError, match="rank 2 of 2"):
        native.CollectiveGroup("test", 2, 2)
    group = native.CollectiveGroup(f"test-{secrets.token_hex(4)}", 0, 1)
    with pytest.raises(native.NativeError, match="sum, product"):
        group.all_reduce(np.ones(4, np.float32), "mean")
    with pytest.raises(native.NativeError, match="dense"):
        group.all_reduce(np.ones((4, 4), np.float32)[:, ::2])
    with pytest.raises(native.NativeError, match="endpoint for each of 1"):
        group.connect([])
    group.close()


def _receive(pipe: Connection) -> Any:
    assert pipe.poll(TIMEOUT_S), "a rank did not answer"
    return pipe.recv()
