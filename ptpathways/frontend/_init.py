"""Joining and leaving a cluster, and naming its devices."""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptpathways import core, native
from ptpathways.frontend import _reinit, _show, kernels
from ptpathways.frontend.base import _hooks, _locator, _session, _state
from ptpathways.frontend.diagnostics import _cpu_operands, _long_waits, _operands, _recompiles
from ptpathways.frontend.kernels.algebra import _operations
from ptpathways.frontend.kernels.calls import _fallback
from ptpathways.frontend.loops import (
    _compile,
    _inference,
    _loaders,
    _loading,
    _optimizer_state,
    _read_warnings,
    _scan,
    _spmd,
    _wrapped,
)
from ptpathways.frontend.slices import _first_forward, _rng, _slice
from ptpathways.frontend.xla import _autograd, _backend, _hugging_face, _safetensors

if TYPE_CHECKING:
    import torch

    from ptpathways.launch.simulated import Trace

_LOOK_S = 0.01
"""How often a process that leaves looks whether all is done."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the cluster as it was when ``cluster`` or ``init`` was called."""

    name: str
    """Name of the host, as ``hosts=`` of ``Cluster.slice`` takes it."""
    platform: str
    """Platform of its devices: ``cpu``, ``cuda`` or ``tpu``."""
    island: str
    """Name of its island."""
    alive: bool
    """Whether it has not been lost."""
    devices: tuple[int, ...]
    """Cluster-wide numbers of its devices."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Describes the cluster of this process as it was when ``cluster`` or ``init`` was called.

    It does not change later, e.g. if a host is lost: call ``cluster`` again. ``slice`` asks the running cluster.
    """

    name: str
    """Name of the cluster; ``"none"`` with ``backend="xla-cpu"``."""
    backend: str
    """``"pathways"`` or ``"xla-cpu"``, as in ``Options``."""
    device_count: int
    """Number of devices of all hosts."""
    hosts: tuple[Host, ...]
    """The hosts, each with ``name``, ``platform``, ``island``, ``alive`` and ``devices`` (cluster-wide device
    numbers)."""

    def __repr__(self) -> str:
        return _show.text(self)

    def _repr_html_(self) -> str:
        return _show.html(self)

    def slice(
        self,
        shape: Sequence[int] | int,
        axis_names: Sequence[str] | None = None,
        *,
        island: str = "",
        platform: str = "",
        min_memory: str | int = 0,
        hosts: int | Sequence[str] = 0,
        name: str = "",
        timeout_s: float = 10.0,
    ) -> _slice.VirtualSlice:
        """Requests devices of one island from the resource manager as a virtual slice (Pathways, section 4.1).

        The resource manager chooses the least loaded devices that fit. Slices may share devices.

        Args:
            shape: number of devices along each of one to three axes; a number for one axis.
            axis_names: names of the axes, for partition specs; default: ``"x"``, ``"y"``, ``"z"``.
            island: name of the island; default: any.
            platform: platform of the devices, such as ``"cpu"``; default: any.
            min_memory: least memory of each device, in bytes or as ``"1GiB"``; 0: any.
            hosts: number of hosts to spread the devices over evenly; 0: as few as possible. Or names of hosts: only
                devices of those, on CPU also of several islands.
            name: name of the slice in programs and errors; default: ``slice0``, ``slice1``, ...
            timeout_s: seconds to wait for the resource manager's answer.

        Raises:
            SliceUnavailable: no island has such devices, or no host has that name; the message has what there is.
            InvalidSharding: ``shape`` and ``axis_names`` are no mesh of one to three distinctly named axes.
            DeadlineExceeded: no answer within ``timeout_s`` seconds.
            TypeError, ValueError, InvalidOption: another argument cannot be used.
            NotInitialized: after ``shutdown``, or with ``backend="xla-cpu"``.
        """
        return _slice.request(
            shape,
            axis_names,
            island=island,
            platform=platform,
            min_memory=min_memory,
            hosts=hosts,
            name=name,
            timeout_s=timeout_s,
        )


