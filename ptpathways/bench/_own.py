"""What ``peers.runner`` measures of ours: a local cluster with a worker process for each host.

"add": every host adds to a scalar that it holds; "allreduce": so many devices of one host, with a collective.
"""

from __future__ import annotations

import functools

import numpy as np

from ptpathways import core, native
from ptpathways.bench._dispatch import ADD_ONE
from ptpathways.bench.peers.runner import Batch, Setting
from ptpathways.launch import local

_CALLS = 500
_TIMEOUT_S = 60.0


class Own:
    """Our system, started."""

    def __init__(self, setting: Setting) -> None:
        self.versions = {"ptpathways": core.__version__}
        self._cluster = local.start(core.Options(hosts=setting["hosts"]))
        self._session = self._cluster.session
        self._devices = [host["first_device"] for host in self._session.hosts()]
        self._function = self._session.register(ADD_ONE, "mlir", name="add_one")
        self._held: list[native.Buffer] = [self._session.put(np.float32(0.0), device) for device in self._devices]

    def figures(self) -> dict[str, Batch]:
        return {
            "OpByOp": functools.partial(self._calls, _CALLS),
            "round trip": functools.partial(self._calls, 1),
        }

    def close(self) -> None:
        self._cluster.close()

    def _calls(self, count: int) -> float:
        run, function = self._session.run, self._function
        for _ in range(count):
            self._held = [
                run(function, [held], device)[0] for held, device in zip(self._held, self._devices, strict=True)
            ]
        for held in self._held:
            held.wait(_TIMEOUT_S)
        return count


open_system = Own
