"""Virtual slices: devices that the resource manager lent to this process, as a grid with named axes (paper 4.1)."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ptpathways import core
from ptpathways.frontend import _state
from ptpathways.sharding import Mesh

if TYPE_CHECKING:
    from ptpathways.native import Session

_DEFAULT_AXIS_NAMES = ("x", "y", "z")
_numbers = itertools.count()


class VirtualSlice:
    """Devices of one island, to compile functions for. Made by ``Cluster.slice``; several may share devices.

    ``release`` gives them back, as does leaving its ``with`` block, or dropping the slice and all functions on it.
    """

    def __init__(self, session: Session, mesh: Mesh, name: str, number: int, devices: Sequence[int]) -> None:
        self.session = session
        self._mesh = mesh
        self._name = name
        self._devices = tuple(devices)
        self.layouts: dict[Any, Any] = {}  # how tensors may lie here; filled by ``_future.layout_of``
        self._give_back = weakref.finalize(self, _give_back, session, number)
        self._give_back.atexit = False

    @property
    def name(self) -> str:
        """What programs call it."""
        return self._name

    @property
    def shape(self) -> tuple[int, ...]:
        """Devices along each axis."""
        return self._mesh.shape

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Names of the axes, for partition specs."""
        return self._mesh.axis_names

    @property
    def mesh(self) -> Mesh:
        """Shape and axes as one value."""
        return self._mesh

    @property
    def devices(self) -> tuple[int, ...]:
        """Cluster-wide device numbers, row-major over the grid."""
        return self._devices

    @property
    def released(self) -> bool:
        """Whether the devices were given back."""
        return not self._give_back.alive

    def release(self) -> None:
        """Gives the devices back. Values on them stay until their futures are dropped. Idempotent."""
        self._give_back()

    def check(self, session: Session) -> None:
        """Raises WrongCluster or SliceUnavailable unless functions of ``session`` can run here."""
        if session is not self.session:
            raise core.WrongCluster(f"{self} belongs to another cluster than this process is part of now")
        if self.released:
            raise core.SliceUnavailable(f"{self} was released; ask for another with cluster.slice()")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"slice {self._name} [{self._mesh}] on devices {list(self._devices)}"


def request(
    shape: Sequence[int],
    axis_names: Sequence[str] | None = None,
    *,
    island: str = "",
    platform: str = "",
    min_memory: str | int = 0,
    hosts: int = 0,
    name: str = "",
    timeout_s: float = 10.0,
) -> VirtualSlice:
    """See ``Cluster.slice``."""
    shape = tuple(shape)
    mesh = Mesh(shape, _DEFAULT_AXIS_NAMES[: len(shape)] if axis_names is None else axis_names)
    memory = core.parse_bytes(min_memory) if isinstance(min_memory, str) and min_memory else int(min_memory or 0)
    session = current_session()
    from ptpathways import native

    with native.translated("slicing"):
        granted = session.request_slice(
            math.prod(shape),
            island=island,
            platform=platform,
            min_memory_bytes=memory,
            hosts=hosts,
            timeout_s=timeout_s,
        )
    return VirtualSlice(session, mesh, name or f"slice{next(_numbers)}", granted["slice"], granted["devices"])


def current_session() -> Session:
    """This process's session.

    Raises:
        NotInitialized: before ``init``, after ``shutdown``, or with the backend that has no cluster.
    """
    connection = _state.runtime().connection
    if connection is None:
        raise core.NotInitialized("slices, functions and programs need a cluster, and backend 'xla-cpu' has none")
    return connection.session


def _give_back(session: Session, number: int) -> None:
    from ptpathways import native

    try:
        session.release_slice(number)
    except native.NativeError:
        return  # the session is over, and its slices with it
