"""Workers that Ray places: one actor a host, in one placement group, each with a worker process of ours.

The controller and the program are in this process, a driver of the Ray cluster, which need not run on a node of it.
Ray decides where the bundles go, says when it cannot, and tells of actors that die. Actors and placement group belong
to the driver's job: Ray removes them when the driver ends, however it ends, and each worker ends with its actor.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import socket
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptpathways import core, native
from ptpathways.launch import _addresses, _cluster, _tokens
from ptpathways.launch._cluster import LocalCluster, StandingCluster
from ptpathways.launch._ray_host import About, Order, RayHost

__all__ = ["Ray", "bundle_of", "serve", "start"]

_NOTICE_S = 5.0
_LOOKS_S = 0.5
_ANSWERS_S = 5.0
_RESTARTS_MAX = 3
"""Of a host: one that ends again and again is better looked at."""
_HOST_AND_PORT = re.compile(r"[^/]+:\d+")


def start(options: core.Options) -> LocalCluster:
    """Starts ``options.hosts`` workers on the Ray cluster and joins them.

    Raises:
        InvalidOption: Ray is not installed, or an option does not go with it.
        ConnectionFailed: there is no Ray cluster, or a node could not start its worker; in Ray's words.
        VersionMismatch: a node has another version of ptpathways.
        DeadlineExceeded: Ray did not place the workers within ``options.startup_timeout_s``; says what was asked for
            and what there is. Or the workers did not join.
    """
    return _cluster.start(options, Ray())


def serve(options: core.Options) -> StandingCluster:
    """As ``start``, for clients of other processes on this machine. Raises as ``start`` does."""
    return _cluster.serve(options, Ray())


def bundle_of(options: core.Options) -> dict[str, float]:
    """The resources of one host, as Ray calls them: a core for each CPU device, else the accelerators and one core."""
    kinds = {"cuda": "GPU", "tpu": "TPU"}
    if options.platform in kinds:
        return {"CPU": 1, kinds[options.platform]: options.devices_per_host}
    return {"CPU": options.devices_per_host}


class Ray:
    """Workers are actors of a Ray cluster."""

    def __init__(self) -> None:
        try:
            import ray  # noqa: F401
        except ImportError as error:
            raise core.InvalidOption(
                f"option launcher='ray' needs Ray, got: {error}; install it with `pip install 'ptpathways[ray]'`"
            ) from None

    def listens(self, options: core.Options) -> str:
        return options.bind or "tcp://0.0.0.0:*"

    def workers(self, options: core.Options, controller: native.Controller, folder: Path) -> RayWorkers:
        return RayWorkers(options, controller)


class RayWorkers:
    """The actors of one cluster. One thread, ``ptpathways-ray``, waits for them to end, and others start new ones in
    the places of those that did."""

    def __init__(self, options: core.Options, controller: native.Controller) -> None:
        self._options = options
        self._controller = controller
        self._names = _cluster.host_names(options)
        self._pids: dict[str, int] = {}
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self._started_ray = False
        self._group: Any = None
        self._actors: dict[str, Any] = {}
        self._sent: dict[str, Order] = {}
        self._restarts: Counter[str] = Counter()
        self._restarting: dict[str, threading.Thread] = {}
        self._restarted: queue.SimpleQueue[str] = queue.SimpleQueue()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the workers by host name, on their nodes."""
        return dict(self._pids)

    def said(self) -> dict[str, str]:
        """Nothing: the logs are on the nodes, and come with the news that a worker has ended."""
        return {}

    def start(self, timeout_s: float) -> None:
        """Places the actors and starts their workers; raises as ``ray.start`` says."""
        ends = time.monotonic() + timeout_s
        self._started_ray = _connect()
        self._place(ends)
        nodes = self._ask({name: actor.describe.remote() for name, actor in self._actors.items()}, ends)
        for name, node in nodes.items():
            if node.version != core.__version__:
                raise core.VersionMismatch(
                    f"every node must have ptpathways {core.__version__}, as this one; {name} on {node.hostname} has "
                    f"{node.version}"
                )
        self._sent = self._orders(nodes)
        self._pids = self._ask({name: self._begin(name, nodes) for name in nodes}, ends)
        self._watcher = threading.Thread(target=self._watch, name="ptpathways-ray", daemon=True)
        self._watcher.start()

    def stop(self, grace_s: float) -> None:
        """Waits up to ``grace_s`` for the workers to end, then lets Ray kill what is left."""
        import ray

        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join(grace_s)
        with contextlib.suppress(Exception):  # Ray itself may have ended
            for actor in self._actors.values():
                ray.kill(actor)
            if self._group is not None:
                ray.util.remove_placement_group(self._group)
        if self._started_ray:
            ray.shutdown()

    def _place(self, ends: float) -> None:
        import ray

        bundle = bundle_of(self._options)
        self._group = ray.util.placement_group(
            [bundle] * self._options.hosts, strategy="SPREAD", name=f"ptpathways-{self._controller.cluster}"
        )
        told = False
        while not self._group.wait(timeout_seconds=max(0.0, min(_NOTICE_S, ends - time.monotonic()))):
            state = ray.util.placement_group_table(self._group).get("stats", {}).get("scheduling_state", "PENDING")
            what = (
                f"Ray has not placed {self._options.hosts} workers with {_resources(bundle)} each (state: {state}); "
                f"its cluster has {_resources(ray.cluster_resources())}, of which "
                f"{_resources(ray.available_resources())} are free, on {sum(n['Alive'] for n in ray.nodes())} nodes"
            )
            if time.monotonic() >= ends:
                raise core.DeadlineExceeded(
                    f"{what}, within {self._options.startup_timeout_s:g} s; ask for fewer hosts or devices, add nodes, "
                    "or wait longer with startup_timeout_s"
                )
            if not told:
                print(f"ptpathways: {what}; waiting", file=sys.stderr, flush=True)
            told = True
        for name in self._names:
            self._actors[name] = self._actor(name)

    def _actor(self, name: str) -> Any:
        """A new one in the host's bundle, which Ray places elsewhere if its node is gone."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle, again = bundle_of(self._options), self._restarts[name]
        return (
            ray.remote(RayHost)
            .options(
                name=f"{self._controller.cluster}/{name}" + (f"/{again}" if again else ""),
                num_cpus=bundle["CPU"],
                num_gpus=bundle.get("GPU", 0),
                resources={kind: amount for kind, amount in bundle.items() if kind not in ("CPU", "GPU")},
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, self._names.index(name)),
            )
            .remote()
        )

    def _begin(self, name: str, nodes: dict[str, About]) -> Any:
        """Has an actor start its worker; the answer to come. A token goes along unless all nodes have it."""
        token = "" if all(node.has_token for node in nodes.values()) else _tokens.worker_token(self._options.token)
        return self._actors[name].start.remote(self._sent[name], token)

    def _ask(self, answers: dict[str, Any], ends: float) -> dict[str, Any]:
        """The answers of the actors, by name."""
        import ray

        got: dict[str, Any] = {}
        for name, answer in answers.items():
            try:
                got[name] = ray.get(answer, timeout=max(0.1, ends - time.monotonic()))
            except ray.exceptions.GetTimeoutError:
                raise core.DeadlineExceeded(
                    f"{name} was placed by Ray, but its actor did not answer within "
                    f"{self._options.startup_timeout_s:g} s; see `ray list actors`"
                ) from None
            except ray.exceptions.RayTaskError as error:
                raise core.ConnectionFailed(f"{name} could not start on its node of Ray: {error.cause}") from None
            except ray.exceptions.RayError as error:
                raise core.ConnectionFailed(
                    f"Ray could not start {name}: {error}; every node needs ptpathways {core.__version__}"
                ) from None
        return got

    def _orders(self, nodes: dict[str, About]) -> dict[str, Order]:
        """What each actor is to start. Ray gives an actor its own accelerators; CPU workers share out a machine."""
        options = replace(self._options, token="")
        orders: dict[str, Order] = {}
        on_machine: dict[str, int] = {}
        for number, (name, node) in enumerate(nodes.items()):
            index = on_machine.setdefault(node.machine, 0)
            on_machine[node.machine] += 1
            orders[name] = Order(
                controller=self._controller_for(node),
                name=name,
                index=index if options.platform == "cpu" else 0,
                island=options.island_of(number),
                island_hosts=_cluster.plugins_together(options.platform, options, number),
                options=options,
            )
        return orders

    def _controller_for(self, node: About) -> str:
        """Where a node reaches the controller."""
        bound = self._controller.endpoints[1]
        wildcard = _addresses.is_wildcard(_addresses.host_of(bound))
        here = _addresses.local_address_towards(node.address) if wildcard else _addresses.host_of(bound)
        return _addresses.with_host(bound, here)

    def _watch(self) -> None:
        """Tells the controller of each worker that ends, and has another one started."""
        import ray

        waiting = {actor.wait.remote(): name for name, actor in self._actors.items()}
        while (waiting or self._restarting) and ray.is_initialized():
            while not self._restarted.empty():
                name = self._restarted.get()
                self._restarting.pop(name).join()
                if name in self._pids:
                    waiting[self._actors[name].wait.remote()] = name
            if not waiting:
                if self._stopping.wait(_LOOKS_S):
                    return
                continue
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=_LOOKS_S)
            for answer in done:
                name = waiting.pop(answer)
                try:
                    reason = f"{ray.get(answer)}"
                except ray.exceptions.RayError as error:
                    reason = f"was lost by Ray: {' '.join(str(error).split())}"
                if not self._stopping.is_set():
                    self._pids.pop(name, None)
                    self._controller.host_exited(name, reason)
                    self._start_again(name)

    def _start_again(self, name: str) -> None:
        """A new worker in the place of one that has ended, which joins as a new host of the same name.

        Not where the plugins of several hosts make one client: the others' has ended with it.
        """
        if self._restarts[name] >= _RESTARTS_MAX or self._sent[name].island_hosts > 0:
            return
        self._restarts[name] += 1

        def start() -> None:
            try:
                ends = time.monotonic() + self._options.startup_timeout_s
                self._actors[name] = self._actor(name)
                nodes = self._ask({name: self._actors[name].describe.remote()}, ends)
                self._sent[name] = replace(self._sent[name], controller=self._controller_for(nodes[name]))
                self._pids |= self._ask({name: self._begin(name, nodes)}, ends)
            except Exception as error:  # also what Ray raises when it ends meanwhile
                if not self._stopping.is_set():
                    print(f"ptpathways: {name} was not started again: {error}", file=sys.stderr, flush=True)
            self._restarted.put(name)

        self._restarting[name] = threading.Thread(target=start, name=f"ptpathways-ray-{name}", daemon=True)
        self._restarting[name].start()


def _resources(amounts: dict[str, float]) -> str:
    """``"CPU: 4, GPU: 1"``; of what Ray counts, only devices."""
    told = [f"{kind}: {amounts[kind]:g}" for kind in ("CPU", "GPU", "TPU") if kind in amounts]
    return ", ".join(told) or "none of CPU, GPU, TPU"


def _connect() -> bool:
    """Makes this process a driver of the Ray cluster that there is; whether it was none before."""
    import ray

    if ray.is_initialized():
        return False
    address = os.environ.get("RAY_ADDRESS") or "auto"
    try:
        if _HOST_AND_PORT.fullmatch(address):  # Ray itself would try for minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_S).close()
        ray.init(address=address)
    except (OSError, ValueError, RuntimeError) as error:
        raise core.ConnectionFailed(
            f"option launcher='ray' needs a Ray cluster, got none at {address!r}: {error}; start one with "
            "`ray start --head`, name one by RAY_ADDRESS, or call ray.init() before"
        ) from None
    return True
