"""A cluster on this machine: an embedded controller in this process and worker processes beside it.

With ``Options.bind`` the controller also listens there, for workers that other machines send.

Whatever way this process ends, nothing is left behind. In order: ``close`` (also at exit) ends workers and
removes the cluster's folder and shared memory. Killed: the controller's connection closes with the process, and each
worker ends and removes them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from ptpathways import core, native, platforms
from ptpathways.launch import _addresses, _cache, _runtime_dir, _tokens
from ptpathways.launch._processes import Command, Processes, tail_of
from ptpathways.launch._worker_command import WorkerOptions, worker_command, worker_environment

_END_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class _Launched:
    """What belongs to a cluster that this process has started."""

    controller: native.Controller
    processes: Processes
    folder: Path
    token: str = field(repr=False)
    kept: list[Path]
    """Files with the token, for who joins from beside."""


class StandingCluster:
    """A controller and its workers, which this process owns and clients of other processes join. Made by ``serve``."""

    def __init__(self, launched: _Launched) -> None:
        controller, processes, folder = launched.controller, launched.processes, launched.folder
        self._launched = launched
        self.controller = controller
        self._processes = processes
        self._folder = folder
        self._closed = False
        self._owner = os.getpid()

    @property
    def address(self) -> str:
        """What a client gives to ``init``, or sets as ``PTPATHWAYS_ADDRESS``."""
        return self.controller.endpoints[0]

    @property
    def worker_pids(self) -> dict[str, int]:
        """Process ids by host name, of all that were started."""
        return self._processes.pids

    @property
    def runtime_dir(self) -> Path:
        """Where the cluster's sockets and logs are."""
        return self._folder

    def close(self, reason: str = "the program ended") -> None:
        """Ends every worker, and removes sockets and shared memory. Idempotent; nothing in a forked child."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        self.controller.close(reason)
        self._processes.stop(_END_GRACE_S)
        native.clean_up_shared_memory(self.controller.cluster)
        _runtime_dir.remove(self._folder)
        _tokens.forget(self._launched.kept, self._launched.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close("the program left its cluster")


class LocalCluster(StandingCluster):
    """A cluster whose controller is embedded in this process, and this process's session. Made by ``start``."""

    def __init__(self, launched: _Launched, session: native.Session) -> None:
        super().__init__(launched)
        self.session = session
        """This process's connection."""

    def close(self, reason: str = "the program ended") -> None:
        if os.getpid() == self._owner:
            self.session.close(reason)
        super().close(reason)


def start(options: core.Options) -> LocalCluster:
    """Starts ``options.hosts`` workers with ``options.devices_per_host`` devices each, and joins them.

    Raises:
        PluginNotFound: no PJRT plugin for the platform.
        ConnectionFailed: a worker ended before it joined; its last words are in the message.
        DeadlineExceeded: the workers did not join within ``options.startup_timeout_s``; says who did.
        AlreadyInitialized: this process has an embedded controller.
    """
    options = _with_token(options)
    launched = _launch(options, embedded=True)
    try:
        with native.translated():
            session = native.Session.connect(
                "",
                core.random_name("client"),
                options.startup_timeout_s,
                options.weight,
                options.priority,
                options.token,
            )
    except BaseException:
        StandingCluster(launched).close("the client could not join")
        raise
    return LocalCluster(launched, session)


def serve(options: core.Options) -> StandingCluster:
    """As ``start``, for clients of other processes on this machine. Raises as ``start`` does."""
    return StandingCluster(_launch(_with_token(options), embedded=False))


def _with_token(options: core.Options) -> core.Options:
    """A cluster that listens for others has a token. The sockets of one that does not are in a folder of this user."""
    return replace(options, token=core.make_token()) if options.bind and not options.token else options


