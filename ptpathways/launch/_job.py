"""A job whose processes, one or several a machine, were started by another launcher: what each of them does.

Rank 0 has the controller and runs the program, with a worker beside it; every other rank has a worker. They meet
through the launcher's store (``_rendezvous``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from ptpathways import core, native, platforms
from ptpathways.launch import _addresses, _cache, _embedded, _rendezvous, _runtime_dir
from ptpathways.launch._processes import Command, Processes, show, tail_of
from ptpathways.launch._worker_command import WorkerOptions, worker_command, worker_environment

_END_GRACE_S = 5.0
_RESULT_S = 10.0
_PROBE_S = 3.0
_TOLD_TO_STOP, _FAILED, _REFUSED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Place:
    """Which of the job's processes this is, as its launcher says."""

    rank: int
    world_size: int
    local_rank: int
    towards: str
    """A host name of rank 0's machine or one near it: what routes are asked for."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What the job was asked for; the same on every rank, except where machines differ."""

    devices: int = 1
    islands: int = 0
    """That the ranks are divided into; 0: one on CPU, where workers serve each other's collectives, else one a rank."""
    platform: str = "cpu"
    plugin: str = ""
    memory_per_device: str = ""
    cache_dir: str = ""
    policy: str = "fifo"
    log_level: str = "warning"
    timeout_s: float = 120.0
    port: int = 0
    """Of the controller; 0: a free one."""
    advertise: str = ""
    """The host by which the other machines reach this one; empty: found out."""
    token: str = ""

    def __post_init__(self) -> None:
        core.Options(
            devices_per_host=self.devices,
            platform=self.platform,
            memory_per_device=self.memory_per_device,
            policy=self.policy,
            log_level=self.log_level,
            startup_timeout_s=self.timeout_s,
            token=self.token,
        )
        if not 0 <= self.port < 65536:
            raise core.InvalidOption(f"option port must be from 0 to 65535, got {self.port}")
        if self.islands < 0:
            raise core.InvalidOption(f"option islands must be at least 1, got {self.islands}")

    def islands_of(self, world_size: int) -> int:
        """``islands``, or its default for so many ranks."""
        return self.islands or (1 if self.platform == "cpu" else world_size)


def describe(place: Place, options: JobOptions) -> _rendezvous.Rank:
    """This process, as it tells the others.

    Raises:
        PluginNotFound, InvalidOption: as ``platforms.find_plugin``.
    """
    plugin = platforms.find_plugin(options.platform, options.plugin)
    return _rendezvous.Rank(
        rank=place.rank,
        world_size=place.world_size,
        host=socket.gethostname(),
        machine=native.machine_token(),
        version=core.__version__,
        platform=options.platform,
        plugin=_build_of(plugin.path),
        devices=options.devices,
        has_token=bool(options.token),
    )


# --- rank 0


