"""A saved program compiled for devices that this machine need not have: memory, time, collectives.

The plugin is loaded into this process, with its environment; a defect of a compiler can end it. ``Program.compile_for``
therefore does it in a process of its own.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptpathways import core, ir, native
from ptpathways.platforms import Chip, Target, find_target
from ptpathways.programs._bundle import Bundle
from ptpathways.sharding import Mesh

if TYPE_CHECKING:
    from ptpathways.native import CompiledMemoryDict

_MOVED_TWICE = "all-reduce"
_LARGEST = 5
_LINES_OF_ERROR = 3
_WRONG_ARGUMENTS = 2


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """Collectives of one kind over the same devices, in one call of a function."""

    opcode: str
    axes: str
    """The axes of the slice's mesh along which they go, ``"data"``, or groups that are no axes: ``"4 groups of 2"``."""
    count: int
    bytes: int
    """Of one device's operands or results, all of them together."""
    seconds: float
    """At the stated rate of the links."""


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """One function of the program on the target; bytes and FLOPs are those of one device."""

    name: str
    source: str
    devices: int
    calls: int
    """In one run of the program."""
    compile_s: float
    error: str
    """What the compiler said against it; empty: it compiles. Then what follows is known."""
    out_of_memory: bool = False
    """Whether it said that the devices have not enough memory."""
    argument_bytes: int = 0
    output_bytes: int = 0
    aliased_bytes: int = 0
    """Part of both."""
    temporary_bytes: int = 0
    code_bytes: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    """Of one call, without collectives."""
    by_xla: bool = False
    """Whether XLA's cost analysis says so, or a roofline."""
    collectives: tuple[CollectiveCost, ...] | None = ()
    """None: the plugin does not show what it compiled."""


@dataclass(frozen=True, slots=True)
class LargeValue:
    """A value that is there when most memory is taken."""

    name: str
    type: str
    bytes: int


@dataclass(frozen=True, slots=True)
class CompiledFor:
    """What ``compile_for`` found; bytes are those of one device."""

    program: str
    target: str
    chip: str
    plugin: str
    devices: int
    """Of the target."""
    used_devices: int
    """Of the program."""
    functions: tuple[CompiledFunction, ...]
    device_memory: int
    peak_bytes: int
    peak_at: str
    """The node of the program that runs when most memory is taken."""
    peak_temporary_bytes: int
    """Of its function: temporary memory, padding and code."""
    largest: tuple[LargeValue, ...]
    step_seconds: float
    """Of one run: computations, collectives and transfers, each when its inputs are there and its devices are free."""
    basis: str
    """What the times are computed from."""

    @property
    def compiles(self) -> bool:
        """Whether every function does."""
        return not any(function.error for function in self.functions)

    @property
    def fits(self) -> bool:
        """Whether no device needs more memory than it has."""
        return self.compiles and self.peak_bytes <= self.device_memory

    @property
    def verdict(self) -> str:
        """``fits``, ``does not fit`` or ``does not compile``."""
        if any(function.error and not function.out_of_memory for function in self.functions):
            return "does not compile"
        return "fits" if self.fits else "does not fit"


