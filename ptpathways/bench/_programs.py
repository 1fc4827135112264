"""Programs that workloads run: written as plans, so that what is measured is dispatch and not the tracing of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptpathways.native import Function, PlanDict, PortDict, Program, Session

SCALAR: dict[str, Any] = {"dtype": "f32", "dims": []}


def host_of(session: Session, device: int) -> int:
    """The number of the host that has ``device``."""
    for host in session.hosts():
        if host["first_device"] <= device < host["first_device"] + len(host["devices"]):
            return host["host"]
    raise ValueError(f"device must be one of the cluster's {session.device_count}, got {device}")


def chain(session: Session, name: str, function: Function, devices: Sequence[int], length: int) -> Program:
    """``length`` nodes in sequence; in each, every device runs ``function`` on the scalar that the node before gave it.

    One argument and one result: a logical buffer of float32 scalars, shard i on ``devices[i]``. No data moves.
    """
    plans = [_chain_plan(host, shards, length) for host, shards in _by_host(session, devices).items()]
    port: PortDict = {"dtype": "f32", "dims": [], "devices": list(devices)}
    return session.register_program(name, plans, [port], [port], functions=[function])


def _by_host(session: Session, devices: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """(shard, device) by host."""
    found: dict[int, list[tuple[int, int]]] = {}
    for shard, device in enumerate(devices):
        found.setdefault(host_of(session, device), []).append((shard, device))
    return found


def _chain_plan(host: int, parts: Sequence[tuple[int, int]], length: int) -> PlanDict:
    shards, devices = [shard for shard, _ in parts], [device for _, device in parts]
    steps: list[dict[str, Any]] = []
    for node in range(length):
        steps.append(
            {"kind": "execute", "node": node, "function": 0, "arguments": [node], "results": [node + 1], "donated": []}
        )
        if node:
            steps.append({"kind": "free", "slots": [node]})
    return {
        "host": host,
        "channels": 0,
        "nodes": [f"add {node}" for node in range(length)],
        "slots": [{"dtype": "f32", "dims": [], "shards": shards, "devices": devices} for _ in range(length + 1)],
        "inputs": [0],
        "outputs": [length],
        "steps": steps,
    }


def pipeline(session: Session, name: str, function: Function, stages: Sequence[int]) -> Program:
    """Stage k runs ``function`` on device ``stages[k]``, on the scalar that the stage before sends.

    One argument, a scalar on the first stage's device, and one result on the last one's.
    """
    hosts = [host_of(session, device) for device in stages]
    plans = [_pipeline_plan(host, hosts, stages) for host in dict.fromkeys(hosts)]
    first: PortDict = {"dtype": "f32", "dims": [], "devices": [stages[0]]}
    last: PortDict = {"dtype": "f32", "dims": [], "devices": [stages[-1]]}
    return session.register_program(name, plans, [first], [last], functions=[function])


def _pipeline_plan(host: int, hosts: Sequence[int], stages: Sequence[int]) -> PlanDict:
    """A value between stages travels under the number of the stage that made it."""
    slots: list[Any] = []
    steps: list[dict[str, Any]] = []

    def slot(device: int) -> int:
        slots.append({"dtype": "f32", "dims": [], "shards": [0], "devices": [device]})
        return len(slots) - 1

    held = -1
    given = taken = -1
    for stage, device in enumerate(stages):
        if hosts[stage] != host:
            continue
        if stage == 0:
            held = given = slot(device)
        elif device != stages[stage - 1]:
            held = slot(device)
            piece = {"channel": stage - 1, "host": hosts[stage - 1], "start": [], "size": []}
            steps.append({"kind": "receive", "node": stage, "slot": held, "shard": 0, "pieces": [piece]})
        result = slot(device)
        steps.append(
            {"kind": "execute", "node": stage, "function": 0, "arguments": [held], "results": [result], "donated": []}
        )
        if held != given:
            steps.append({"kind": "free", "slots": [held]})
        held = result
        if stage + 1 == len(stages):
            taken = result
        elif device != stages[stage + 1]:
            steps.append(
                {
                    "kind": "send",
                    "node": stage,
                    "slot": result,
                    "shard": 0,
                    "channel": stage,
                    "host": hosts[stage + 1],
                    "start": [],
                    "size": [],
                }
            )
            steps.append({"kind": "free", "slots": [result]})
    return {
        "host": host,
        "channels": len(stages),
        "nodes": [f"stage {stage}" for stage in range(len(stages))],
        "slots": slots,
        "inputs": [given],
        "outputs": [taken],
        "steps": steps,
    }
