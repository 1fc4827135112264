"""Programs that several test files use, and a model of a cluster that walks plans over numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from ptpathways import ir
from ptpathways.sharding import Mesh, Sharding

Array = npt.NDArray[Any]
PAIR = Mesh((2,), ("x",))
ROWS = ir.ValueType("f32", (2,), Sharding.from_spec(PAIR, ("x",)))
FIG2_DEVICES = {"s0": [0, 1], "s1": [2, 3], "s2": [4, 5]}
FIG2_CODE: dict[str, Callable[..., list[Array]]] = {
    "a": lambda v: [v * 2],
    "b": lambda v: [v + 1],
    "c": lambda v: [v / 2],
}


def function(name: str, slice: str, source: str = "", *, kind: ir.ValueType = ROWS, **given: Any) -> ir.Function:
    """A function of one argument and one result of the same type."""
    return ir.Function(name, slice, (kind,), (kind,), source=source, digest=ir.digest_of(name.encode()), **given)


def fig2() -> ir.Program:
    """The paper's figure 2: three functions on slices of two devices each."""
    a = function("a", "s0", "fig2.py:4")
    b = function("b", "s1", "fig2.py:8")
    c = function("c", "s2", "fig2.py:12")
    builder = ir.ProgramBuilder("f", source="fig2.py:15")
    for name in ("s0", "s1", "s2"):
        builder.slice(name, PAIR)
    v = builder.argument("f32", (2,), name="v")
    (x,) = builder.compute(a, [v], names=["x"], source="fig2.py:17")
    (y,) = builder.compute(b, [x], names=["y"], source="fig2.py:18")
    (w,) = builder.compute(c, [x], source="fig2.py:19")
    (z,) = builder.compute(a, [w], names=["z"], source="fig2.py:19")
    return builder.build([y, z])


class PlanBroken(AssertionError):
    """A plan reads what is not there, or hosts wait for each other."""


class _Host:
    def __init__(self, cluster: ModelCluster, plan: ir.PlanDict, inputs: Sequence[Sequence[Array]]) -> None:
        self.cluster = cluster
        self.plan = plan
        self.next = 0
        self.slots: list[list[Array | None]] = [[None] * len(slot["shards"]) for slot in plan["slots"]]
        self.state = ["empty"] * len(plan["slots"])
        for argument, slot in enumerate(plan["inputs"]):
            if slot >= 0:
                self.slots[slot] = [inputs[argument][shard].copy() for shard in plan["slots"][slot]["shards"]]
                self.state[slot] = "full"

    def read(self, slot: int) -> list[Array]:
        if self.state[slot] != "full" or any(shard is None for shard in self.slots[slot]):
            raise PlanBroken(f"host {self.plan['host']} step {self.next} reads slot {slot}: {self.state[slot]}")
        return [shard for shard in self.slots[slot] if shard is not None]

    def write(self, slot: int, shard: int, value: Array) -> None:
        if self.state[slot] == "dead" or self.slots[slot][shard] is not None:
            raise PlanBroken(f"host {self.plan['host']} step {self.next} writes slot {slot}.{shard} a second time")
        if list(value.shape) != self.plan["slots"][slot]["dims"]:
            raise PlanBroken(f"slot {slot} of {self.plan['slots'][slot]} gets a shard of shape {value.shape}")
        self.slots[slot][shard] = value
        self.state[slot] = "full"

    def give_up(self, slot: int) -> None:
        self.read(slot)
        self.slots[slot] = [None] * len(self.slots[slot])
        self.state[slot] = "dead"

    def step(self) -> bool:
        """Does the next step; False: it needs bytes that were not sent yet."""
        step = self.plan["steps"][self.next]
        if step["kind"] == "execute":
            arguments = [self.read(slot) for slot in step["arguments"]]
            code = self.cluster.code[self.cluster.lowered.functions[step["function"]].function.name]
            devices = self.cluster.lowered.functions[step["function"]].devices
            mine = [device for device in devices if self.cluster.hosts[device] == self.plan["host"]]
            for slot in (*step["arguments"], *step["results"]):
                if self.plan["slots"][slot]["devices"] != mine:
                    raise PlanBroken(f"slot {slot} is not on the function's devices {mine}")
            results = [code(*shards) for shards in zip(*arguments, strict=True)]
            for position in step["donated"]:
                self.give_up(step["arguments"][position])
            for index, slot in enumerate(step["results"]):
                for shard, values in enumerate(results):
                    self.write(slot, shard, values[index])
        elif step["kind"] == "send":
            value = self.read(step["slot"])[step["shard"]]
            if step["channel"] in self.cluster.sent:
                raise PlanBroken(f"channel {step['channel']} is used twice")
            part = value[_index(step["start"], step["size"])].copy()
            self.cluster.sent[step["channel"]] = (self.plan["host"], step["host"], part)
        elif step["kind"] == "receive":
            if any(piece["channel"] not in self.cluster.sent for piece in step["pieces"]):
                return False
            dims = self.plan["slots"][step["slot"]]["dims"]
            made, writes = np.zeros(dims, np.float64), np.zeros(dims, int)
            for piece in step["pieces"]:
                sender, receiver, part = self.cluster.sent[piece["channel"]]
                if (sender, receiver) != (piece["host"], self.plan["host"]):
                    raise PlanBroken(f"channel {piece['channel']} goes from {sender} to {receiver}")
                where = _index(piece["start"], piece["size"])
                made[where] = part
                writes[where] += 1
                self.cluster.received.add(piece["channel"])
            if not (writes == 1).all():
                raise PlanBroken(f"step {step} does not write each element once")
            self.write(step["slot"], step["shard"], made)
        elif step["kind"] == "copy":
            source = self.slots[step["from_slot"]][step["from_shard"]]
            if source is None:
                raise PlanBroken(f"step {step} copies what is not there")
            self.write(step["slot"], step["shard"], source.copy())
        else:
            for slot in step["slots"]:
                self.give_up(slot)
        self.next += 1
        return True


