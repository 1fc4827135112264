"""What ``peers.runner`` measures of ours: a local cluster with a worker process for each host.

"add": every host adds to a scalar that it holds. "allreduce": the same with a collective over all hosts, one island.
"pipeline": items pass stages that wait, on one device of each host in turn; one program for each item.
"""

from __future__ import annotations

import functools

import numpy as np

from ptpathways import core, native
from ptpathways.bench._hlo import add_chain, all_reduce, waiting
from ptpathways.bench._programs import chain, pipeline
from ptpathways.bench.peers.runner import CHAIN, ITEMS, STAGE_S, Batch, Setting, ideal_seconds, stage_places
from ptpathways.launch import local

_CALLS = 500
_PROGRAMS = 20
_TIMEOUT_S = 60.0


class Own:
    """Our system, started."""

    def __init__(self, setting: Setting) -> None:
        self.versions = {"ptpathways": core.__version__}
        self._work, count = setting["work"], setting["hosts"]
        self._cluster = local.start(core.Options(hosts=count))
        self._session = self._cluster.session
        self._devices = [host["first_device"] for host in self._session.hosts()]

    def figures(self) -> dict[str, Batch]:
        if self._work == "pipeline":
            return {"pipeline": self._pipeline()}
        one, many = self._functions()
        held = self._scalars(self._devices)
        programs = {
            "OpByOp": (chain(self._session, "one", one, self._devices, 1), _CALLS, 1),
            "Chained": (chain(self._session, "chained", one, self._devices, CHAIN), _PROGRAMS, CHAIN),
            "Fused": (chain(self._session, "fused", many, self._devices, 1), _CALLS, CHAIN),
            "round trip": (chain(self._session, "one more", one, self._devices, 1), 1, 1),
        }
        figures: dict[str, Batch] = {}
        for name, (program, runs, computations) in programs.items():
            program.wait_ready(_TIMEOUT_S)
            self._check(program, held, computations)
            figures[name] = functools.partial(self._runs, program, held, runs, computations)
        return figures

    def close(self) -> None:
        self._cluster.close()

    def _functions(self) -> tuple[native.Function, native.Function]:
        """One computation, and ``CHAIN`` of them in one."""
        if self._work == "allreduce":
            one, many = (all_reduce(len(self._devices), length) for length in (1, CHAIN))
            return (
                self._session.register(one, "mlir", name="all_reduce", devices=self._devices),
                self._session.register(many, "mlir", name="all_reduces", devices=self._devices),
            )
        return (
            self._session.register(add_chain(1), "mlir", name="add"),
            self._session.register(add_chain(CHAIN), "mlir", name="adds"),
        )

    def _scalars(self, devices: list[int]) -> native.Buffer:
        return self._session.put_sharded([np.zeros((), np.float32) for _ in devices], devices)

    def _check(self, program: native.Program, held: native.Buffer, computations: int) -> None:
        values = [float(value) for value in self._session.run_program(program, [held])[0].fetch(_TIMEOUT_S)]
        if values != [computations] * len(self._devices):
            raise RuntimeError(f"every host must hold {computations} after as many computations, got {values}")

    def _runs(self, program: native.Program, held: native.Buffer, runs: int, computations: int) -> float:
        """Each run takes what the one before gives."""
        run = self._session.run_program
        for _ in range(runs):
            (held,) = run(program, (held,))
        held.wait(_TIMEOUT_S)
        return runs * computations

    def _pipeline(self) -> Batch:
        stage = self._session.register(waiting(STAGE_S), "mlir", name="stage")
        stages = [self._devices[host] for host in stage_places(len(self._devices))]
        program = pipeline(self._session, "pipeline", stage, stages)
        program.wait_ready(_TIMEOUT_S)
        item = self._scalars(stages[:1])

        def items() -> float:
            results = [self._session.run_program(program, (item,))[0] for _ in range(ITEMS)]
            for result in results:
                result.wait(_TIMEOUT_S)
            return ideal_seconds(len(self._devices))

        return items


open_system = Own
