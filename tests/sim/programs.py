"""Functions and programs for simulated clusters: plans by hand, as the passes of ``ptpathways.ir`` give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptpathways import native


def scalar_module() -> bytes:
    """f32[] -> f32[]"""
    return b"module @m { func.func public @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> } }"


def register(
    session: native.Session, devices: Sequence[int], name: str = "add", shape: Sequence[int] = ()
) -> native.Function:
    """A function of one tensor over ``devices``, of one gang."""
    dims = "x".join([*map(str, shape), "f32"])
    text = f"module @m {{ func.func public @main(%a: tensor<{dims}>) -> tensor<{dims}> {{ return %a }} }}"
    return session.register(text.encode(), "mlir", devices=list(devices), name=name, outputs=[("f32", list(shape))])


def by_host(session: native.Session, devices: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """host -> (shard, device) of those of its devices that are among ``devices``."""
    found: dict[int, list[tuple[int, int]]] = {}
    for host in session.hosts():
        first, count = host["first_device"], len(host["devices"])
        mine = [(shard, device) for shard, device in enumerate(devices) if first <= device < first + count]
        if mine:
            found[host["host"]] = mine
    return found


def chain(
    session: native.Session, function: native.Function, devices: Sequence[int], length: int, name: str = "chain"
) -> native.Program:
    """``length`` times the same function on one slice, each on what the one before gave."""
    plans: list[Any] = []
    for host, mine in by_host(session, devices).items():
        slot = {
            "dtype": "f32",
            "dims": [],
            "shards": [shard for shard, _ in mine],
            "devices": [device for _, device in mine],
        }
        steps: list[Any] = [
            {"kind": "execute", "node": i, "function": 0, "arguments": [i], "results": [i + 1], "donated": []}
            for i in range(length)
        ]
        plans.append(
            {
                "host": host,
                "channels": 0,
                "nodes": [f"node{i}" for i in range(length)],
                "slots": [slot] * (length + 1),
                "inputs": [0],
                "outputs": [length],
                "steps": steps,
            }
        )
    port: Any = {"dtype": "f32", "dims": [], "devices": list(devices)}
    return session.register_program(name, plans, [port], [port], functions=[function])


def stages(session: native.Session, functions: Sequence[native.Function], devices: Sequence[int]) -> native.Program:
    """A pipeline: stage i is ``functions[i]`` on ``devices[i]``, each device on a host of its own."""
    hosts = {host["first_device"]: host["host"] for host in session.hosts()}
    plans: list[Any] = []
    for i, device in enumerate(devices):
        slot = {"dtype": "f32", "dims": [], "shards": [0], "devices": [device]}
        steps: list[Any] = []
        if i > 0:
            piece = {"channel": i - 1, "host": hosts[devices[i - 1]], "start": [], "size": []}
            steps.append({"kind": "receive", "node": i, "slot": 0, "shard": 0, "pieces": [piece]})
        steps.append({"kind": "execute", "node": i, "function": i, "arguments": [0], "results": [1], "donated": []})
        if i + 1 < len(devices):
            target = hosts[devices[i + 1]]
            steps.append(
                {
                    "kind": "send",
                    "node": i,
                    "slot": 1,
                    "shard": 0,
                    "channel": i,
                    "host": target,
                    "start": [],
                    "size": [],
                }
            )
        plans.append(
            {
                "host": hosts[device],
                "channels": len(devices) - 1,
                "nodes": [f"stage{k}" for k in range(len(devices))],
                "slots": [slot, slot],
                "inputs": [0 if i == 0 else -1],
                "outputs": [1 if i + 1 == len(devices) else -1],
                "steps": steps,
            }
        )
    first: Any = {"dtype": "f32", "dims": [], "devices": [devices[0]]}
    last: Any = {"dtype": "f32", "dims": [], "devices": [devices[-1]]}
    return session.register_program("stages", plans, [first], [last], functions=list(functions))
