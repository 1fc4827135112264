"""The launcher that ``Options.launcher`` names."""

from __future__ import annotations

from ptpathways import core
from ptpathways.launch import _cluster, local, ray
from ptpathways.launch._cluster import Launcher, LocalCluster, StandingCluster


def start(options: core.Options) -> LocalCluster:
    """A cluster with a controller in this process, whose session is joined; raises as its launcher's ``start``."""
    return _cluster.start(options, _launcher(options))


def serve(options: core.Options) -> StandingCluster:
    """As ``start``, for clients of other processes on this machine. Raises as ``start`` does."""
    return _cluster.serve(options, _launcher(options))


def _launcher(options: core.Options) -> Launcher:
    return ray.Ray() if options.launcher == "ray" else local.Here()