class ModelCluster:
    """Walks the plans of a program with numpy: what a cluster would compute, and that plans keep their promises."""

    def __init__(
        self, lowered: ir.Lowered, hosts: Mapping[int, int], code: Mapping[str, Callable[..., list[Array]]]
    ) -> None:
        self.lowered = lowered
        self.hosts = hosts
        self.code = code
        self.sent: dict[int, tuple[int, int, Array]] = {}
        self.received: set[int] = set()

    def run(self, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """The shards of every result, given those of every argument.

        Raises:
            PlanBroken: a slot is used wrongly, hosts wait for each other, or something is left over at the end.
        """
        walkers = [_Host(self, plan, inputs) for plan in self.lowered.plans]
        while any(walker.next < len(walker.plan["steps"]) for walker in walkers):
            moved = False
            for walker in reversed(walkers):  # not the order in which data flows
                while walker.next < len(walker.plan["steps"]) and walker.step():
                    moved = True
            if not moved:
                raise PlanBroken("every host waits for another")
        channels = self.lowered.plans[0]["channels"] if self.lowered.plans else 0
        if set(self.sent) != set(range(channels)) or self.received != set(self.sent):
            raise PlanBroken(f"of {channels} channels {len(self.sent)} were sent and {len(self.received)} received")
        results: list[dict[int, Array]] = [{} for _ in self.lowered.outputs]
        for walker in walkers:
            kept = {slot for slot in walker.plan["outputs"] if slot >= 0}
            for slot, state in enumerate(walker.state):
                if (state == "full") is not (slot in kept):
                    raise PlanBroken(f"slot {slot} of host {walker.plan['host']} is {state} at the end")
            for index, slot in enumerate(walker.plan["outputs"]):
                if slot >= 0:
                    described = walker.plan["slots"][slot]
                    results[index].update(zip(described["shards"], walker.read(slot), strict=True))
                    for shard, device in zip(described["shards"], described["devices"], strict=True):
                        assert self.lowered.outputs[index]["devices"][shard] == device
        return [[shards[number] for number in range(len(shards))] for shards in results]


def scattered(whole: Array, kind: ir.ValueType) -> list[Array]:
    """A tensor's shards."""
    return [
        whole[kind.sharding.box(kind.shape, position).slices()].copy() for position in range(kind.sharding.mesh.size)
    ]


def gathered(shards: Sequence[Array], kind: ir.ValueType) -> Array:
    """The tensor of its shards; copies must agree."""
    assert len(shards) == kind.sharding.mesh.size
    whole = np.full(kind.shape, np.nan)
    for position, shard in enumerate(shards):
        where = kind.sharding.box(kind.shape, position).slices()
        assert np.isnan(whole[where]).all() or np.array_equal(whole[where], shard)
        whole[where] = shard
    return whole


def _index(start: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(first, first + count) for first, count in zip(start, size, strict=True))


# --- any program


Case: TypeAlias = tuple[ir.Program, dict[str, list[int]], dict[int, int]]
"""A program, the devices of its slices, the host of each device."""


def hosts_of(devices: int, per_host: int) -> dict[int, int]:
    return {device: device // per_host for device in range(devices)}


@st.composite
def cases(draw: st.DrawFn, *, hosts: int = 0, per_host: int = 0) -> Case:
    """A random graph of elementwise functions, each wanting its arguments in a way of its own; where it is to run.

    With ``hosts``, so many of ``per_host`` devices, and each slice within one; else any, and slices anywhere.
    """
    device_count = hosts * per_host or draw(st.integers(4, 16))
    builder = ir.ProgramBuilder("random")
    meshes: list[Mesh] = []
    devices: dict[str, list[int]] = {}
    for number in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from([(1,), (2,), (4,), (2, 2), (3,)]))
        mesh = Mesh(shape, [f"m{axis}" for axis in range(len(shape))])
        meshes.append(mesh)
        first = draw(st.integers(0, hosts - 1)) * per_host if hosts else 0
        candidates = range(first, first + per_host) if hosts else range(device_count)
        devices[builder.slice(f"s{number}", mesh)] = draw(st.permutations(candidates))[: mesh.size]
    shape = (12, 12)

    def lying(mesh: Mesh) -> Sharding:
        spec: list[list[str]] = [[], []]
        for name in mesh.axis_names:
            where = draw(st.integers(-1, 1))
            if where >= 0:
                spec[where].append(name)
        return Sharding.from_spec(mesh, spec)

    values = []
    for _ in range(draw(st.integers(1, 2))):
        number = draw(st.integers(0, len(meshes) - 1))
        values.append(builder.argument("f32", shape, slice=f"s{number}", sharding=lying(meshes[number])))
    for node in range(draw(st.integers(1, 6))):
        number = draw(st.integers(0, len(meshes) - 1))
        kind = ir.ValueType("f32", shape, lying(meshes[number]))
        count = draw(st.integers(1, 2))
        donated = tuple(p for p in range(count) if draw(st.booleans()))
        code = ir.Function(f"f{node}", f"s{number}", (kind,) * count, (kind, kind), donated=donated)
        values += builder.compute(code, [draw(st.sampled_from(values)) for _ in range(count)])
        if draw(st.booleans()):
            values.append(builder.transfer(draw(st.sampled_from(values)), f"s{number}", lying(meshes[number])))
    results = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    return builder.build(results), devices, hosts_of(device_count, per_host or draw(st.integers(1, 6)))


class Code(dict[str, Any]):
    """Every function: the first result is a sum with a constant of the function's own, the second its negative."""

    def __missing__(self, name: str) -> Any:
        def call(*arguments: Array) -> list[Array]:
            made = sum(arguments) + float(name[1:] or 0)
            return [np.asarray(made), np.asarray(-made)]

        return call


def plainly(program: ir.Program, inputs: list[Array]) -> list[Array]:
    """What the program computes, without any cluster."""
    values: dict[str, Array] = {}
    given = iter(inputs)
    for node in program.nodes:
        arguments = [values[name] for name in node.inputs]
        if node.kind is ir.Kind.ARGUMENT:
            made = [next(given)]
        elif node.kind is ir.Kind.COMPUTE:
            made = Code()[node.function](*arguments)
        else:
            made = arguments
        values.update((value.name, array) for value, array in zip(node.outputs, made, strict=False))
    return [values[name] for name in program.results]
