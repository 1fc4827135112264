"""Programs that workloads run: written as plans, so that what is measured is dispatch and not the tracing of Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways import programs

if TYPE_CHECKING:
    from ptpathways.ir import PlanDict, PortDict
    from ptpathways.native import Function, Program, Session


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
    hosts = programs.hosts_of(session)
    for shard, device in enumerate(devices):
        found.setdefault(hosts[device], []).append((shard, device))
    return found


def _chain_plan(host: int, parts: Sequence[tuple[int, int]], length: int) -> PlanDict:
    shards, devices = [shard for shard, _ in parts], [device for _, device in parts]
    steps: list[Any] = []
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


def pipeline(
    session: Session, name: str, function: Function, stages: Sequence[int], deliver: int | None = None
) -> Program:
    """Stage k runs ``function`` on device ``stages[k]``, on the scalar that the stage before sends.

    One argument, a scalar on the first stage's device, and one result on the last one's, or sent on to ``deliver``.
    """
    hosts = programs.hosts_of(session)
    places = list(stages) if deliver is None or deliver == stages[-1] else [*stages, deliver]
    plans = [_pipeline_plan(host, hosts, places, len(stages)) for host in dict.fromkeys(hosts[p] for p in places)]
    first: PortDict = {"dtype": "f32", "dims": [], "devices": [places[0]]}
    last: PortDict = {"dtype": "f32", "dims": [], "devices": [places[-1]]}
    return session.register_program(name, plans, [first], [last], functions=[function])


def _pipeline_plan(host: int, hosts: Mapping[int, int], places: Sequence[int], stages: int) -> PlanDict:
    """Place k runs stage k if there is such a stage. What it sends travels under its own number."""
    slots: list[Any] = []
    steps: list[Any] = []

    def slot(device: int) -> int:
        slots.append({"dtype": "f32", "dims": [], "shards": [0], "devices": [device]})
        return len(slots) - 1

    held = given = -1
    for number, device in enumerate(places):
        if hosts[device] != host:
            continue
        if number == 0:
            held = given = slot(device)
        elif device != places[number - 1]:
            held = slot(device)
            piece = {"channel": number - 1, "host": hosts[places[number - 1]], "start": [], "size": []}
            steps.append({"kind": "receive", "node": number, "slot": held, "shard": 0, "pieces": [piece]})
        if number < stages:
            result = slot(device)
            execute = {"kind": "execute", "function": 0, "arguments": [held], "results": [result], "donated": []}
            steps.append({"node": number, **execute})
            if held != given:
                steps.append({"kind": "free", "slots": [held]})
            held = result
        if number + 1 < len(places) and device != places[number + 1]:
            to = {"channel": number, "host": hosts[places[number + 1]], "start": [], "size": []}
            steps.append({"kind": "send", "node": number, "slot": held, "shard": 0, **to})
            steps.append({"kind": "free", "slots": [held]})
    return {
        "host": host,
        "channels": len(places),
        "nodes": [f"stage {number}" for number in range(len(places))],
        "slots": slots,
        "inputs": [given],
        "outputs": [held if hosts[places[-1]] == host else -1],
        "steps": steps,
    }