def init(
    address: str | None = None,
    *,
    token: str | None = None,
    launcher: str | None = None,
    bind: str | None = None,
    remote_hosts: int | None = None,
    hosts: int | None = None,
    devices_per_host: int | None = None,
    islands: int | None = None,
    platform: str | None = None,
    plugin: str | None = None,
    memory_per_device: str | None = None,
    cache_dir: str | None = None,
    startup_timeout_s: float | None = None,
    log_level: str | None = None,
    policy: str | None = None,
    weight: float | None = None,
    priority: int | None = None,
    recompiles: str | None = None,
    recompile_limit: int | None = None,
    waits: str | None = None,
    lease_s: float | None = None,
    wait_notice_s: float | None = None,
    compile_notice_s: float | None = None,
    backend: str | None = None,
    simulated: core.Simulated | None = None,
) -> Cluster:
    """Connects this process to a cluster and makes its devices PyTorch's XLA devices.

    Without ``address``, it embeds a controller in this process and starts ``hosts`` worker processes on this machine,
    or with ``launcher="ray"`` on the nodes of a Ray cluster; with ``bind``, it also waits for ``remote_hosts`` workers
    of other machines. With ``simulated``, the devices are simulated inside this process: everything is scheduled and
    dispatched as usual, computations only take time, and every value is zero. ``trace`` returns what ran when.

    Call it before the first tensor goes to an XLA device; torch and torch_xla may be imported earlier. If it is called
    again while its cluster runs, it returns that cluster, provided that the given options are the same (``log_level``
    and ``startup_timeout_s`` may differ), so a notebook's cell can run again. After ``shutdown``, a process can join
    another cluster.

    Args:
        address: endpoint of a standalone controller such as ``tcp://host:7450``; this and all further arguments are the
            attributes of ``Options`` with the same names. None: the environment variable
            (``ptpathways.core.ENVIRONMENT`` lists them), else the default of ``Options``.

    Returns:
        The cluster as it is now, as from ``cluster``.

    Raises:
        InvalidOption: an argument or environment variable cannot be used.
        NotInitialized: the process was forked from one that is part of a cluster.
        AlreadyInitialized: the process is part of another cluster, or used another backend before.
        RuntimeAlreadyStarted: PyTorch/XLA has already started its own runtime.
        ConnectionFailed: the controller cannot be reached, or refuses this process.
        VersionMismatch: the controller or the installed torch_xla is of another version.
        PluginNotFound: a worker's PJRT plugin is not installed.
        HostLost: a worker ended while it started, or the running cluster has lost a host.
        DeadlineExceeded: a host did not join within ``startup_timeout_s`` seconds.
    """
    given = _reinit.given_options(locals())
    _state.refuse_in_fork()
    options = core.Options.from_environment(**given)
    with _state.lock:
        if _state.is_running():
            _reinit.check_same(_state.runtime(), options, given)
            return cluster()
        former = _state.former()
        if former is None:
            _backend.check_not_started()
        else:
            _reinit.check_can_follow(former, options)
        connection = _session.open_connection(options) if options.backend == "pathways" else None
        try:
            if former is not None and connection is not None:
                _reinit.attach(connection)
            count = _backend.start(options) if former is None else former.torch_device_count
        except BaseException:
            if connection is not None:
                connection.close("the client failed to start")
            raise
        _state.begin(_state.Runtime(options, connection, count))
        if former is None:
            _state.note_forks(_backend.leave_exit_to_parent)
        _rng.register()
        if connection is not None:
            _slice.bind_whole(connection.session)
            _autograd.register(count - 1)
            _spmd.register()
            _wrapped.register()
            _scan.register()
            _loaders.register()
        _fallback.register()
        _operations.register()
        _first_forward.register()
        _optimizer_state.register()
        kernels.register()
        _read_warnings.register(options.waits)
        _compile.register()
        _inference.register()
        _loading.register()
        _safetensors.register()
        _hugging_face.register()
        _cpu_operands.register()
        if connection is not None:
            _locator.register()
            _long_waits.register(connection.session, options.wait_notice_s, options.compile_notice_s)
            native.when_raised(connection.told)
            native.watch_interrupts(threading.main_thread().ident or 0)
            _recompiles.register(options.recompiles, options.recompile_limit)
        # Runs before torch_xla's own exit handler, which was registered earlier; so it does that one's work, too.
        atexit.register(shutdown)
        return cluster()


