"""A cluster on this machine: an embedded controller in this process and worker processes beside it.

With ``Options.bind`` the controller also listens there, for workers that other machines send.

Whatever way this process ends, nothing is left behind. In order: ``close`` (also at exit) ends workers and
removes the cluster's folder and shared memory. Killed: the controller's connection closes with the process, and each
worker ends and removes them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from ptpathways import core, native, platforms
from ptpathways.launch import _addresses, _cache, _cluster
from ptpathways.launch._cluster import LocalCluster, StandingCluster
from ptpathways.launch._processes import Command, Processes, show
from ptpathways.launch._worker_command import WorkerOptions, worker_command, worker_environment

__all__ = ["Here", "LocalCluster", "StandingCluster", "serve", "start"]


def start(options: core.Options) -> LocalCluster:
    """Starts ``options.hosts`` workers here and joins them; raises as ``_cluster.start`` says."""
    return _cluster.start(options, Here())


def serve(options: core.Options) -> StandingCluster:
    """As ``start``, for clients of other processes on this machine. Raises as ``start`` does."""
    return _cluster.serve(options, Here())


class Here:
    """Workers are processes of this machine, children of this one."""

    def listens(self, options: core.Options) -> str:
        return options.bind

    def workers(self, options: core.Options, controller: native.Controller, folder: Path) -> Processes:
        plugin = platforms.find_plugin(options.platform, options.plugin)
        # Hosts of one machine compile what they have in common once, also when nothing is to be kept for the next time.
        cache_dir = _cache.cache_folder(options.cache_dir, folder / "compiled" if options.hosts > 1 else None)
        template = WorkerOptions(
            controller=controller.endpoints[0],
            name="",
            plugin=plugin,
            devices=options.devices_per_host,
            workers=options.hosts,
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
                island_hosts=_cluster.plugins_together(plugin.platform, options, index),
            )
            for index, name in enumerate(_cluster.host_names(options))
        ]
        commands = [_command(worker, folder) for worker in workers]
        return Processes(commands, controller.host_exited, show)


def _data_endpoint(bound: str) -> str:
    """Where a worker beside a controller that other machines reach at ``bound`` takes bulk data from them."""
    return _addresses.with_host("tcp://*:*", _addresses.host_of(_addresses.reachable(bound)[0]))


def _command(worker: WorkerOptions, folder: Path) -> Command:
    return Command(worker.name, worker_command(worker), worker_environment(worker), folder / f"{worker.name}.log")
