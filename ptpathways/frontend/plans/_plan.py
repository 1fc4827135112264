"""A wiring as a program of the cluster: one plan per host, and what feeds and receives its values. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from ptpathways.frontend.plans import _move
from ptpathways.frontend.plans._wiring import (
    Constant,
    Number,
    Op,
    Result,
    Source,
    Type,
    Upload,
    Wiring,
)
from ptpathways.sharding import Box


class Input(NamedTuple):
    """An argument of the program."""

    source: Source
    kind: Type
    token: int
    """A value that it was when it was recorded."""
    donated: bool
    """Whether the program may overwrite it."""


class Output(NamedTuple):
    """A result of the program."""

    result: Result
    kind: Type
    token: int
    """The value that it was when it was recorded."""


@dataclass(slots=True)
class Lowered:
    """What ``Session.register_program`` takes, and which source each of its arguments is."""

    plans: list[dict[str, Any]]
    inputs: list[Input]
    outputs: list[Output]

    def input_ports(self) -> list[dict[str, Any]]:
        return [_port(given.kind) for given in self.inputs]

    def output_ports(self) -> list[dict[str, Any]]:
        return [_port(made.kind) for made in self.outputs]


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
        self._inputs: dict[Any, tuple[Source, Type, int]] = {}
        self._donated: set[Any] = set()
        self._channels = 0
        kept = [*wiring.written.values(), *(item for item in wiring.returned if isinstance(item, Result))]
        self._results = list(dict.fromkeys(kept))
        self._copy_of = passed_copies(wiring, self._results)
        self._kept = [self._copy_of.get(result, result) for result in self._results]
        self._last_use = {
            source: number
            for number, op in enumerate(wiring.ops)
            for source in op.arguments
            if isinstance(source, Result)
        }

    def go(self) -> Lowered:
        for number, op in enumerate(self._wiring.ops):
            if Result(number, 0) in self._copy_of:
                continue
            given = zip(op.arguments, op.argument_types, op.argument_tokens, strict=True)
            arguments = [self._argument(*each) for each in given]
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
            [Input(*self._inputs[key], key in self._donated) for key in inputs],
            [Output(result, self._type_of(result), self._token_of(result)) for result in self._results],
        )

    def _type_of(self, result: Result) -> Type:
        return self._wiring.ops[result.op].result_types[result.index]

    def _token_of(self, result: Result) -> int:
        return self._wiring.ops[result.op].result_tokens[result.index]

    def _hosts_of(self, kind: Type) -> list[int]:
        return sorted({self._host_of[device] for device in kind.devices})

    def _plan(self, host: int) -> _Host:
        return self._hosts.setdefault(host, _Host())

    def _slot(self, key: Any, kind: Type, host: int) -> int:
        """The slot of the shards that lie on ``host``."""
        plan = self._plan(host)
        if key not in plan.slot_of:
            shards = self._shards_on(host, kind)
            plan.slot_of[key] = len(plan.slots)
            plan.slots.append(
                {
                    "dtype": kind.dtype,
                    "dims": list(kind.shard_dims),
                    "shards": shards,
                    "devices": [kind.devices[shard] for shard in shards],
                }
            )
        return plan.slot_of[key]

    def _shards_on(self, host: int, kind: Type) -> list[int]:
        return [shard for shard, device in enumerate(kind.devices) if self._host_of[device] == host]

    def _argument(self, source: Source, kind: Type, token: int) -> Any:
        """The value's key; an argument of the program if nothing in it made it."""
        if isinstance(source, Result):
            return source
        key = (input_key(source), kind)  # numbers of one value may be needed on several devices
        self._inputs.setdefault(key, (source, kind, token))
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
            self._add(
                host,
                "execute",
                number,
                function=op.function,
                arguments=[self._slot(*each, host) for each in zip(keys, op.argument_types, strict=True)],
                results=[self._slot(*each, host) for each in results],
                donated=donated,
            )

    def _copy(self, number: int, op: Op, key: Any) -> None:
        """Moves a tensor to where, or how, it is to lie."""
        source, target, made = op.argument_types[0], op.result_types[0], Result(number, 0)
        movement = _move.plan(source, target, self._host_of)
        first = self._channels
        self._channels += len(movement.sends)
        for channel, send in enumerate(movement.sends, first):
            host, slot, shard = self._place(key, source, send.shard)
            self._add(host, "send", number, slot=slot, shard=shard, channel=channel, host=send.host, **_box(send.box))
        for copy in movement.copies:
            self._add_copy(number, self._place(key, source, copy.source), self._place(made, target, copy.target))
        for at, pieces in movement.receives.items():
            host, slot, shard = self._place(made, target, at)
            given = [{"channel": first + each.channel, "host": each.host, **_box(each.box)} for each in pieces]
            self._add(host, "receive", number, slot=slot, shard=shard, pieces=given)
        for copy in movement.spreads:
            self._add_copy(number, self._place(made, target, copy.source), self._place(made, target, copy.target))

    def _place(self, key: Any, kind: Type, shard: int) -> tuple[int, int, int]:
        """A shard's host, its slot there, and its number among the shards that lie there."""
        host = self._host_of[kind.devices[shard]]
        return host, self._slot(key, kind, host), self._shards_on(host, kind).index(shard)

    def _add_copy(self, number: int, source: tuple[int, int, int], target: tuple[int, int, int]) -> None:
        (host, from_slot, from_shard), (_, slot, shard) = source, target
        self._add(host, "copy", number, from_slot=from_slot, from_shard=from_shard, slot=slot, shard=shard)

    def _add(self, at: int, kind: str, node: int, **more: Any) -> None:
        self._plan(at).steps.append({"kind": kind, "node": node, **more})

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


def passed_copies(wiring: Wiring, kept: Sequence[Result]) -> dict[Result, Result]:
    """Results that need not be computed, and the copies made in the step that they are.

    PyTorch/XLA ends a step like ``target.load_state_dict(source.state_dict())`` with a computation that only passes on
    what was copied from elsewhere, and as XLA computes it that is another copy. It is left out where each of its
    arguments is such a copy that nothing else uses.
    """
    uses = Counter(source for op in wiring.ops for source in op.arguments if isinstance(source, Result))
    uses.update(kept)
    found: dict[Result, Result] = {}
    for number, op in enumerate(wiring.ops):
        if sorted(op.passed) != list(range(len(op.arguments))) or op.result_types != tuple(
            op.argument_types[position] for position in op.passed
        ):
            continue
        copies = [op.arguments[position] for position in op.passed]
        if all(isinstance(copy, Result) and wiring.ops[copy.op].function < 0 and uses[copy] == 1 for copy in copies):
            results = (Result(number, index) for index in range(len(copies)))
            found |= dict(zip(results, cast(list[Result], copies), strict=True))
    return found


def input_key(source: Source) -> Any:
    """What makes two arguments of a step the same argument of its program."""
    if isinstance(source, Upload):
        return source.feed() or source
    return source


def _port(kind: Type) -> dict[str, Any]:
    return {"dtype": kind.dtype, "dims": list(kind.shard_dims), "devices": list(kind.devices)}


def _box(box: Box) -> dict[str, list[int]]:
    return {} if box == _move.WHOLE else {"start": list(box.start), "size": list(box.size)}