def cluster() -> Cluster:
    """Returns the cluster of this process: its hosts and their devices, now.

    Raises:
        NotInitialized: before ``init``.
    """
    this = _state.runtime()
    if this.connection is None:
        numbers = tuple(range(this.device_count))
        host = Host("this process", "cpu", "this process", True, numbers)
        return Cluster("none", this.options.backend, this.device_count, (host,))
    found = tuple(Host(**fields) for fields in this.connection.hosts())
    return Cluster(this.connection.cluster, this.options.backend, this.device_count, found)


def device(index: int | None = None) -> torch.device:
    """Returns the torch device of a slice: that of all devices, or that of the ``index``-th device alone.

    A tensor on a slice lies on all its devices, in shards or as replicas (``shard`` chooses), and computations on it
    are divided over them. ``VirtualSlice.device`` is the torch device of any other slice; a process may use all kinds
    side by side. ``with pw.device(): model = Net()`` makes the parameters on the devices; for the same
    ``torch.manual_seed`` their values do not depend on the number of hosts and devices. ``step`` marks the step
    boundary.

    Args:
        index: number of a device, as ``Host.devices`` has them, from 0 on; None: the slice of all devices (with
            ``backend="xla-cpu"``: device 0).

    Raises:
        NotInitialized: before ``init``.
        NotOneIsland: without ``index``, if the hosts lie in several islands and are not all CPU hosts.
        TypeError: ``index`` is not an int.
        IndexError: there is no device of that number.
        HostLost: the device's host is lost.
        SliceUnavailable: the process uses more slices as torch devices than ``logical_devices``.
    """
    import torch

    this = _state.runtime()
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise TypeError(f"pw.device() takes the number of a device, got {index!r}; of a slice take slice.device")
    # Devices of lost hosts keep their numbers, and `single` names the host.
    hosts = [] if this.connection is None else this.connection.hosts()
    count = sum(len(host["devices"]) for host in hosts) if hosts else this.device_count
    if index is not None and not 0 <= index < count:
        raise IndexError(f"device index must be from 0 to {count - 1}, got {index}")
    if this.connection is None:
        _rng.follow_torch()
        return torch.device("xla", index or 0)
    if index is None:
        _slice.check_one_island(hosts)
    found = (_slice.whole() if index is None else _slice.single(index)).device
    _rng.follow_torch()
    return found


def devices() -> list[torch.device]:
    """Returns the torch device of every single device of the cluster, in the order of their numbers; not those of hosts
    that are lost.

    Raises:
        NotInitialized, SliceUnavailable: as ``device``.
    """
    living = sorted(number for host in cluster().hosts if host.alive for number in host.devices)
    return [device(number) for number in living]


def trace(*, clear: bool = False) -> Trace:
    """Returns what every simulated device ran since ``init``, or since the last call with ``clear``.

        pw.trace().save("run.svg")      # or run.json, for Chrome's about:tracing

    Args:
        clear: whether to forget what is returned, so that the next trace begins here.

    Raises:
        NotInitialized: before ``init``.
        InvalidOption: the devices of this cluster are not simulated.
    """
    connection = _state.runtime().connection
    if connection is None or connection.simulated is None:
        raise core.InvalidOption("trace needs simulated devices; call pw.init(simulated=pw.Simulated(...))")
    return connection.simulated.trace(clear=clear)


def shutdown() -> None:
    """Leaves the cluster, after everything that was submitted has run; an embedded cluster ends.

    Tensors on its devices cannot be used afterwards. Runs by itself when the process exits. Idempotent, and without
    effect in a process that was forked from a member.
    """
    if _state.is_forked():  # it is the parent's
        return
    if _state.is_running():
        _hooks.before_shutdown()
    with _state.lock:
        this = _state.end()
        if this is None:
            return
        atexit.unregister(shutdown)
        try:
            with _long_waits.waiting("what was submitted before the process leaves the cluster"):
                while this.connection is not None and this.connection.session.pending():
                    time.sleep(_LOOK_S)  # which Ctrl-C ends, as it does not PyTorch/XLA's waits
                _backend.finish()
        except RuntimeError:
            pass  # what could not be done, because a host is lost perhaps, is told by the values
        finally:
            if this.connection is not None:
                native.when_raised(None)
                try:
                    this.connection.raise_failure()
                except RuntimeError as failure:
                    print(
                        f"ptpathways: what was submitted last has failed, and was not read: {failure}", file=sys.stderr
                    )
                _locator.unregister()
                _long_waits.unregister()
                _recompiles.unregister()
                _operands.left()
                this.connection.close("the client shut down")
