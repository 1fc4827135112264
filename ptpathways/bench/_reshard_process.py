"""Process of ``reshard``: two slices, a model on each, and the weights of one sent to the other.

Arguments: hosts, devices per host, matrices of 16 MiB.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import ptpathways as pw
from ptpathways.bench._child import serve
from ptpathways.bench._reshard import COPIES
from ptpathways.bench._transfer import SIZE
from ptpathways.frontend import session, value_of
from ptpathways.sharding import Tiling

_WIDTH = 2048
_TIMEOUT_S = 60.0
_FEW_BYTES = 1 << 16

Layout = tuple[str | None, ...]
ROWS: Layout = ("x", None)
COLUMNS: Layout = (None, "x")


def _matrix() -> torch.Tensor:
    return torch.rand(_WIDTH, _WIDTH)


def layout_of(name: str, layer: int) -> Layout:
    """How a layer's weight lies under the layout called ``name``.

    Raises:
        ValueError: there is no such layout.
    """
    layouts: dict[str, tuple[Layout, ...]] = {
        "copies": ((None, None),),
        "rows": (ROWS,),
        "columns": (COLUMNS,),
        "fully sharded": (ROWS,),  # what ``strategy="fsdp"`` does to square matrices
        "tensor parallel": (ROWS, COLUMNS),  # takes turns, as a Transformer's layers do
    }
    if name not in layouts:
        raise ValueError(f"layout must be one of {', '.join(layouts)}, got {name!r}")
    return layouts[name][layer % len(layouts[name])]


class Slices:
    """Two slices of half of the hosts each, a value for the plain copy, and the models of the current move."""

    def __init__(self, matrices: int) -> None:
        cluster = pw.cluster()
        half = (cluster.device_count // 2,)
        self._slices = [cluster.slice(half, ("x",), hosts=len(cluster.hosts) // 2) for _ in range(2)]
        source, target = (set(slice.devices) for slice in self._slices)
        if source & target:
            raise RuntimeError(f"the slices must have different devices, got {source} and {target}")
        array = np.random.default_rng(0).random(SIZE // 4, dtype=np.float32)
        self._plain = session().put(array, min(source))
        self._plain.wait(_TIMEOUT_S)
        self._other_host = min(target)
        self._matrices = matrices
        self._models: list[nn.ParameterList] = []
        self._laid_out: list[Tiling | None] = []
        self._does: dict[str, Callable[[], object]] = {"link": self._copy}

    def answer(self, request: dict[str, Any]) -> dict[str, float]:
        """``lay out`` (two models, from ``source`` to ``target``), ``check``, or how long something else takes."""
        if request["do"] == "lay out":
            self._lay_out(request["source"], request["target"])
            return {}
        if request["do"] == "check":
            self._check()
            return {}
        do = self._does[request["do"]]
        before = self._client_bytes()
        start = time.perf_counter()
        do()
        seconds = time.perf_counter() - start
        if self._client_bytes() - before > _FEW_BYTES:
            raise RuntimeError(f"weights passed the client: {self._client_bytes() - before} bytes")
        return {"seconds": seconds}

    def _copy(self) -> None:
        for _ in range(COPIES):  # as long as the weights take, about
            self._plain.copy_to(self._other_host).wait(_TIMEOUT_S)

    def _lay_out(self, *layouts: str) -> None:
        self._does = {"link": self._copy}
        self._models.clear()  # gives the memory back before more is asked for
        self._models += [self._model(slice, layout) for slice, layout in zip(self._slices, layouts, strict=True)]
        self._laid_out = self._tilings()
        source, target = self._models

        def send() -> None:
            target.load_state_dict(source.state_dict())

        captured = pw.program(send)

        def replayed() -> None:
            captured()
            pw.wait()

        def lazily() -> None:
            send()
            pw.step()
            pw.wait()

        self._does |= {"captured": replayed, "lazily": lazily}

    def _model(self, slice: pw.VirtualSlice, layout: str) -> nn.ParameterList:
        model = nn.ParameterList()
        for number in range(self._matrices):
            make = pw.function(slice=slice, out_placements=layout_of(layout, number))(_matrix)
            model.append(nn.Parameter(make().tensor(), requires_grad=False))
        return model

    def _check(self) -> None:
        if self._tilings() != self._laid_out:
            raise RuntimeError(f"the weights lay as {self._laid_out}, and now as {self._tilings()}")
        source, target = (list(model.parameters())[:2] for model in self._models)
        if not all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(source, target, strict=True)):
            raise RuntimeError("the weights that arrived differ from those that were sent")

    def _tilings(self) -> list[Tiling | None]:
        return [value_of(weight).tiling for model in self._models for weight in model.parameters()]

    @staticmethod
    def _client_bytes() -> int:
        stats = session().transfer_stats()
        return int(stats["bytes_uploaded"]) + int(stats["bytes_fetched"])


def main() -> None:
    hosts, devices, matrices = map(int, sys.argv[1:])
    pw.init(hosts=hosts, devices_per_host=devices)
    serve(Slices(matrices).answer)
    pw.shutdown()


if __name__ == "__main__":
    main()
