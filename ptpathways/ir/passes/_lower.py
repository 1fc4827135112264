"""lower: one WorkerPlan per host (paper 4.2, 4.5): steps over slots, walked without waiting for data.

A value becomes one slot on each host that holds a part of it. Channels are numbered over the whole program, so sender
and receiver agree without talking. The work is proportional to nodes x hosts of their slices, plus the moves of
transfers; equal transfers are planned once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ptpathways.core import InvalidProgram
from ptpathways.ir._plan import (
    CopyDict,
    ExecuteDict,
    Lowered,
    PieceDict,
    PlacedFunction,
    PlanDict,
    PortDict,
    ReceiveDict,
    SendDict,
    SlotDict,
    StepDict,
)
from ptpathways.ir._program import Kind, Node, Program, Value
from ptpathways.ir._verify import verify
from ptpathways.ir.passes._movement import Copy, Movement, Movements, Part, parts_of


def lower(program: Program) -> Lowered:
    """The plans of a placed program whose transfers have been inferred.

    - A transfer between equal layouts on equal devices moves nothing: both values are one slot.
    - Slots are freed after their last use on each host. A position that its function may take over is donated when the
      slot is dead afterwards and nothing sends or copies it: a transfer may still be reading when the function runs.
      Whether an argument's memory is really given up, each run says.
    - A result that is an argument, or given back twice, is copied: every result has memory of its own.

    Raises:
        InvalidProgram: it is not placed, transfers are missing, or a host call is in it (see ``split``).
    """
    program = verify(program, exact=True)
    for node in program.nodes:
        if node.kind is Kind.HOST_CALL:
            raise InvalidProgram(
                f"program {program.label}: {node.label} is irregular, what follows it cannot be dispatched before it "
                "has run; split the program at it"
            )
    for part in program.slices:
        if not part.placed:
            raise InvalidProgram(f"program {program.label}: slice {part.name!r} has no devices yet; place it first")
    return _Lowering(program).run()


@dataclass(slots=True)
class _Host:
    """A plan as it grows."""

    host: int
    slots: list[SlotDict] = field(default_factory=list)
    slot_of: dict[str, int] = field(default_factory=dict)  # by storage
    nodes: list[str] = field(default_factory=list)
    node_of: dict[int, int] = field(default_factory=dict)
    steps: list[StepDict] = field(default_factory=list)
    touched: list[int] = field(default_factory=list)  # per slot: the last step that reads or writes it
    taken: set[int] = field(default_factory=set)  # slots that a function took over

    def add(self, step: StepDict, slots: Sequence[int]) -> None:
        for slot in slots:
            self.touched[slot] = len(self.steps)
        self.steps.append(step)

    def finished(self, channels: int, inputs: list[int], outputs: list[int]) -> PlanDict:
        """The plan, with slots freed after their last use."""
        kept = set(outputs) | self.taken
        dying: dict[int, list[int]] = {}
        for slot, step in enumerate(self.touched):
            if slot not in kept:
                dying.setdefault(step, []).append(slot)
        steps: list[StepDict] = []
        for number, step_dict in enumerate(self.steps):
            steps.append(step_dict)
            if number in dying:
                steps.append({"kind": "free", "slots": dying[number]})
        return PlanDict(
            host=self.host,
            channels=channels,
            nodes=self.nodes,
            slots=self.slots,
            inputs=inputs,
            outputs=outputs,
            steps=steps,
        )


class _Lowering:
    """One program's lowering."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._hosts: dict[int, _Host] = {}
        self._parts = {part.name: parts_of(part) for part in program.slices}
        self._functions: dict[str, int] = {}
        self._placed: list[PlacedFunction] = []
        self._channels = 0
        self._movements = Movements()
        self._storage: dict[str, str] = {}  # value -> the value whose slot it is
        self._last_use: dict[str, int] = {}
        self._moved: set[str] = set()  # storages that a transfer reads
        self._results: list[Value] = []
        self._dims: dict[str, list[int]] = {}

    def run(self) -> Lowered:
        self._assign_storage()
        for number, node in enumerate(self._program.nodes):
            if node.kind is Kind.COMPUTE:
                self._compute(number, node)
            elif node.kind is Kind.TRANSFER and self._storage[node.outputs[0].name] == node.outputs[0].name:
                self._transfer(number, node)
            elif node.kind is Kind.RESULT:
                self._result(number, node)
        arguments = [node.outputs[0] for node in self._program.arguments]
        plans = []
        for host in sorted(self._hosts):
            plan = self._hosts[host]
            inputs = [plan.slot_of.get(value.name, -1) for value in arguments]
            outputs = [plan.slot_of.get(value.name, -1) for value in self._results]
            plans.append(plan.finished(self._channels, inputs, outputs))
        return Lowered(
            self._program.name,
            self._program.source,
            plans,
            [self._port(value) for value in arguments],
            [self._port(value) for value in self._results],
            self._placed,
            tuple(index for index, node in enumerate(self._program.arguments) if node.donated),
        )

    def _assign_storage(self) -> None:
        """Which values share slots, when each is used last, and which a transfer reads."""
        program = self._program
        for number, node in enumerate(program.nodes):
            for value in node.outputs:
                self._storage[value.name] = value.name
            if node.kind is Kind.TRANSFER:
                given, made = program.values[node.inputs[0]], node.outputs[0]
                same_devices = program.slice(given.slice).devices == program.slice(made.slice).devices
                if same_devices and given.type.same_layout(made.type):
                    self._storage[made.name] = self._storage[given.name]
                    continue  # not a use
                self._moved.add(self._storage[given.name])
            for name in node.inputs:
                self._last_use[self._storage[name]] = number

    def _at(self, host: int, number: int, node: Node) -> tuple[_Host, int]:
        """A host's plan, and the number of the node's label in it."""
        plan = self._hosts.get(host)
        if plan is None:
            plan = self._hosts[host] = _Host(host)
        label = plan.node_of.get(number)
        if label is None:
            label = plan.node_of[number] = len(plan.nodes)
            plan.nodes.append(node.label)
        return plan, label

    def _slot(self, plan: _Host, part: Part, value: Value) -> int:
        """The slot of a storage on a host, made on first mention: a host holds only what it uses."""
        slot = plan.slot_of.get(value.name)
        if slot is None:
            dims = self._dims.get(value.name)
            if dims is None:
                dims = self._dims[value.name] = list(value.type.shard_shape)
            slot = plan.slot_of[value.name] = len(plan.slots)
            plan.slots.append({"dtype": value.type.dtype, "dims": dims, "shards": part.shards, "devices": part.devices})
            plan.touched.append(-1)
        return slot

    def _stored(self, name: str) -> Value:
        return self._program.values[self._storage[name]]

    def _port(self, value: Value) -> PortDict:
        return PortDict(
            dtype=value.type.dtype,
            dims=list(value.type.shard_shape),
            devices=list(self._program.slice(value.slice).devices),
        )

    def _compute(self, number: int, node: Node) -> None:
        function = self._program.function(node.function)
        index = self._functions.get(function.name)
        if index is None:
            index = self._functions[function.name] = len(self._placed)
            self._placed.append(PlacedFunction(function, self._program.slice(function.slice).devices))
        inputs = [self._stored(name) for name in node.inputs]
        donated = [position for position in function.donated if self._may_donate(number, inputs, position)]
        for part in self._parts[function.slice].values():
            plan, label = self._at(part.host, number, node)
            arguments = [self._slot(plan, part, value) for value in inputs]
            results = [self._slot(plan, part, value) for value in node.outputs]
            step = ExecuteDict(
                kind="execute",
                node=label,
                gang=number,
                function=index,
                arguments=arguments,
                results=results,
                donated=donated,
            )
            plan.add(step, (*arguments, *results))
            plan.taken.update(arguments[position] for position in donated)

    def _may_donate(self, number: int, inputs: list[Value], position: int) -> bool:
        """Whether nothing reads that input's slot after, or while, node ``number`` runs."""
        value = inputs[position]
        alone = sum(other.name == value.name for other in inputs) == 1
        return alone and self._last_use[value.name] == number and value.name not in self._moved

    def _transfer(self, number: int, node: Node) -> None:
        given, made = self._stored(node.inputs[0]), node.outputs[0]
        source, target = self._program.slice(given.slice), self._program.slice(made.slice)
        self._move(number, node, given, made, self._movements.plan(given.type, source, made.type, target))

    def _move(self, number: int, node: Node, given: Value, made: Value, movement: Movement) -> None:
        """Sends, then copies, then receives, then copies of what was received, as they stand on each host."""
        sources, targets = self._parts[given.slice], self._parts[made.slice]
        first = self._channels
        self._channels += movement.channels
        for host, sends in movement.sends.items():
            plan, label = self._at(host, number, node)
            slot = self._slot(plan, sources[host], given)
            plan.touched[slot] = len(plan.steps) + len(sends) - 1
            plan.steps += [
                SendDict(
                    kind="send",
                    node=label,
                    slot=slot,
                    shard=send.shard,
                    channel=first + send.channel,
                    host=send.host,
                    start=send.start,
                    size=send.size,
                )
                for send in sends
            ]
        for host, copies in movement.copies.items():
            self._copy(number, node, given, sources[host], made, targets[host], copies)
        for host, receives in movement.receives.items():
            plan, label = self._at(host, number, node)
            slot = self._slot(plan, targets[host], made)
            plan.touched[slot] = len(plan.steps) + len(receives) - 1
            plan.steps += [
                ReceiveDict(
                    kind="receive",
                    node=label,
                    slot=slot,
                    shard=receive.shard,
                    pieces=[
                        PieceDict(channel=first + piece.channel, host=piece.host, start=piece.start, size=piece.size)
                        for piece in receive.pieces
                    ],
                )
                for receive in receives
            ]
        for host, copies in movement.spreads.items():
            self._copy(number, node, made, targets[host], made, targets[host], copies)

    def _copy(
        self, number: int, node: Node, given: Value, source: Part, made: Value, target: Part, copies: list[Copy]
    ) -> None:
        plan, label = self._at(source.host, number, node)
        from_slot, slot = self._slot(plan, source, given), self._slot(plan, target, made)
        for copy in copies:
            step = CopyDict(
                kind="copy", node=label, from_slot=from_slot, from_shard=copy.source, slot=slot, shard=copy.target
            )
            plan.add(step, (from_slot, slot))

    def _result(self, number: int, node: Node) -> None:
        given_back: set[str] = set()
        for index, name in enumerate(node.inputs):
            value = self._stored(name)
            producer = self._program.producers[value.name]
            if producer.kind is not Kind.ARGUMENT and value.name not in given_back:
                given_back.add(value.name)
                self._results.append(value)
                continue
            copy = Value(f"{value.name}/result{index}", value.type, value.slice)  # no parsed name has a slash
            for part in self._parts[value.slice].values():
                shards = [Copy(shard, shard) for shard in range(len(part.shards))]
                self._copy(number, node, value, part, copy, part, shards)
            self._results.append(copy)
