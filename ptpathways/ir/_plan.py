"""What lowering gives: one WorkerPlan per host, as the session's ``register_program`` takes it, and its text form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

from ptpathways.ir._types import Function, ranges


class SlotDict(TypedDict):
    """What one host holds of a logical buffer."""

    dtype: str
    dims: list[int]  # of one shard
    shards: list[int]  # indices in the logical buffer
    devices: list[int]  # cluster-wide, parallel to shards


class ExecuteDict(TypedDict):
    kind: Literal["execute"]
    node: int
    gang: int  # place among the nodes of the whole program, the same on all hosts
    function: int  # index into the program's functions
    arguments: list[int]
    results: list[int]
    donated: list[int]  # positions in arguments


class SendDict(TypedDict):
    kind: Literal["send"]
    node: int
    slot: int
    shard: int  # position in the slot
    channel: int
    host: int  # the receiver
    start: list[int]  # empty, with size: the whole shard
    size: list[int]


class PieceDict(TypedDict):
    channel: int
    host: int  # the sender
    start: list[int]
    size: list[int]


class ReceiveDict(TypedDict):
    kind: Literal["receive"]
    node: int
    slot: int
    shard: int
    pieces: list[PieceDict]


class CopyDict(TypedDict):
    kind: Literal["copy"]
    node: int
    from_slot: int
    from_shard: int
    slot: int
    shard: int


class FreeDict(TypedDict):
    kind: Literal["free"]
    slots: list[int]


StepDict: TypeAlias = ExecuteDict | SendDict | ReceiveDict | CopyDict | FreeDict


class PlanDict(TypedDict):
    """One host's part of a program."""

    host: int
    channels: int  # of the whole program
    nodes: list[str]  # names for messages and traces
    slots: list[SlotDict]
    inputs: list[int]  # slot of each argument; -1: nothing of it is used here
    outputs: list[int]
    steps: list[StepDict]


class PortDict(TypedDict):
    """An argument or result of a program: shard i of the logical buffer lies on devices[i]."""

    dtype: str
    dims: list[int]  # of one shard
    devices: list[int]


@dataclass(frozen=True, slots=True)
class PlacedFunction:
    """A function and the devices it must be registered for."""

    function: Function
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program for given devices. Not to be changed: plans share parts of each other."""

    name: str
    source: str
    plans: list[PlanDict]
    """One per host that takes part, by host."""
    inputs: list[PortDict]
    outputs: list[PortDict]
    functions: list[PlacedFunction]
    """In the order of the indices that execute steps use."""
    donated: tuple[int, ...]
    """Positions of the arguments that a run gives up."""

    def __str__(self) -> str:
        return lowered_text(self)


HOSTS_SHOWN = 8


def lowered_text(lowered: Lowered, hosts_max: int = HOSTS_SHOWN) -> str:
    """The plans as text, those of the first ``hosts_max`` hosts."""
    lines = [f"lowered {lowered.name}{_at(lowered.source)}"]
    for index, placed in enumerate(lowered.functions):
        lines.append(f"function {index}: {placed.function.label} on devices {ranges(placed.devices)}")
    for what, ports in (("input", lowered.inputs), ("output", lowered.outputs)):
        for index, port in enumerate(ports):
            given_up = " donated" if what == "input" and index in lowered.donated else ""
            lines.append(
                f"{what} {index}: {_tensor(port['dtype'], port['dims'])} on devices {ranges(port['devices'])}{given_up}"
            )
    for plan in lowered.plans[:hosts_max]:
        lines += ["", plan_text(plan)]
    if len(lowered.plans) > hosts_max:
        lines += ["", f"and {len(lowered.plans) - hosts_max} more hosts"]
    return "\n".join(lines) + "\n"


def plan_text(plan: PlanDict) -> str:
    """One host's plan as text."""
    lines = [f"plan of host {plan['host']} ({plan['channels']} channels in all)"]
    for index, slot in enumerate(plan["slots"]):
        lines.append(
            f"  slot {index}: {_tensor(slot['dtype'], slot['dims'])} shards {ranges(slot['shards'])} "
            f"on devices {ranges(slot['devices'])}"
        )
    lines.append(f"  inputs {_slots(plan['inputs'])}; outputs {_slots(plan['outputs'])}")
    lines += [f"  {_step(plan, step)}" for step in plan["steps"]]
    return "\n".join(lines)


def _step(plan: PlanDict, step: StepDict) -> str:
    if step["kind"] == "free":
        return f"free {_slots(step['slots'])}"
    node = f"  # {plan['nodes'][step['node']]}"
    if step["kind"] == "execute":
        donated = f" donating {_slots(step['donated'])}" if step["donated"] else ""
        return f"execute {step['function']}({_slots(step['arguments'])}) -> {_slots(step['results'])}{donated}{node}"
    if step["kind"] == "send":
        part = _part(step["start"], step["size"])
        return f"send {step['slot']}.{step['shard']}{part} to host {step['host']} by {step['channel']}{node}"
    if step["kind"] == "copy":
        return f"copy {step['from_slot']}.{step['from_shard']} to {step['slot']}.{step['shard']}{node}"
    pieces = ", ".join(
        f"{_part(piece['start'], piece['size']) or 'all'} from host {piece['host']} by {piece['channel']}"
        for piece in step["pieces"]
    )
    return f"receive {step['slot']}.{step['shard']}: {pieces or 'no elements'}{node}"


def _tensor(dtype: str, dims: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def _part(start: Sequence[int], size: Sequence[int]) -> str:
    if not start:
        return ""
    return f"[{', '.join(f'{first}:{first + count}' for first, count in zip(start, size, strict=True))}]"


def _slots(slots: Sequence[int]) -> str:
    return ", ".join("-" if slot < 0 else str(slot) for slot in slots)


def _at(source: str) -> str:
    return f" ({source})" if source else ""
