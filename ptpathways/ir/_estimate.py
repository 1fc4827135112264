"""What a program's run would take: the most memory of a device, and time, from the costs of its functions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ptpathways.ir._program import Kind, Node, Program, Value
from ptpathways.ir._types import ValueType


@dataclass(frozen=True, slots=True)
class FunctionCost:
    """Of one call, on each of its devices."""

    extra_bytes: int = 0
    """Beside its inputs and outputs: temporary memory, padding, code."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LiveValue:
    """A value that takes memory at the peak."""

    name: str
    type: str
    shard_bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one run of a program."""

    peak_bytes: int
    """The most that any device holds at a time."""
    peak_at: str
    """The node that runs then."""
    peak_function: str
    """Its function; empty for a transfer or an argument."""
    live: tuple[LiveValue, ...]
    """What that device holds then, the largest first."""
    seconds: float
    """From the first computation's start to the last one's end: each begins when its values are there and its devices
    are free."""


def shard_bytes(kind: ValueType) -> int:
    """Bytes of one device's part of a tensor, dense."""
    if kind.dtype == "pred":
        return math.prod(kind.shard_shape)
    bits = re.match(r"[a-z]+(\d+)", kind.dtype)
    assert bits is not None  # ValueType has checked it
    return math.prod(kind.shard_shape) * int(bits[1]) // 8


def estimate(program: Program, costs: Mapping[str, FunctionCost], placed: Mapping[str, range], link: float) -> Estimate:
    """Runs the program's nodes in their order, on paper.

    Args:
        program: with its transfers (``infer_transfers``).
        costs: of its functions, by name.
        placed: the devices of each slice, by name.
        link: bytes per second of a transfer, into each device.
    """
    return _Run(program, costs, placed, link).result()


def _live(value: Value) -> LiveValue:
    return LiveValue(value.name, value.type.on(value.type.sharding.mesh), shard_bytes(value.type))


class _Run:
    def __init__(
        self, program: Program, costs: Mapping[str, FunctionCost], placed: Mapping[str, range], link: float
    ) -> None:
        self._program = program
        self._costs = costs
        self._placed = placed
        self._link = link
        self._last_use = self._last_uses()
        # Devices that no slice's border divides behave alike: one of each is looked at.
        self._devices = sorted({devices.start for devices in placed.values()})
        self._live: dict[str, None] = {}
        self._peak = Estimate(0, "", "", (), 0.0)

    def result(self) -> Estimate:
        ready: dict[str, float] = {}
        free = dict.fromkeys(self._devices, 0.0)
        end = 0.0
        for node in self._program.nodes:
            if node.kind is Kind.ARGUMENT:
                self._live[node.outputs[0].name] = None
        for number, node in enumerate(self._program.nodes):
            if node.kind in (Kind.COMPUTE, Kind.TRANSFER):
                self._look(number, node)
                mine = self._devices_of(node.outputs[0].slice) if node.outputs else []
                start = max([0.0, *(ready.get(name, 0.0) for name in node.inputs), *(free[at] for at in mine)])
                done = start + self._seconds(node)
                if node.kind is Kind.COMPUTE:
                    free.update(dict.fromkeys(mine, done))
                ready.update({value.name: done for value in node.outputs})
                end = max(end, done)
            for value in node.outputs:
                self._live[value.name] = None
            for name in [name for name in self._live if self._last_use.get(name, number) <= number]:
                del self._live[name]
        peak = self._peak
        return Estimate(peak.peak_bytes, peak.peak_at, peak.peak_function, peak.live, end)

    def _last_uses(self) -> dict[str, int]:
        """The number of the node after which a value is gone."""
        nodes = self._program.nodes
        last = {value.name: number for number, node in enumerate(nodes) for value in node.outputs}
        last.update({name: number for number, node in enumerate(nodes) for name in node.inputs})
        for node in nodes:
            if node.kind is Kind.RESULT:
                last.update(dict.fromkeys(node.inputs, len(nodes)))
            if node.kind is Kind.ARGUMENT and not node.donated:
                last[node.outputs[0].name] = len(nodes)
        return last

    def _devices_of(self, part: str) -> list[int]:
        return [device for device in self._devices if device in self._placed[part]]

    def _seconds(self, node: Node) -> float:
        if node.kind is Kind.COMPUTE:
            return self._costs[node.function].seconds
        return sum(shard_bytes(value.type) for value in node.outputs) / self._link

    def _look(self, number: int, node: Node) -> None:
        """Whether some device holds more while ``node`` runs than at any time before."""
        values = self._program.values
        taken = self._taken_over(number, node)
        held = [*self._live, *(value.name for value in node.outputs)]
        for device in self._devices_of(node.outputs[0].slice) if node.outputs else []:
            here = [name for name in held if device in self._placed[values[name].slice]]
            total = sum(shard_bytes(values[name].type) for name in here) - taken
            if node.kind is Kind.COMPUTE:
                total += self._costs[node.function].extra_bytes
            if total > self._peak.peak_bytes:
                live = [
                    LiveValue(
                        name, values[name].type.on(values[name].type.sharding.mesh), shard_bytes(values[name].type)
                    )
                    for name in here
                ]
                live.sort(key=lambda value: -value.shard_bytes)
                self._peak = Estimate(total, node.label, node.function, tuple(live), 0.0)

    def _taken_over(self, number: int, node: Node) -> int:
        """Bytes of inputs whose memory becomes that of outputs."""
        if node.kind is not Kind.COMPUTE:
            return 0
        given = {
            node.inputs[position]
            for position in self._program.function(node.function).donated
            if self._last_use[node.inputs[position]] == number
        }
        outputs = sum(shard_bytes(value.type) for value in node.outputs)
        return min(outputs, sum(shard_bytes(self._program.values[name].type) for name in given))
