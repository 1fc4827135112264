"""Virtual slices: devices that the resource manager lent to this process, as a grid with named axes (paper 4.1).

A slice is a torch device: ``slice.device``. A tensor there lies on all devices of the slice, and what is computed there
is divided over them.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ptpathways import core
from ptpathways.frontend.base import _state
from ptpathways.frontend.base._devices import Left
from ptpathways.frontend.diagnostics import _operands
from ptpathways.frontend.slices import _first_forward
from ptpathways.sharding import DEVICES_MAX, Mesh

if TYPE_CHECKING:
    import torch

    from ptpathways.native import Session

_DEFAULT_AXIS_NAMES = ("x", "y", "z")
_numbers = itertools.count()


class VirtualSlice:
    """Devices of one island as a grid with named axes (Pathways, section 4.1), for tensors, loops and functions.

    Made by ``Cluster.slice``; several slices may share devices. ``release`` gives the devices back, and so does leaving
    its ``with`` block. A slice that was never used as a torch device is also released when it and all functions on it
    are dropped.
    """

    def __init__(
        self,
        session: Session,
        mesh: Mesh,
        name: str,
        number: int | None,
        devices: Sequence[int],
        request: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            request: what was asked of the resource manager: ``island``, ``platform``, ``min_memory_bytes``, ``hosts``.
        """
        self.session = session
        self._mesh = mesh
        self._name = name
        self._devices = tuple(devices)
        self.layouts: dict[Any, Any] = {}  # how tensors may lie here; filled by ``_future.layout_of``
        self.arranged: Mesh | None = None  # how a loop has arranged the devices last; set by ``_mesh.grid_of``
        self._number = number
        self._request = dict(request or {})
        self._index: int | None = None
        self._give_back = weakref.finalize(self, _give_back, session, number)
        self._give_back.atexit = False

    @property
    def name(self) -> str:
        """Name of the slice in programs and errors."""
        return self._name

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of devices along each axis."""
        return self._mesh.shape

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Names of the axes, for partition specs."""
        return self._mesh.axis_names

    @property
    def mesh(self) -> Mesh:
        """``shape`` and ``axis_names`` as a ``ptpathways.sharding.Mesh``."""
        return self._mesh

    @property
    def devices(self) -> tuple[int, ...]:
        """Cluster-wide device numbers, row-major over the grid. ``move`` changes them."""
        return self._devices

    @property
    def device(self) -> torch.device:
        """The slice as a torch device, for ``model.to``, ``torch.randn(..., device=...)``, ``with slice.device:``.

        Raises:
            SliceUnavailable: it was released, or the process uses more slices as torch devices than
                ``logical_devices``.
            WrongCluster: it belongs to a cluster that the process has left for another.
            NotInitialized: after ``shutdown``.
        """
        import torch

        _first_forward.expect()
        index = self.index
        _operands.asked_for(index)
        return torch.device("xla", index)

    @property
    def index(self) -> int:
        """Index of the XLA device that ``device`` is, as in ``xla:3``. Raises as ``device`` does."""
        self.check(current_session())
        if self._index is None:
            with _state.lock:
                self._index = _bind(self)
        return self._index

    @property
    def released(self) -> bool:
        """Whether the devices were given back."""
        return not self._give_back.alive

    def move(self, hosts: Sequence[str] | str | None = None, *, timeout_s: float = 10.0) -> int:
        """Moves the slice, and every value on it, to other devices; returns when that is submitted.

        Tensors, models and optimizers stay the same objects on the same torch device, so a loop continues with its next
        computation on the new devices. Computations are compiled again for them; captured steps, functions and programs
        are traced again. Futures move when they are next used.

        Args:
            hosts: name or names of the hosts to move to, in any island; None: the least loaded devices in the island
                and on as many hosts as the slice was requested with. Its ``platform`` and ``min_memory`` hold in both
                cases.
            timeout_s: seconds to wait for the resource manager's answer.

        Returns:
            The number of bytes moved, all shards together.

        Raises:
            SliceUnavailable: there are no such devices; the message has what there is. Nothing has changed.
            DeadlineExceeded: no answer within ``timeout_s`` seconds. Nothing has changed.
            TypeError, ValueError: ``hosts`` are not names, or ``timeout_s`` is not a number of seconds.
            HostLost: a host was lost on the way, with the values that could not be moved. The slice has moved.
            InvalidOption: the slice is that of all devices, or of a single device by its number, which cannot move.
        """
        from ptpathways import native
        from ptpathways.frontend.slices import _migration

        if self._number is None:
            raise core.InvalidOption(f"{self} is not lent by the resource manager and stays where it is")
        timeout_s = core.check_seconds(timeout_s)
        names = None if hosts is None else _host_names(hosts)
        self.check(current_session())
        wanted = dict(self._request)
        if names is not None:  # where it goes is then the caller's choice, but not to what
            wanted.update(island="", hosts=0, among=_migration.host_numbers(self.session, names))
        with native.translated("slicing"):
            granted = self.session.request_slice(len(self._devices), **wanted, timeout_s=timeout_s)
        with _state.lock:
            if self._index is None:
                self._adopt(granted)
                return 0
            try:
                _migration.submit_traced(self._index)
            except BaseException:
                _give_back(self.session, granted["slice"])  # nothing has changed
                raise
            try:
                return _migration.move_values(self, self._index, granted["devices"])
            finally:
                self._adopt(granted)  # also when values are left behind: what is new is made there

    def _adopt(self, granted: Any) -> None:
        """What this slice had is given back, and it stands for the grant from now on."""
        global _moves
        _moves += 1
        self._devices = tuple(granted["devices"])
        self._give_back()
        self._number = granted["slice"]
        self._give_back = weakref.finalize(self, _give_back, self.session, self._number)
        self._give_back.atexit = False

    def release(self) -> None:
        """Gives the devices back. Futures keep their values; tensors on ``device`` cannot be used afterwards.

        Idempotent.
        """
        if self._index is not None and not self.released and _state.is_running():
            _unbind(self, self._index)
        self._give_back()

    def check(self, session: Session) -> None:
        """Raises unless functions of ``session`` can run on this slice.

        Raises:
            WrongCluster: it belongs to another cluster.
            SliceUnavailable: it was released.
        """
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
    shape: Sequence[int] | int,
    axis_names: Sequence[str] | None = None,
    *,
    island: str = "",
    platform: str = "",
    min_memory: str | int = 0,
    hosts: int | Sequence[str] = 0,
    name: str = "",
    timeout_s: float = 10.0,
) -> VirtualSlice:
    """See ``Cluster.slice``."""
    if isinstance(shape, str | bytes) or not isinstance(shape, Iterable) or getattr(shape, "shape", None) == ():
        shape = (core.whole_number(shape, "the shape of a slice, one number or a list of them,"),)
    timeout_s = core.check_seconds(timeout_s)
    shape = tuple(shape)
    mesh = Mesh(shape, _DEFAULT_AXIS_NAMES[: len(shape)] if axis_names is None else axis_names)
    for what, text in (("island", island), ("platform", platform), ("name", name)):
        core.check_text(text, what)
    memory = _memory(min_memory)
    names: tuple[str, ...] = ()
    count = 0
    try:
        count = min(core.whole_number(hosts, "hosts", least=0), DEVICES_MAX)
    except TypeError:
        names = _host_names(hosts, "hosts must be how many hosts, or their names")
    session = current_session()
    from ptpathways import native
    from ptpathways.frontend.slices import _migration

    among = _migration.host_numbers(session, names) if names else []
    wanted: dict[str, Any] = {"island": island, "platform": platform, "min_memory_bytes": memory, "hosts": count}
    with native.translated("slicing"):
        granted = session.request_slice(math.prod(shape), **wanted, among=among, timeout_s=timeout_s)
    name = name or f"slice{next(_numbers)}"
    return VirtualSlice(session, mesh, name, granted["slice"], granted["devices"], wanted)


