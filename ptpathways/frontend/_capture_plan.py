"""A wiring as a program of the cluster: one plan per host, and what feeds and receives its values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ptpathways.frontend._capture_wiring import (
    Constant,
    Number,
    Op,
    Result,
    Source,
    Type,
    Upload,
    Wiring,
)


@dataclass(slots=True)
class Lowered:
    """What ``Session.register_program`` takes, and which source each of its arguments is."""

    plans: list[dict[str, Any]]
    inputs: list[tuple[Source, Type, bool]]
    """Source, type, and whether the program may overwrite it."""
    outputs: list[tuple[Result, Type]]

    def input_ports(self) -> list[dict[str, Any]]:
        return [_port(kind) for _, kind, _ in self.inputs]

    def output_ports(self) -> list[dict[str, Any]]:
        return [_port(kind) for _, kind in self.outputs]


@dataclass(slots=True)
class _Host:
    slots: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    slot_of: dict[Any, int] = field(default_factory=dict)


def lower(wiring: Wiring, host_of: Mapping[int, int]) -> Lowered:
    """Plans for the hosts that take part: an operation over devices of several hosts is in the plan of each.

    Args:
        host_of: the host of each device.
    """
    return _Lowering(wiring, host_of).go()


class _Lowering:
    def __init__(self, wiring: Wiring, host_of: Mapping[int, int]) -> None:
        self._wiring = wiring
        self._host_of = host_of
        self._hosts: dict[int, _Host] = {}
        self._inputs: dict[Any, tuple[Source, Type]] = {}
        self._donated: set[Any] = set()
        self._channels = 0
        kept = [*wiring.written.values(), *(item for item in wiring.returned if isinstance(item, Result))]
        self._kept = list(dict.fromkeys(kept))
        self._last_use = {
            source: number
            for number, op in enumerate(wiring.ops)
            for source in op.arguments
            if isinstance(source, Result)
        }

    def go(self) -> Lowered:
        for number, op in enumerate(self._wiring.ops):
            arguments = [self._argument(*pair) for pair in zip(op.arguments, op.argument_types, strict=True)]
            if op.function < 0:
                self._copy(number, op, arguments[0])
            else:
                self._execute(number, op, arguments)
            self._free(number, op)
        inputs = list(self._inputs)
        plans = []
        for host, plan in sorted(self._hosts.items()):
            plans.append(
                {
                    "host": host,
                    "channels": self._channels,
                    "nodes": [op.what for op in self._wiring.ops],
                    "slots": plan.slots,
                    "inputs": [plan.slot_of.get(key, -1) for key in inputs],
                    "outputs": [plan.slot_of.get(result, -1) for result in self._kept],
                    "steps": plan.steps,
                }
            )
        return Lowered(
            plans,
            [(*self._inputs[key], key in self._donated) for key in inputs],
            [(result, self._type_of(result)) for result in self._kept],
        )

    def _type_of(self, result: Result) -> Type:
        return self._wiring.ops[result.op].result_types[result.index]

    def _hosts_of(self, kind: Type) -> list[int]:
        return sorted({self._host_of[device] for device in kind.devices})

    def _plan(self, host: int) -> _Host:
        return self._hosts.setdefault(host, _Host())

    def _slot(self, key: Any, kind: Type, host: int) -> int:
        """The slot of the shards that lie on ``host``."""
        plan = self._plan(host)
        if key not in plan.slot_of:
            shards = [shard for shard, device in enumerate(kind.devices) if self._host_of[device] == host]
            plan.slot_of[key] = len(plan.slots)
            plan.slots.append(
                {
                    "dtype": kind.dtype,
                    "dims": list(kind.dims),
                    "shards": shards,
                    "devices": [kind.devices[shard] for shard in shards],
                }
            )
        return plan.slot_of[key]

    def _argument(self, source: Source, kind: Type) -> Any:
        """The value's key; an argument of the program if nothing in it made it."""
        if isinstance(source, Result):
            return source
        key = (input_key(source), kind.devices)  # numbers of one value may be needed on several devices
        self._inputs.setdefault(key, (source, kind))
        return key

    def _execute(self, number: int, op: Op, keys: list[Any]) -> None:
        donated = [
            position
            for position in op.donated
            if keys.count(keys[position]) == 1
            and keys[position] not in self._kept
            and not isinstance(op.arguments[position], Number | Constant | Upload)
        ]
        self._donated |= {keys[position] for position in donated}
        results = [(Result(number, index), kind) for index, kind in enumerate(op.result_types)]
        for host in self._hosts_of((op.result_types or op.argument_types)[0]):
            step = {
                "kind": "execute",
                "node": number,
                "function": op.function,
                "arguments": [self._slot(*each, host) for each in zip(keys, op.argument_types, strict=True)],
                "results": [self._slot(*each, host) for each in results],
                "donated": donated,
            }
            self._plan(host).steps.append(step)

    def _copy(self, number: int, op: Op, key: Any) -> None:
        source, target = op.argument_types[0], op.result_types[0]
        (here,), (there,) = self._hosts_of(source), self._hosts_of(target)
        given, made = self._slot(key, source, here), self._slot(Result(number, 0), target, there)
        if here == there:
            step = {"kind": "copy", "node": number, "from_slot": given, "from_shard": 0, "slot": made, "shard": 0}
            self._plan(there).steps.append(step)
            return
        channel, self._channels = self._channels, self._channels + 1
        send = {"kind": "send", "node": number, "slot": given, "shard": 0, "channel": channel, "host": there}
        self._plan(here).steps.append(send)
        pieces = [{"channel": channel, "host": here}]
        receive = {"kind": "receive", "node": number, "slot": made, "shard": 0, "pieces": pieces}
        self._plan(there).steps.append(receive)

    def _free(self, number: int, op: Op) -> None:
        """Frees the results that nobody needs after operation ``number``."""
        done = [s for s in dict.fromkeys(op.arguments) if isinstance(s, Result) and self._last_use[s] == number]
        done += [r for r in (Result(number, i) for i in range(len(op.result_types))) if r not in self._last_use]
        for result in done:
            if result in self._kept or result in self._donated:
                continue
            for host in self._hosts_of(self._type_of(result)):
                plan = self._plan(host)
                plan.steps.append({"kind": "free", "slots": [plan.slot_of[result]]})


def input_key(source: Source) -> Any:
    """What makes two arguments of a step the same argument of its program."""
    if isinstance(source, Upload):
        return source.feed() or source.tokens
    return source


def _port(kind: Type) -> dict[str, Any]:
    return {"dtype": kind.dtype, "dims": list(kind.dims), "devices": list(kind.devices)}
