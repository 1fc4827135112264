"""Input pipelines on the workers' hosts: their processes, and tensors on the devices whose bytes those make."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptpathways import core, native, programs
from ptpathways.frontend.base import _state
from ptpathways.frontend.slices import _feeding, _mesh, _transfer
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch

_ANSWER_SLACK_S = 30.0
"""The worker gives up first, and says more."""


@dataclass(frozen=True, slots=True)
class Part:
    """A box of a tensor that a device needs."""

    host: int
    key: int
    """Under which the device's worker waits for its bytes."""
    tensor: int
    """Which of the tensors declared together."""
    start: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where batches go: to the slice of ``layout``, lying there as it says."""

    layout: _mesh.BatchLayout

    @classmethod
    def of(cls, layout: _mesh.BatchLayout | None, device: torch.device | str | int | None) -> Placement:
        """Of what the user said: a layout, or the torch device of a slice, whose own axes then divide batches.

        Raises:
            NotInitialized, SliceUnavailable, InvalidSharding: as ``batch_layout``.
            ValueError: not a device of the cluster.
        """
        if device is None:
            return cls(layout if layout is not None else _mesh.batch_layout())
        import torch

        target = torch.device("xla", device) if isinstance(device, int) else torch.device(device)
        if target.type != "xla":
            raise ValueError(f"expected a device of the cluster, such as pw.device() or slice.device, got {target}")
        return cls(_mesh.batch_layout(slice=_mesh.slice_of(target)))

    def devices(self) -> tuple[int, ...]:
        """The cluster's numbers of the devices that batches lie on now."""
        assert self.layout.slice is not None
        return self.layout.slice.devices


class Pipeline:
    """A Python process (or several) on each host that has devices of ``placement``, for as long as this object lives.

    Args:
        given: what each process is given first.
        name: for errors.
        workers: processes per host.

    Raises:
        PathwaysError: the cluster cannot run any (it is simulated, or torch_xla's own).
    """

    def __init__(
        self, placement: Placement, given: bytes, *, name: str, workers: int, open_timeout_s: float, timeout_s: float
    ) -> None:
        this = _state.runtime()
        if this.connection is None or this.connection.simulated is not None:
            raise core.PathwaysError("an input pipeline runs on the hosts of a cluster, and this backend has no hosts")
        self.placement = placement
        self._session = this.connection.session
        self._name = name
        self._timeout_s = timeout_s + _ANSWER_SLACK_S
        self._host_of = programs.hosts_of(self._session)
        self._names = [host["name"] for host in self._session.hosts()]
        self.hosts = sorted({self._host_of[device] for device in placement.devices()})
        """Their numbers."""
        self._id = native.mint_pipeline(self._session)
        with native.translated():
            questions = [
                native.open_pipeline(
                    self._session,
                    self._id,
                    host,
                    given,
                    workers=workers,
                    open_timeout_s=open_timeout_s,
                    batch_timeout_s=timeout_s,
                    name=name,
                )
                for host in self.hosts
            ]
        self._close = weakref.finalize(self, _close, self._session, self._id, self.hosts)
        self._opening = (questions, open_timeout_s + _ANSWER_SLACK_S)

    def opened(self) -> list[bytes]:
        """Waits for the processes; what each says of itself. To be called once."""
        questions, timeout_s = self._opening
        return [
            wait_for(question, timeout_s, f"input pipeline {self._name} to start on host '{self._names[host]}'")
            for host, question in zip(self.hosts, questions, strict=True)
        ]

    @property
    def usable(self) -> bool:
        """False after ``close``, when the cluster it was made for is gone, and when the slice moved to other hosts."""
        connection = _state.runtime().connection
        if not self._close.alive or connection is None or connection.session is not self._session:
            return False
        return self.hosts == sorted({self._host_of[device] for device in self.placement.devices()})

    def declare(self, types: Sequence[tuple[torch.dtype, Sequence[int]]]) -> tuple[list[torch.Tensor], list[Part]]:
        """Tensors on the devices that have no bytes yet, and the parts that will fill them. Nothing is waited for."""
        import torch

        layout = self.placement.layout
        name = _xla.device_name(layout.device.index or 0)
        made: list[torch.Tensor] = []
        parts: list[Part] = []
        for number, (dtype, shape) in enumerate(types):
            with native.translated():
                native.start_declaring()
                try:
                    with _feeding.lying(layout.tiling(shape)), _transfer.keep_untouched()():
                        like = torch.empty(tuple(shape), dtype=dtype)
                        made += _xla.binding()._xla_tensors_from_aten([like], [name], None)
                finally:
                    declared = native.stop_declaring()
            assert len(declared) == 1, "torch_xla uploads on the calling thread"
            ((_, key, tiling, devices, _),) = declared
            boxes = _mesh.boxes(shape, tiling or _mesh.copies(len(shape), len(devices)))
            for shard, (device, box) in enumerate(zip(devices, boxes, strict=True)):
                if box.elements:
                    parts.append(Part(self._host_of[device], key + shard, number, box.start, box.size))
        return made, parts

    def ask(self, host: int, worker: int, keys: Sequence[int], what: str) -> native.Question:
        """Asks a host's process, which answers with the bytes for ``keys``. Nothing is waited for."""
        with native.translated():
            return native.feed(self._session, self._id, host, worker, list(keys), what)

    def wait(self, question: native.Question, host: int) -> bytes:
        """The text of an answer, when it has come."""
        return wait_for(
            question, self._timeout_s, f"input pipeline {self._name} on host '{self._names[host]}' to answer"
        )

    def close(self) -> None:
        """Ends the processes."""
        self._close()


def wait_for(question: native.Question, timeout_s: float, what: str) -> bytes:
    """Waits for an answer.

    Raises:
        DeadlineExceeded: it did not come in time, or the process did not make it in time.
        HostLost: its host is gone.
        InputPipelineFailed: the code in the pipeline raised, or its process ended.
    """
    try:
        return question.wait(timeout_s, what)
    except native.NativeError as error:
        if error.code in ("DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED", "CANCELLED", "UNIMPLEMENTED"):
            raise native.translate(error) from None
        raise core.InputPipelineFailed(str(error)) from None


def _close(session: native.Session, pipeline: int, hosts: Sequence[int]) -> None:
    for host in hosts:
        native.close_pipeline(session, pipeline, host)