def compile_apart(bundle: Bundle, target: str, plugin: str = "") -> CompiledFor:
    """``compile_for`` in a process of its own, which a compiler's crash ends alone.

    Raises:
        InvalidOption, PluginNotFound, InvalidProgram: as ``ptpathways compile``.
        CompileFailed: the process was killed.
    """
    if not isinstance(target, str) or not isinstance(plugin, str):
        raise core.InvalidOption(
            f"a target is a text such as 'h200:2x8', and plugin a path as text, got {target!r} and {plugin!r}"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = bundle.save(Path(folder) / "program.zip")
        command = [sys.executable, "-m", "ptpathways", "compile", str(path), "--target", target, "--json"]
        done = subprocess.run(
            [*command, "--plugin", plugin] if plugin else command, check=False, capture_output=True, text=True
        )
    said = _last_line(done.stderr).partition("ptpathways compile: ")[2] or _last_line(done.stderr)
    if done.returncode < 0:
        raise core.CompileFailed(
            f"the compiler for {target} must end by itself, and was ended by signal {-done.returncode}: {said}"
        )
    try:
        found = json.loads(done.stdout)
    except ValueError:
        find_target(target, plugin)  # raises what the command has said
        raise (core.InvalidOption if done.returncode == _WRONG_ARGUMENTS else core.CompileFailed)(said) from None
    return _from_json(found)


def _from_json(found: dict[str, Any]) -> CompiledFor:
    del found["verdict"]
    functions = []
    for function in found.pop("functions"):
        uses = function.pop("collectives")
        collectives = None if uses is None else tuple(CollectiveCost(**use) for use in uses)
        functions.append(CompiledFunction(collectives=collectives, **function))
    largest = tuple(LargeValue(**value) for value in found.pop("largest"))
    return CompiledFor(functions=tuple(functions), largest=largest, **found)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def compile_for(bundle: Bundle, target: Target) -> CompiledFor:
    """Compiles every function of ``bundle`` for ``target``; nothing runs.

    Raises:
        InvalidOption: the target has fewer devices than a slice of the program, or the plugin does not know it.
        PluginNotFound: the plugin cannot be loaded.
    """
    program = ir.infer_transfers(bundle.program)
    placed = _place(program, target)
    os.environ.update(target.environment)
    topology = _topology(target)
    calls = Counter(node.function for node in program.nodes if node.kind is ir.Kind.COMPUTE)
    functions = [
        _compile(topology, target, program, function, bundle.modules[function.digest], calls[function.name])
        for function in program.functions
    ]
    costs = {function.name: _cost(program.function(function.name), function) for function in functions}
    whole = ir.estimate(program, costs, placed, _link(target, target.devices))
    return CompiledFor(
        program=program.label,
        target=target.text,
        chip=target.chip.name,
        plugin=target.plugin.source,
        devices=target.devices,
        used_devices=max((devices.stop for devices in placed.values()), default=0),
        functions=tuple(functions),
        device_memory=target.chip.memory,
        peak_bytes=whole.peak_bytes,
        peak_at=whole.peak_at,
        peak_temporary_bytes=costs[whole.peak_function].extra_bytes if whole.peak_function else 0,
        largest=tuple(LargeValue(value.name, value.type, value.shard_bytes) for value in whole.live[:_LARGEST]),
        step_seconds=whole.seconds,
        basis=_basis(target, {function.by_xla for function in functions if not function.error}),
    )


def _topology(target: Target) -> native.Topology:
    try:
        return native.Topology(target.plugin.path, target.topology, dict(target.options))
    except native.NativeError as error:
        if getattr(error, "code", "") == "NOT_FOUND":
            raise core.PluginNotFound(str(error)) from None
        raise core.InvalidOption(
            f"target {target.text} must be one that plugin {target.plugin.path} compiles for, and it says: "
            f"{_brief(error)}"
        ) from None


def _place(program: ir.Program, target: Target) -> dict[str, range]:
    """Slices one after the other; from the first device again where the target has not so many."""
    placed: dict[str, range] = {}
    next_free = 0
    for part in program.slices:
        size = part.mesh.size
        if size > target.devices:
            raise core.InvalidOption(
                f"target {target.text} must have at least the {size} devices of slice {part.name!r} [{part.mesh}], "
                f"and has {target.devices}"
            )
        start = next_free if next_free + size <= target.devices else 0
        placed[part.name] = range(start, start + size)
        next_free = start + size
    return placed


def _compile(
    topology: native.Topology,
    target: Target,
    program: ir.Program,
    function: ir.Function,
    module: bytes,
    calls: int,
) -> CompiledFunction:
    mesh = program.slice(function.slice).mesh
    started = time.perf_counter()
    try:
        if mesh.size > 1:
            module = native.annotate_hlo(module, _shardings(function.inputs), _shardings(function.outputs))
        made = topology.compile(module, mesh.size)
    except native.NativeError as error:
        elapsed = time.perf_counter() - started
        full = getattr(error, "code", "") == "RESOURCE_EXHAUSTED"
        return CompiledFunction(function.name, function.source, mesh.size, calls, elapsed, _brief(error), full)
    elapsed = time.perf_counter() - started
    memory, costs = made["memory"], made["costs"]
    counted = sum(made["flops"].values()) / mesh.size
    flops = float(costs.get("flops", 0.0)) or counted
    seconds = float(costs.get("optimal_seconds", 0.0))
    by_xla = seconds > 0
    if not by_xla:
        seconds = _roofline(target.chip, made["flops"], mesh.size, memory)
    collectives = made["collectives"]
    return CompiledFunction(
        name=function.name,
        source=function.source,
        devices=mesh.size,
        calls=calls,
        compile_s=elapsed,
        error="",
        argument_bytes=memory["arguments"],
        output_bytes=memory["outputs"],
        aliased_bytes=memory["aliased"],
        temporary_bytes=memory["temporary"],
        code_bytes=memory["generated_code"],
        flops=flops,
        seconds=seconds,
        by_xla=by_xla,
        collectives=None if collectives is None else _collectives(collectives, mesh, target),
    )


def _shardings(kinds: Iterable[ir.ValueType]) -> list[bytes | None]:
    return [kind.sharding.op_sharding(len(kind.shape)).to_proto() for kind in kinds]


def _cost(function: ir.Function, compiled: CompiledFunction) -> ir.FunctionCost:
    inputs, outputs = (sum(map(ir.shard_bytes, kinds)) for kinds in (function.inputs, function.outputs))
    padding = max(0, compiled.argument_bytes - inputs) + max(0, compiled.output_bytes - outputs)
    moving = sum(collective.seconds for collective in compiled.collectives or ())
    extra = compiled.temporary_bytes + compiled.code_bytes + padding
    return ir.FunctionCost(extra, compiled.seconds + moving)


def _roofline(chip: Chip, flops: Mapping[str, int], devices: int, memory: CompiledMemoryDict) -> float:
    """The larger of what products take at the chip's peak (half of it for f32 and others), and what it takes to read
    the arguments, write the outputs, and write and read the temporaries once."""
    full = sum(count for dtype, count in flops.items() if dtype in ("bf16", "f16"))
    half = sum(flops.values()) - full
    moved = memory["arguments"] + memory["outputs"] + 2 * memory["temporary"]
    return max((full + 2 * half) / devices / chip.flops, moved / chip.bandwidth)


def _basis(target: Target, by_xla: set[bool]) -> str:
    chip = target.chip
    rate = f"{_link(target, target.devices) / 1e9:.0f} GB/s"
    ways = []
    if True in by_xla:
        ways.append("XLA's cost analysis")
    if False in by_xla:
        ways.append(
            f"a roofline of {chip.flops / 1e12:.0f} TFLOP/s (bf16; f32 half of it) and "
            f"{chip.bandwidth / 1e12:.2f} TB/s, which nothing is faster than"
        )
    computing = ", and where it says nothing ".join(ways)
    moving = f"collectives and transfers: {rate} into each device ({chip.source})"
    return f"computations: {computing}; {moving}"


def _link(target: Target, devices: int) -> float:
    return target.chip.link if devices <= target.devices_per_host else target.chip.network


def _collectives(
    found: Sequence[tuple[str, int, Sequence[Sequence[int]]]], mesh: Mesh, target: Target
) -> tuple[CollectiveCost, ...]:
    """Those alike in one."""
    sums: dict[tuple[str, str], tuple[int, int, float]] = {}
    for opcode, size, groups in found:
        key = (opcode, axes_of(opcode, groups, mesh))
        members = len(groups[0]) if groups else mesh.size
        share = 1.0 if opcode == "collective-permute" else (members - 1) / members
        moved = size * share * (2 if opcode == _MOVED_TWICE else 1)
        count, total, seconds = sums.get(key, (0, 0, 0.0))
        sums[key] = (count + 1, total + size, seconds + moved / _link(target, mesh.size))
    return tuple(CollectiveCost(opcode, axes, *values) for (opcode, axes), values in sums.items())


def axes_of(opcode: str, groups: Sequence[Sequence[int]], mesh: Mesh) -> str:
    """The axes of ``mesh`` along which a collective over ``groups`` of positions goes, as text."""
    if opcode == "collective-permute":
        return f"{len(groups)} pairs"
    if not groups:
        return ",".join(mesh.axis_names)
    given = {frozenset(group) for group in groups}
    for count in range(1, len(mesh.shape) + 1):
        for chosen in itertools.combinations(range(len(mesh.shape)), count):
            if given == _groups_along(mesh, chosen):
                return ",".join(mesh.axis_names[axis] for axis in chosen)
    return f"{len(groups)} groups of {len(groups[0])}"


def _groups_along(mesh: Mesh, axes: Sequence[int]) -> set[frozenset[int]]:
    """Positions that differ along ``axes`` only, together."""
    together: dict[tuple[int, ...], set[int]] = {}
    for position in range(math.prod(mesh.shape)):
        rest = tuple(value for axis, value in enumerate(mesh.coordinates(position)) if axis not in axes)
        together.setdefault(rest, set()).add(position)
    return {frozenset(group) for group in together.values()}


def _brief(error: native.NativeError) -> str:
    """A compiler's message without the dump of the module that may follow."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return " ".join(lines[:_LINES_OF_ERROR])