def _host_names(hosts: Any, required: str = "hosts must be names of hosts") -> tuple[str, ...]:
    """Names of hosts. Raises TypeError, and ValueError for none."""
    try:
        names = (hosts,) if isinstance(hosts, str) else core.texts(hosts, "hosts")
    except TypeError:
        raise TypeError(f'{required}, such as ["host0", "host1"], got {hosts!r}') from None
    if not names:
        raise ValueError(f"{required}, such as ['host0', 'host1'], got {hosts!r}")
    return names


def _memory(amount: Any) -> int:
    """Bytes. Raises TypeError, ValueError or InvalidOption."""
    if isinstance(amount, str):
        return core.parse_bytes(amount) if amount else 0
    found = core.whole_number(amount, 'min_memory, bytes or a text such as "1GiB",', least=0)
    if found >= 2**63:
        raise ValueError(f"min_memory must be less than 2**63 bytes, got {amount!r}")
    return found


def current_session() -> Session:
    """This process's session.

    Raises:
        NotInitialized: before ``init``, after ``shutdown``, or with the backend that has no cluster.
    """
    connection = _state.runtime().connection
    if connection is None:
        raise core.NotInitialized("slices, functions and programs need a cluster, and backend 'xla-cpu' has none")
    return connection.session


def whole() -> VirtualSlice:
    """The slice of everything: all devices of all live hosts, along one axis ``data``. Never released.

    Raises:
        NotInitialized: before ``init``.
    """
    return _state.runtime().slices.slice_at(0)


