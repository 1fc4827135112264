"""One of several clients of an island: runs gangs with collectives over all its hosts, each host late by a time of its
own, and says what came out.

``python -m tests.proc.gang_client ADDRESS DEVICES SEED GANGS AHEAD`` prints "ready", waits for a line, and in the end
prints one JSON line: how many gangs were right, and the
error that ended it, if any.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence

import numpy as np

from ptpathways import native

WAIT_S = 60.0
LATE_MOST_US = 1500


def late_sum(late_us: list[int]) -> bytes:
    """The mean over all shards, plus one, where shard i waits for ``late_us[i]`` before they meet; its second argument
    is its number."""
    shards = len(late_us)
    group = ", ".join(str(shard) for shard in range(shards))
    branches = ", ".join(
        f"""{{
      %w{shard} = stablehlo.custom_call @pathways.wait(%x) {{api_version = 4 : i32,
        backend_config = {{microseconds = {late} : i64}}}} : (tensor<f32>) -> tensor<f32>
      stablehlo.return %w{shard} : tensor<f32>
    }}"""
        for shard, late in enumerate(late_us)
    )
    return f"""module @late_sum attributes {{mhlo.num_partitions = {shards} : i32, mhlo.num_replicas = 1 : i32}} {{
  func.func public @main(%x: tensor<f32>, %shard: tensor<i32>) -> tensor<f32> {{
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %part = stablehlo.constant dense<{1 / shards!r}> : tensor<f32>
    %late = "stablehlo.case"(%shard) ({branches}) : (tensor<i32>) -> tensor<f32>
    %sum = "stablehlo.all_reduce"(%late) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
    }}) {{replica_groups = dense<[[{group}]]> : tensor<1x{shards}xi64>, use_global_device_ids,
         channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}} : (tensor<f32>) -> tensor<f32>
    %mean = stablehlo.multiply %sum, %part : tensor<f32>
    %y = stablehlo.add %mean, %one : tensor<f32>
    return %y : tensor<f32>
  }}
}}""".encode()


def main(address: str, device_count: int, seed: int, gangs: int, ahead: int) -> None:
    """Runs the client, which looks at its result after every ``ahead`` gangs."""
    native.load()
    chance = random.Random(seed)
    right, error = 0, None
    with native.Session.connect(address, f"gangs{seed}", WAIT_S) as session:
        devices = list(range(device_count))
        functions = []
        for number in range(4):
            late = [chance.randrange(LATE_MOST_US) for _ in devices]
            functions.append(session.register(late_sum(late), "mlir", name=f"late{number}", devices=devices))
        programs = [one_gang(session, function, devices) for function in functions]
        held, numbers = scalars(session, [0.0] * device_count), shard_numbers(session, device_count)
        kept = []  # what it frees goes to the hosts as messages, and those keep its place among its gangs
        for program in programs:
            program.wait_ready(WAIT_S)
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            for done in range(1, gangs + 1):
                kept.append(held)
                (held,) = session.run_program(chance.choice(programs), [held, numbers])
                if chance.random() < 0.2:
                    time.sleep(chance.random() * 2e-3)
                if done % ahead == 0:
                    values = [float(value) for value in held.fetch(WAIT_S)]
                    assert values == [float(done)] * device_count, values
                    right = done
        except native.NativeError as failed:
            error = str(failed)
    print(json.dumps({"right": right, "error": error}))


def scalars(session: native.Session, values: Sequence[float]) -> native.Buffer:
    """Shard i holds ``values[i]`` on device i."""
    return session.put_sharded([np.asarray(value, np.float32) for value in values], list(range(len(values))))


def shard_numbers(session: native.Session, count: int) -> native.Buffer:
    """Shard i holds i."""
    return session.put_sharded([np.asarray(number, np.int32) for number in range(count)], list(range(count)))


def one_gang(session: native.Session, function: native.Function, devices: list[int]) -> native.Program:
    """A program of the function alone, on all devices."""
    hosts: dict[int, list[int]] = {}
    for host in session.hosts():
        first = host["first_device"]
        for device in range(first, first + len(host["devices"])):
            if device in devices:
                hosts.setdefault(host["host"], []).append(device)
    plans = [
        {
            "host": host,
            "channels": 0,
            "nodes": ["gang"],
            "slots": [{"dtype": dtype, "dims": [], "shards": here, "devices": here} for dtype in ("f32", "s32", "f32")],
            "inputs": [0, 1],
            "outputs": [2],
            "steps": [
                {"kind": "execute", "node": 0, "function": 0, "arguments": [0, 1], "results": [2], "donated": []},
            ],
        }
        for host, here in hosts.items()
    ]
    value, number = ({"dtype": dtype, "dims": [], "devices": devices} for dtype in ("f32", "s32"))
    return session.register_program("gang", plans, [value, number], [value], functions=[function])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
