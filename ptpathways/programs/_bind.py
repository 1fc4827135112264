"""A program whose slices have devices, registered with a session: lowered once, run by one message."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways import core, ir, native
from ptpathways.programs._times import TimedRun, gather

if TYPE_CHECKING:
    from ptpathways.native import Buffer, Function, Session


_NODE_TIMEOUT_S = 600.0


class Functions:
    """Compiled functions of a session, each registered once per content, types and devices while somebody holds it.

    Threads: any; a lock guards the table.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: weakref.WeakValueDictionary[Any, _Held] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def get(self, function: ir.Function, devices: Sequence[int], module: bytes) -> _Held:
        """The function registered for ``devices``; ``module`` is without shardings.

        Raises:
            CompileFailed, HostLost: it cannot be registered.
        """
        key = (function.digest, function.format, function.inputs, function.outputs, tuple(devices))
        with self._lock:
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = _Held(self._register(function, devices, module))
            return found

    def _register(self, function: ir.Function, devices: Sequence[int], module: bytes) -> Function:
        if len(devices) > 1:
            module = native.annotate_hlo(
                module,
                [kind.sharding.op_sharding(len(kind.shape)).to_proto() for kind in function.inputs],
                [kind.sharding.op_sharding(len(kind.shape)).to_proto() for kind in function.outputs],
            )
        with native.translated("compiling"):
            return self._session.register(
                module,
                "hlo",
                devices=list(devices),
                name=function.name,
                source=function.source,
                outputs=[(kind.dtype, kind.shard_shape) for kind in function.outputs],
            )


class _Held:
    """A registered function, in a form that can be referenced weakly."""

    __slots__ = ("__weakref__", "function")

    def __init__(self, function: Function) -> None:
        self.function = function


class BoundProgram:
    """A program registered with a session. Dropping it unregisters it.

    Attributes:
        inferred: the program with its transfers.
        placed: on physical devices.
        lowered: as plans.
    """

    def __init__(
        self,
        functions: Functions,
        session: Session,
        program: ir.Program,
        devices: Mapping[str, Sequence[int]],
        modules: Mapping[str, bytes],
    ) -> None:
        """
        Args:
            devices: the cluster-wide devices of each slice, by its name.
            modules: HloModuleProto bytes by digest.

        Raises:
            InvalidProgram: it breaks a rule, or has host calls.
            CompileFailed, HostLost: it cannot be registered.
        """
        self.inferred = ir.infer_transfers(program)
        self.placed = ir.place(self.inferred, devices, hosts_of(session))
        self.lowered = ir.lower(self.placed)
        self._held = [
            functions.get(placed.function, placed.devices, _module(modules, placed.function))
            for placed in self.lowered.functions
        ]
        with native.translated():
            self._program = session.register_program(
                self.lowered.name,
                self.lowered.plans,
                self.lowered.inputs,
                self.lowered.outputs,
                functions=[held.function for held in self._held],
                source=self.lowered.source,
            )
        self._session = session
        self._run = session.run_program
        self.donated = frozenset(self.lowered.donated)
        self._donated = self.lowered.donated

    def wait_ready(self, timeout_s: float) -> None:
        """Waits until every host has compiled what it runs. Raises CompileFailed, HostLost, DeadlineExceeded."""
        with native.translated("compiling"):
            self._program.wait_ready(timeout_s)

    def run(self, arguments: Sequence[Buffer], donated: Sequence[int] | None = None) -> list[Buffer]:
        """Submits one run and returns the results' handles at once.

        Args:
            donated: numbers of the arguments that it gives up, of those that it may; None: all of these.

        Raises:
            NativeError: an argument does not fit, or the session is over.
        """
        return self._run(self._program, arguments, self._donated if donated is None else donated)

    def times(self, timeout_s: float) -> list[TimedRun]:
        """When the computations of its last runs began and ended, the oldest first; few runs.

        Raises:
            NativeError: a host is lost, or does not answer in time.
        """
        hosts = {host["host"]: host for host in self._session.hosts()}
        places = [hosts[plan["host"]] for plan in self.lowered.plans]
        return gather(
            (host["machine"], self._session.times_of(self._program, host["first_device"], timeout_s)) for host in places
        )


class SequentialProgram:
    """A program dispatched node by node, each when what it needs exists (paper 4.5, the other way of figure 7).

    To compare with, and to see at which node a program fails: ``run`` waits, and raises that node's error.
    """

    def __init__(
        self,
        functions: Functions,
        session: Session,
        program: ir.Program,
        devices: Mapping[str, Sequence[int]],
        modules: Mapping[str, bytes],
    ) -> None:
        """As ``BoundProgram``."""
        self._arguments = [node.outputs[0].name for node in program.arguments]
        self._results = program.results
        self.donated = frozenset(number for number, node in enumerate(program.arguments) if node.donated)
        self._parts: list[tuple[BoundProgram, ir.Segment]] = []
        for segment in ir.segments(program):
            if segment.program is None:
                raise core.InvalidProgram(f"program {program.label} has irregular functions; split it at them")
            self._parts.append((BoundProgram(functions, session, segment.program, devices, modules), segment))

    def run(self, arguments: Sequence[Buffer]) -> list[Buffer]:
        """Runs node after node; the results when all exist.

        Raises:
            NativeError: of the first node that failed; DEADLINE_EXCEEDED when one takes over ten minutes.
        """
        values = dict(zip(self._arguments, arguments, strict=True))
        for bound, segment in self._parts:
            made = bound.run([values[name] for name in segment.inputs])
            for name, buffer in zip(segment.outputs, made, strict=True):
                buffer.wait(_NODE_TIMEOUT_S)
                values[name] = buffer
        return [values[name] for name in self._results]


def hosts_of(session: Session) -> dict[int, int]:
    """The host of each device of the cluster."""
    return {
        host["first_device"] + index: host["host"] for host in session.hosts() for index in range(len(host["devices"]))
    }


def _module(modules: Mapping[str, bytes], function: ir.Function) -> bytes:
    found = modules.get(function.digest)
    if found is None:
        raise core.InvalidProgram(f"the module of function {function.label} is missing (digest {function.digest})")
    return found