def check_one_island(hosts: Sequence[Mapping[str, Any]]) -> None:
    """Raises NotOneIsland unless all live ``hosts`` are of one island, or all CPU, whose collectives reach all."""
    alive = [host for host in hosts if host["alive"]]
    if len({host["island"] for host in alive}) > 1 and {host["platform"] for host in alive} != {"cpu"}:
        where = ", ".join(f"{host['name']} ({host['platform']}) in island {host['island']}" for host in alive)
        raise core.NotOneIsland(
            f"pw.prepare() and pw.device() make one computation of all devices, whose collectives must reach all of "
            f"them: one island, or CPU hosts only. Got {where}; start the hosts with the same --island, or use a slice "
            f"of each: cluster.slice(..., island=NAME)"
        )


def of_device(device: torch.device | str | int) -> VirtualSlice:
    """The slice that a torch device stands for.

    Raises:
        NotInitialized: before ``init``.
        ValueError: it is no device of a cluster.
        SliceUnavailable: it stands for none now.
    """
    if not isinstance(device, int):
        import torch

        given = torch.device(device)
        if given.type != "xla":
            raise ValueError(f"expected a device of the cluster, such as pw.device() or slice.device, got {given}")
        from ptpathways.frontend.xla import _xla

        device = _xla.index_of(given)
    return _state.runtime().slices.slice_at(device)


def single(index: int) -> VirtualSlice:
    """The slice of the ``index``-th device of the cluster alone. Never released."""
    everything = whole()
    if len(everything.devices) == 1:
        return everything
    number = everything.devices[index]
    with _state.lock:
        known = _singles.setdefault(everything, {})
        if index not in known:
            known[index] = VirtualSlice(everything.session, Mesh((1,), ("x",)), f"device{number}", None, (number,))
        return known[index]


_moves = 0


def moves() -> int:
    """How many slices were moved in this process: as long as it stays, every slice has the devices that it had."""
    return _moves


_singles: weakref.WeakKeyDictionary[VirtualSlice, dict[int, VirtualSlice]] = weakref.WeakKeyDictionary()


def bind_whole(session: Session) -> VirtualSlice:
    """Makes torch's first device stand for all devices of the live hosts."""
    numbers = [
        host["first_device"] + place
        for host in session.hosts()
        if host["alive"]
        for place in range(len(host["devices"]))
    ]
    made = VirtualSlice(session, Mesh((len(numbers),), ("data",)), "all", None, numbers)
    made._index = _bind(made, 0)
    return made


def _bind(slice: VirtualSlice, index: int | None = None) -> int:
    from ptpathways import native
    from ptpathways.frontend.slices import _rng

    index = _state.runtime().slices.bind(slice, index, _left_on)
    with native.translated():
        native.bind_device(index, list(slice.devices))
    _rng.begin(index)
    return index


def _left_on(index: int) -> Left:
    """What there still is of the slice that a torch device stood for before."""
    from ptpathways import native

    found = Left.NOTHING
    for cell in native.live_cells(index):
        value = cell.value
        if value is not None:  # else it was given up, and says so itself
            if not value.is_uploaded_scalar:
                return Left.TENSORS
            found = Left.NUMBERS
    return found


def _unbind(slice: VirtualSlice, index: int) -> None:
    from ptpathways import native
    from ptpathways.frontend.xla import _xla

    with _state.lock:
        table = _state.runtime().slices
        if index in table.bound() and table.slice_at(index) is slice:
            _xla.binding()._xla_sync_live_tensors(_xla.device_name(index), [], True)
            table.unbind(index)
            native.unbind_device(index)
            _operands.released(index)


def _give_back(session: Session, number: int | None) -> None:
    from ptpathways import native

    if number is None:  # nobody lent it
        return
    try:
        session.release_slice(number)
    except native.NativeError:
        return  # the session is over, and its slices with it