class JobCluster:
    """The controller in this process and the worker beside it. Made by ``lead``."""

    def __init__(self, controller: native.Controller, processes: Processes, folder: Path) -> None:
        self._controller = controller
        self._processes = processes
        self._folder = folder
        self._owner = os.getpid()
        self._closed = False

    def close(self, reason: str = "the program ended") -> None:
        """Ends every worker of the job. Idempotent; nothing in a forked child."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        _embedded.announce([])
        self._controller.close(reason)
        self._processes.stop(_END_GRACE_S)
        native.clean_up_shared_memory(self._controller.cluster)
        _runtime_dir.remove(self._folder)


def lead(meeting: _rendezvous.Meeting, place: Place, options: JobOptions) -> JobCluster:
    """Rank 0 makes the cluster, and sets the environment by which ``ptpathways.init`` finds it.

    Raises:
        DeadlineExceeded: ranks are missing; says which.
        InvalidOption: ranks do not fit together; says which.
        ConnectionFailed: the controller's port is in use, or a worker ended before it joined.
    """
    native.load()
    native.clean_up_dead_shared_memory()
    own = describe(place, options)
    meeting.open(own)
    folder: Path | None = None
    controller: native.Controller | None = None
    processes: Processes | None = None
    try:
        ranks = meeting.gather(options.timeout_s)
        if problem := _rendezvous.disagreement(ranks, options.islands_of(place.world_size)):
            raise core.InvalidOption(problem)
        folder = _runtime_dir.create()
        apart = any(rank.machine != own.machine for rank in ranks)
        token = options.token or core.make_token()
        with native.translated("connecting"):
            controller = _controller(place, options, folder, token, apart=apart)
            answer = _answer(controller, place, options, own, folder, apart=apart)
            travels = "" if all(rank.has_token for rank in ranks) else token
            meeting.answer(replace(answer, token=travels))
            worker = _worker(place, options, answer, own.machine, token)
            log = folder / f"{worker.name}.log"
            command = Command(worker.name, worker_command(worker), worker_environment(worker), log)
            processes = Processes([command], controller.host_exited, show)
            processes.start(options.timeout_s)
            _wait_for_all(controller, meeting, place, options, log)
    except BaseException as error:
        meeting.answer(_rendezvous.Answer(error=str(error) or type(error).__name__))
        if controller is not None:
            controller.close(f"rank 0 could not start the cluster: {error}")
        if processes is not None:
            processes.stop(0.2)
        if folder is not None:
            _runtime_dir.remove(folder)
        raise
    address = answer.addresses[0] if apart else answer.local_address
    os.environ["PTPATHWAYS_ADDRESS"] = address
    os.environ[core.TOKEN_VARIABLE] = token
    _embedded.announce([address])
    return JobCluster(controller, processes, folder)


def _controller(place: Place, options: JobOptions, folder: Path, token: str, *, apart: bool) -> native.Controller:
    binds = [f"ipc://{folder}/controller"]
    if apart:
        six = ":" in _addresses.local_address_towards(place.towards)
        binds.append(f"tcp://{'[::]' if six else '0.0.0.0'}:{options.port or '*'}")
    return native.Controller(
        {
            "bind": binds,
            "token": token,
            "embedded": True,
            "expected_hosts": [_name(rank) for rank in range(place.world_size)],
            "policy": options.policy,
            "log_level": options.log_level,
        }
    )


def _answer(
    controller: native.Controller,
    place: Place,
    options: JobOptions,
    own: _rendezvous.Rank,
    folder: Path,
    *,
    apart: bool,
) -> _rendezvous.Answer:
    addresses: list[str] = []
    if apart:
        bound = controller.endpoints[1]
        here = _addresses.local_address_towards(place.towards)
        likely = [] if options.advertise else [_addresses.with_host(bound, here)]
        addresses = list(dict.fromkeys([*likely, *_addresses.reachable(bound, options.advertise)]))
        # A launcher that speaks of loopback has all its ranks here; yet they may not share memory.
        addresses.sort(key=_addresses.stays_here)
    return _rendezvous.Answer(
        addresses=addresses,
        local_address=controller.endpoints[0],
        machine=own.machine,
        folder="" if apart else str(folder),
        islands=options.islands_of(place.world_size),
    )


def _wait_for_all(
    controller: native.Controller, meeting: _rendezvous.Meeting, place: Place, options: JobOptions, log: Path
) -> None:
    deadline_s = core.SystemClock().now_s() + options.timeout_s
    while True:
        left_s = deadline_s - core.SystemClock().now_s()
        try:
            controller.wait_for_hosts(place.world_size, max(0.0, min(left_s, 0.5)))
            return
        except native.NativeError as error:
            if getattr(error, "code", "") != "DEADLINE_EXCEEDED":
                raise core.ConnectionFailed(f"the cluster did not start: {error}") from None
            if failure := meeting.failure():
                raise core.ConnectionFailed(f"the cluster did not start: {failure}") from None
            if left_s <= 0:
                said = tail_of(log)
                raise core.DeadlineExceeded(
                    f"{error} (in all {options.timeout_s:g} s)"
                    + (f"; the end of rank 0's worker's log:\n{said}" if said else "")
                ) from None


# --- the other ranks


def follow(meeting: _rendezvous.Meeting, place: Place, options: JobOptions) -> int:
    """Serves this rank's devices until the program has ended; the process's exit code, the program's if it is known.

    Raises:
        ConnectionFailed: rank 0 cannot make a cluster, or cannot be reached.
        DeadlineExceeded: rank 0 says nothing.
        HostLost: the worker ended by itself, or rank 0 is gone.
    """
    native.load()
    own = describe(place, options)
    answer = meeting.join(own, options.timeout_s)
    try:
        token = answer.token or options.token
        worker = _worker(place, options, answer, own.machine, token)
        code = _serve(worker)
    except BaseException as error:
        meeting.fail(f"rank {place.rank} on {own.host}: {error}")
        raise
    if code == _TOLD_TO_STOP:
        ended = meeting.ended(_RESULT_S)
        if ended is None:
            raise core.HostLost("rank 0 ended the cluster and did not say how its program ended")
        return ended
    what = f"rank {place.rank}'s worker on {own.host} " + (
        "was refused by the controller" if code == _REFUSED else f"ended with exit code {code}"
    )
    meeting.fail(f"{what}; its output is rank {place.rank}'s")
    raise core.HostLost(f"{what}; what it printed is above")


def _serve(worker: WorkerOptions) -> int:
    """Runs the worker; its exit code, 128 plus the signal's number when one ended it. Ends with this process."""
    with subprocess.Popen(worker_command(worker), env=worker_environment(worker)) as process, _ends_with(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _ends_with(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A signal to end goes to the worker first, and then this process dies of it as if it had none."""
    got: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        got.append(number)
        process.terminate()

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if got:
            sys.stderr.flush()
            signal.signal(got[0], signal.SIG_DFL)
            os.kill(os.getpid(), got[0])


def _worker(place: Place, options: JobOptions, answer: _rendezvous.Answer, machine: str, token: str) -> WorkerOptions:
    beside = bool(machine) and answer.machine == machine
    controller = answer.local_address if beside else _reached(answer.addresses, token)
    bind, advertise = "", ""
    if not answer.folder:
        towards = answer.addresses[0] if beside else controller
        bind, advertise = _addresses.data_endpoint(towards, "", options.advertise)
        bind = bind or "tcp://127.0.0.1:*"
    island = _rendezvous.island_of(place.rank, place.world_size, answer.islands)
    members = [_rendezvous.island_of(rank, place.world_size, answer.islands) for rank in range(place.world_size)]
    # On CPU the workers serve each other's collectives; elsewhere the plugins of an island make one client.
    together = 0 if options.platform == "cpu" or members.count(island) == 1 else members.count(island)
    return WorkerOptions(
        controller=controller,
        name=_name(place.rank),
        plugin=platforms.find_plugin(options.platform, options.plugin),
        devices=options.devices,
        index=place.local_rank,
        island=island,
        island_hosts=together,
        island_timeout_s=options.timeout_s,
        memory_limit_bytes=core.memory_limit(options.memory_per_device),
        cache_dir=_cache.cache_folder(options.cache_dir),
        runtime_dir=answer.folder,
        data_endpoint=bind,
        advertise=advertise,
        token=token,
        log_level=options.log_level,
        parent_pid=os.getpid(),
        connect_timeout_s=options.timeout_s,
    )


def _reached(addresses: list[str], token: str) -> str:
    """The first address at which the controller welcomes us; the only one need not be tried."""
    if len(addresses) == 1:
        return addresses[0]
    for address in addresses:
        try:
            native.Session.connect(address, "looking for the controller", _PROBE_S, token=token).close("it is here")
        except native.NativeError as error:
            if error.code != "UNAVAILABLE" or "refused" in str(error):  # there is somebody, who says why not
                raise native.translate(error, "connecting") from None
            continue
        return address
    raise core.ConnectionFailed(
        f"rank 0's controller must be reachable from this machine, got no welcome at {', '.join(addresses)}; "
        "open the port to the job's machines, or name rank 0's address with --advertise"
    )


def _name(rank: int) -> str:
    return f"rank{rank}"


def _build_of(path: str) -> str:
    """Tells plugin files apart without reading hundreds of megabytes: the size, and a hash of both ends."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        ends = file.read(1 << 20)
        file.seek(max(0, size - (1 << 20)))
        ends += file.read()
    return f"{os.path.basename(path)} ({size} bytes, {hashlib.sha256(ends).hexdigest()[:12]})"