def _launch(options: core.Options, *, embedded: bool) -> _Launched:
    native.load()
    native.clean_up_dead_shared_memory()
    plugin = platforms.find_plugin(options.platform, options.plugin)
    folder = _runtime_dir.create()
    names = [f"host{index}" for index in range(options.hosts)]
    # Hosts of one machine compile what they have in common once, also when nothing is to be kept for the next time.
    cache_dir = _cache.cache_folder(options.cache_dir, folder / "compiled" if options.hosts > 1 else None)
    controller: native.Controller | None = None
    processes: Processes | None = None
    kept: list[Path] = []
    try:
        with native.translated("connecting" if options.bind else ""):
            controller = native.Controller(
                {
                    "bind": [f"ipc://{folder}/controller", *([options.bind] if options.bind else [])],
                    "token": options.token,
                    "embedded": embedded,
                    "expected_hosts": names,
                    "policy": options.policy,
                    "lease_s": options.lease_s,
                    "log_level": options.log_level,
                }
            )
            if options.bind and options.token != core.INSECURE:
                kept = _tokens.keep(controller.endpoints[1:], options.token)
            template = WorkerOptions(
                controller=controller.endpoints[0],
                name="",
                plugin=plugin,
                devices=options.devices_per_host,
                runtime_dir=str(folder),
                data_endpoint=_data_endpoint(controller.endpoints[1]) if options.bind else "",
                token=options.token,
                memory_limit_bytes=options.memory_per_device_bytes,
                cache_dir=cache_dir,
                log_level=options.log_level,
                parent_pid=os.getpid(),
                connect_timeout_s=options.startup_timeout_s,
            )
            workers = [
                replace(
                    template,
                    name=name,
                    index=index,
                    island=options.island_of(index),
                    island_hosts=_plugins_together(plugin, options, index),
                )
                for index, name in enumerate(names)
            ]
            processes = Processes([_command(worker, folder) for worker in workers], controller.host_exited)
            processes.start(options.startup_timeout_s)
            _wait_for_hosts(controller, options, folder)
        return _Launched(controller, processes, folder, options.token, kept)
    except BaseException:
        if controller is not None:
            controller.close("the cluster did not start")
        if processes is not None:
            processes.stop(0.2)
        _runtime_dir.remove(folder)
        _tokens.forget(kept, options.token)
        raise


def _plugins_together(plugin: platforms.Plugin, options: core.Options, index: int) -> int:
    """The hosts whose plugins make one client with the ``index``-th's; 0 on cpu, whose collectives are ours."""
    island = options.island_of(index)
    if plugin.platform == "cpu" or not island:
        return 0
    hosts = sum(options.island_of(other) == island for other in range(options.hosts))
    return hosts if hosts > 1 else 0


def _data_endpoint(bound: str) -> str:
    """Where a worker beside a controller that other machines reach at ``bound`` takes bulk data from them."""
    return _addresses.with_host("tcp://*:*", _addresses.host_of(_addresses.reachable(bound)[0]))


def _command(worker: WorkerOptions, folder: Path) -> Command:
    return Command(worker.name, worker_command(worker), worker_environment(worker), folder / f"{worker.name}.log")


def _wait_for_hosts(controller: native.Controller, options: core.Options, folder: Path) -> None:
    try:
        controller.wait_for_hosts(options.hosts + options.remote_hosts, options.startup_timeout_s)
    except native.NativeError as error:
        if getattr(error, "code", "") != "DEADLINE_EXCEEDED":
            raise core.ConnectionFailed(f"the local cluster did not start: {error}") from None
        logs = [(name, tail_of(folder / f"{name}.log")) for name in (f"host{i}" for i in range(options.hosts))]
        if options.remote_hosts:
            where = ", ".join(_addresses.reachable(controller.endpoints[1]))
            error_text = f"{error}; {options.remote_hosts} of them were to join from other machines at {where}"
        else:
            error_text = str(error)
        said = [f"the end of {name}'s log:\n{tail}" for name, tail in logs if tail]
        raise core.DeadlineExceeded("\n".join([error_text, *said])) from None
