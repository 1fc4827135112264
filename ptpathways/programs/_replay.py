"""Runs a saved program on a session and times it. Neither torch nor the program's Python is needed."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ptpathways import core, native
from ptpathways.programs._bind import BoundProgram, Functions
from ptpathways.programs._bundle import Bundle
from ptpathways.programs._chain import chain
from ptpathways.programs._shards import assemble, distinct, split

if TYPE_CHECKING:
    from ptpathways.native import Buffer, Session

FIRST_VALUES = 4


@dataclass(frozen=True, slots=True)
class ReplayedResult:
    """One result of the program."""

    name: str
    type: str
    checksum: str
    """The first 16 hexadecimal digits of the SHA-256 of its bytes, row-major."""
    first: list[float | int | bool]
    """Its first elements; the real parts of complex ones."""
    mean: float


@dataclass(frozen=True, slots=True)
class Replay:
    """What ``replay`` measured. Times in milliseconds."""

    program: str
    platform: str
    hosts: int
    devices: int
    repeat: int
    compile_ms: float
    """From registering until every host has compiled."""
    first_ms: float
    """The first run, until its results exist."""
    median_ms: float
    """A run on its own, submitted and waited for."""
    p90_ms: float
    pipelined_ms: float
    """Per run, when all are submitted before the first is waited for."""
    results: list[ReplayedResult]
    """Of the first run; if runs are chained, of the last."""
    chained: dict[str, str] = field(default_factory=dict)
    """Which result of a run is which argument of the next: names by names of arguments."""


def replay(
    bundle: Bundle, session: Session, *, repeat: int = 10, chained: bool = False, timeout_s: float = 600.0
) -> Replay:
    """Runs ``bundle`` once, then ``repeat`` times waiting for each, then as often without waiting.

    Arguments without a saved value get made-up ones. Arguments that a run gives up are uploaded again for each, which
    is not timed; or, ``chained``, they are results of the run before (``chain``), as in training, and nothing else is
    given up.

    Raises:
        InvalidOption: runs of this program cannot be chained.
        SliceUnavailable: the cluster has not the devices that the program's slices need.
        CompileFailed, HostLost, OutOfDeviceMemory, DeadlineExceeded: as runs do.
    """
    if repeat < 1:
        raise core.InvalidOption(f"option repeat must be at least 1, got {repeat}")
    granted: dict[str, tuple[int, list[int]]] = {}
    try:
        for part in bundle.program.slices:
            with native.translated("slicing"):
                given = session.request_slice(part.mesh.size)
            granted[part.name] = given["slice"], given["devices"]
        return _replayed(
            bundle, session, {name: devices for name, (_, devices) in granted.items()}, repeat, chained, timeout_s
        )
    finally:
        for number, _ in granted.values():
            session.release_slice(number)


def _replayed(
    bundle: Bundle, session: Session, devices: dict[str, list[int]], repeat: int, chained: bool, timeout_s: float
) -> Replay:
    started = time.perf_counter()
    bound = BoundProgram(Functions(session), session, bundle.program, devices, bundle.modules)
    links = chain(bundle.program, bound.donated, bundle.follows) if chained else {}
    bound.wait_ready(timeout_s)
    compiled = time.perf_counter()
    given_up = [number for number in sorted(bound.donated) if number in links or not chained]
    inputs = _Inputs(bundle, session, bound, links)

    def run(arguments: list[Buffer]) -> list[Buffer]:
        results = bound.run(arguments, given_up)
        inputs.follow(results)
        return results

    def timed() -> tuple[float, list[Buffer]]:
        arguments = inputs.take(timeout_s)
        start = time.perf_counter()
        with native.translated():
            results = run(arguments)
            for result in results:
                result.wait(timeout_s)
        return (time.perf_counter() - start) * 1e3, results

    first_ms, results = timed()
    singles = sorted(timed()[0] for _ in range(repeat))
    uploaded = [inputs.take(timeout_s) for _ in range(repeat)] if given_up and not links else None
    start = time.perf_counter()
    with native.translated():
        for last in [run(uploaded[number] if uploaded else inputs.take(None)) for number in range(repeat)]:
            for result in last:
                result.wait(timeout_s)
    pipelined_ms = (time.perf_counter() - start) * 1e3 / repeat
    return Replay(
        program=bundle.program.label,
        platform=",".join(sorted({host["platform"] for host in session.hosts()})),
        hosts=len(bound.lowered.plans),
        devices=len({device for placed in bound.lowered.functions for device in placed.devices}),
        repeat=repeat,
        compile_ms=(compiled - started) * 1e3,
        first_ms=first_ms,
        median_ms=statistics.median(singles),
        p90_ms=singles[min(len(singles) - 1, int(0.9 * len(singles)))],
        pipelined_ms=pipelined_ms,
        results=[
            _result(bundle, number, buffer, timeout_s) for number, buffer in enumerate(last if links else results)
        ],
        chained={
            bundle.program.arguments[argument].outputs[0].name: bundle.program.results[result]
            for argument, result in links.items()
        },
    )


class _Inputs:
    """The program's arguments on their devices; those that runs give up, anew for each, unless results follow them."""

    def __init__(self, bundle: Bundle, session: Session, bound: BoundProgram, links: Mapping[int, int]) -> None:
        self._bundle = bundle
        self._session = session
        self._bound = bound
        self._links = links
        self._kept = {
            number: self._put(number)
            for number in range(len(bound.lowered.inputs))
            if links or number not in bound.donated
        }

    def take(self, timeout_s: float | None) -> list[Buffer]:
        """A run's arguments; all of them on their devices, unless ``timeout_s`` is None."""
        taken = [
            self._kept[number] if number in self._kept else self._put(number)
            for number in range(len(self._bound.lowered.inputs))
        ]
        if timeout_s is not None:
            with native.translated():
                for buffer in taken:
                    buffer.wait(timeout_s)
        return taken

    def follow(self, results: Sequence[Buffer]) -> None:
        """After a run: its results are the next one's arguments, as far as runs are chained."""
        self._kept.update((argument, results[result]) for argument, result in self._links.items())

    def _put(self, number: int) -> Buffer:
        value = self._bundle.program.arguments[number].outputs[0]
        shards = split(self._bundle.value(number), value.type.sharding)
        with native.translated():
            return self._session.put_sharded(
                shards, self._bound.lowered.inputs[number]["devices"], dtype=value.type.dtype
            )


def _result(bundle: Bundle, number: int, buffer: Buffer, timeout_s: float) -> ReplayedResult:
    name = bundle.program.results[number]
    kind = bundle.program.values[name].type
    wanted = distinct(kind.sharding, len(kind.shape))
    with native.translated():
        shards = [buffer.shard(i).result(timeout_s) if needed else None for i, needed in enumerate(wanted)]
    whole = assemble(shards, kind.shape, kind.sharding, kind.dtype)
    numbers = _readable(whole, kind.dtype)
    return ReplayedResult(
        name=name,
        type=kind.tensor,
        checksum=hashlib.sha256(np.ascontiguousarray(whole).tobytes()).hexdigest()[:16],
        first=numbers.ravel()[:FIRST_VALUES].tolist(),
        mean=float(numbers.mean(dtype=np.float64)) if numbers.size else 0.0,
    )


def _readable(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """As numbers: bf16 out of its bits, the real part of complex ones."""
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(np.real(array))
