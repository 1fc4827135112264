"""Input pipelines on the workers' hosts: their processes, and tensors on the devices whose bytes those make."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptpathways import core, native, programs
from ptpathways.frontend import _capture_buffers, _mesh, _state, _transfer, _xla

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
    """Where batches go: divided over all devices as ``layout`` says, or to the one device with torch's ``index``."""

    layout: _mesh.BatchLayout | None
    index: int = 0

    @classmethod
    def of(cls, layout: _mesh.BatchLayout | None, device: torch.device | int | None) -> Placement:
        """Of what the user said; a single device when there is but one.

        Raises:
            NotInitialized, NotOneIsland, RuntimeAlreadyStarted, InvalidSharding: as ``batch_layout``.
            ValueError: not a device of the cluster.
        """
        if device is None:
            chosen = layout if layout is not None else _mesh.batch_layout()
            return cls(chosen if chosen.mesh is not None else None)
        import torch

        target = torch.device("xla", device) if isinstance(device, int) else torch.device(device)
        this = _state.runtime()
        if target.type != "xla" or (target.index or 0) >= this.torch_device_count:
            raise ValueError(f"expected one of the {this.torch_device_count} devices of pw.device(), got {target}")
        if this.mode is _state.Mode.TOGETHER:
            return cls(_mesh.batch_layout())
        return cls(None, target.index or 0)


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
        devices = _capture_buffers.cluster_devices()
        used = devices if placement.layout is not None else (devices[placement.index],)
        self._host_of = programs.hosts_of(self._session)
        self._names = [host["name"] for host in self._session.hosts()]
        self.hosts = sorted({self._host_of[device] for device in used})
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
        """False after ``close``, and when the cluster it was made for is gone."""
        connection = _state.runtime().connection
        return self._close.alive and connection is not None and connection.session is self._session

    def declare(self, types: Sequence[tuple[torch.dtype, Sequence[int]]]) -> tuple[list[torch.Tensor], list[Part]]:
        """Tensors on the devices that have no bytes yet, and the parts that will fill them. Nothing is waited for."""
        import torch

        layout = self.placement.layout
        made: list[torch.Tensor] = []
        parts: list[Part] = []
        for number, (dtype, shape) in enumerate(types):
            with native.translated():
                native.start_declaring()
                try:
                    with _transfer.keep_untouched()():
                        like = torch.empty(tuple(shape), dtype=dtype)
                        if layout is None:
                            name = _xla.device_name(self.placement.index)
                            made += _xla.binding()._xla_tensors_from_aten([like], [name])
                        else:
                            sharding = _mesh.upload_sharding(like, layout)
                            made += _xla.binding()._xla_tensors_from_aten([like], [_xla.device_name(0)], [sharding])
                finally:
                    declared = native.stop_declaring()
            boxes = None if layout is None else _boxes(shape, layout)
            assert len(declared) == (1 if boxes is None else len(boxes)), "torch_xla uploads on the calling thread"
            for device, device_id, key in declared:
                start, size = ((0,) * len(shape), tuple(shape)) if boxes is None else boxes[device_id]
                if math.prod(size):
                    parts.append(Part(self._host_of[device], key, number, start, size))
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


def _boxes(shape: Sequence[int], layout: _mesh.BatchLayout) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each device of the mesh, by torch_xla's number, where its part of a tensor begins and how large it is."""
    mesh = layout.mesh.get_logical_mesh()
    axes = list(layout.sizes)
    spec = layout.spec(shape)
    boxes = {}
    for coordinates in _positions(mesh.shape):
        start, size = [], []
        for extent, names in zip(shape, spec, strict=True):
            part, parts = 0, 1
            for name in names or ():
                part = part * layout.sizes[name] + coordinates[axes.index(name)]
                parts *= layout.sizes[name]
            start.append(extent // parts * part)
            size.append(extent // parts)
        boxes[int(mesh[coordinates])] = (tuple(start), tuple(size))
    return boxes


def _positions(shape: Sequence[int]) -> list[tuple[int, ...]]:
    positions: list[tuple[int, ...]] = [()]
    for size in shape:
        positions = [(*position, index) for position in positions for index in range(size)]
    return positions
