"""A cluster whose controller this process has, and whose workers a launcher places: here, or by an engine such as Ray.

The launcher says where the controller listens for its workers, starts them, watches them and ends them. All else of the
cluster's life is the same for every launcher, and here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self

from ptpathways import core, native
from ptpathways.launch import _addresses, _runtime_dir, _tokens

_END_GRACE_S = 5.0


class Workers(Protocol):
    """The workers of one cluster, which the controller calls ``host0``, ``host1``..."""

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by host name, of all that were started; on their machines."""

    def start(self, timeout_s: float) -> None:
        """Places and starts them. From then on the controller is told of each that ends (``host_exited``).

        Raises:
            OSError, ConnectionFailed, DeadlineExceeded: they cannot be started, in the words of who would have.
        """

    def stop(self, grace_s: float) -> None:
        """Waits up to ``grace_s`` for them to end by themselves, then makes them. None is left after it."""

    def said(self) -> dict[str, str]:
        """The last lines that they have printed, by name, as far as they are at hand."""


class Launcher(Protocol):
    """Where workers are placed."""

    def listens(self, options: core.Options) -> str:
        """The TCP endpoint where its workers reach the controller; empty: they are on this machine."""

    def workers(self, options: core.Options, controller: native.Controller, folder: Path) -> Workers:
        """The workers, not started yet; ``folder`` is the cluster's own on this machine."""


@dataclass(frozen=True, slots=True)
class Launched:
    """What belongs to a cluster that this process has started."""

    controller: native.Controller
    workers: Workers
    folder: Path
    token: str = field(repr=False)
    kept: list[Path]
    """Files with the token, for who joins from beside."""


class StandingCluster:
    """A controller and its workers, which this process owns and clients of other processes join. Made by ``serve``."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self.controller = launched.controller
        self._workers = launched.workers
        self._folder = launched.folder
        self._closed = False
        self._owner = os.getpid()

    @property
    def address(self) -> str:
        """What a client gives to ``init``, or sets as ``PTPATHWAYS_ADDRESS``."""
        return self.controller.endpoints[0]

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which ``init`` of another process on this machine joins as a client."""
        token = self._launched.token
        given = {core.TOKEN_VARIABLE: _tokens.client_token(token)} if token else {}
        return {"PTPATHWAYS_ADDRESS": self.address, **given}

    @property
    def worker_pids(self) -> dict[str, int]:
        """Process ids by host name, of all that were started; on their machines."""
        return self._workers.pids

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
        self._workers.stop(_END_GRACE_S)
        native.clean_up_shared_memory(self.controller.cluster)
        _runtime_dir.remove(self._folder)
        _tokens.forget(self._launched.kept, self._launched.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close("the program left its cluster")


class LocalCluster(StandingCluster):
    """A cluster whose controller is embedded in this process, and this process's session. Made by ``start``."""

    def __init__(self, launched: Launched, session: native.Session) -> None:
        super().__init__(launched)
        self.session = session
        """This process's connection."""

    def close(self, reason: str = "the program ended") -> None:
        if os.getpid() == self._owner:
            self.session.close(reason)
        super().close(reason)


def start(options: core.Options, launcher: Launcher) -> LocalCluster:
    """Starts ``options.hosts`` workers with ``options.devices_per_host`` devices each, and joins them.

    Raises:
        PluginNotFound: no PJRT plugin for the platform.
        ConnectionFailed: a worker could not be started or ended before it joined; its last words are in the message.
        DeadlineExceeded: the workers did not join within ``options.startup_timeout_s``; says who did.
        AlreadyInitialized: this process has an embedded controller.
    """
    options = _with_token(options, launcher)
    launched = _launch(options, launcher, embedded=True)
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


def serve(options: core.Options, launcher: Launcher) -> StandingCluster:
    """As ``start``, for clients of other processes on this machine. Raises as ``start`` does."""
    return StandingCluster(_launch(_with_token(options, launcher), launcher, embedded=False))


def _with_token(options: core.Options, launcher: Launcher) -> core.Options:
    """A cluster that listens for others has a token. The sockets of one that does not are in a folder of this user."""
    listens = bool(launcher.listens(options))
    return replace(options, token=core.make_token()) if listens and not options.token else options


def _launch(options: core.Options, launcher: Launcher, *, embedded: bool) -> Launched:
    native.load()
    native.clean_up_dead_shared_memory()
    folder = _runtime_dir.create()
    listens = launcher.listens(options)
    controller: native.Controller | None = None
    workers: Workers | None = None
    kept: list[Path] = []
    try:
        with native.translated("connecting" if listens else ""):
            controller = native.Controller(
                {
                    "bind": [f"ipc://{folder}/controller", *([listens] if listens else [])],
                    "token": options.token,
                    "embedded": embedded,
                    "expected_hosts": host_names(options),
                    "policy": options.policy,
                    "lease_s": options.lease_s,
                    "log_level": options.log_level,
                }
            )
            if listens and options.token != core.INSECURE:
                kept = _tokens.keep(controller.endpoints[1:], options.token)
            workers = launcher.workers(options, controller, folder)
            workers.start(options.startup_timeout_s)
            _wait_for_hosts(controller, workers, options)
        return Launched(controller, workers, folder, options.token, kept)
    except BaseException:
        if controller is not None:
            controller.close("the cluster did not start")
        if workers is not None:
            workers.stop(0.2)
        _runtime_dir.remove(folder)
        _tokens.forget(kept, options.token)
        raise


def host_names(options: core.Options) -> list[str]:
    """What the controller calls the workers that it is to have, in the order of their numbers."""
    return [f"host{index}" for index in range(options.hosts)]


def plugins_together(platform: str, options: core.Options, index: int) -> int:
    """The hosts whose plugins make one client with the ``index``-th's; 0 on cpu, whose collectives are ours."""
    island = options.island_of(index)
    if platform == "cpu" or not island:
        return 0
    hosts = sum(options.island_of(other) == island for other in range(options.hosts))
    return hosts if hosts > 1 else 0


def _wait_for_hosts(controller: native.Controller, workers: Workers, options: core.Options) -> None:
    try:
        controller.wait_for_hosts(options.hosts + options.remote_hosts, options.startup_timeout_s)
    except native.NativeError as error:
        if getattr(error, "code", "") != "DEADLINE_EXCEEDED":
            raise core.ConnectionFailed(f"the cluster did not start: {error}") from None
        if options.remote_hosts:
            where = ", ".join(_addresses.reachable(controller.endpoints[1]))
            error_text = f"{error}; {options.remote_hosts} of them were to join from other machines at {where}"
        else:
            error_text = str(error)
        said = [f"the end of {name}'s log:\n{tail}" for name, tail in workers.said().items() if tail]
        raise core.DeadlineExceeded("\n".join([error_text, *said])) from None
