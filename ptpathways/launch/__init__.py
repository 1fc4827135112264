"""Starting clusters: one file per launcher.

``local`` starts one on this machine, ``ray`` on the nodes of a Ray cluster, ``simulated`` in this process, ``torchrun``
and ``slurm`` one whose workers other launchers have placed on many machines (``python -m ptpathways.launch``), and
``kubernetes`` writes manifests of one.
"""

from __future__ import annotations

from ptpathways.launch import kubernetes, local, simulated
from ptpathways.launch._addresses import DEFAULT_PORT, data_endpoint, endpoint, reachable, stays_here
from ptpathways.launch._cache import cache_folder
from ptpathways.launch._embedded import serves
from ptpathways.launch._launchers import serve, start
from ptpathways.launch._program import run_program
from ptpathways.launch._standing import await_token, connect
from ptpathways.launch._tokens import (
    ROLES,
    asking,
    changing,
    find,
    forget,
    keep,
    refuse_rotation,
    role_token,
    token_files,
)
from ptpathways.launch._worker_command import WorkerOptions, worker_command, worker_environment

__all__ = [
    "DEFAULT_PORT",
    "ROLES",
    "WorkerOptions",
    "asking",
    "await_token",
    "cache_folder",
    "changing",
    "connect",
    "data_endpoint",
    "endpoint",
    "find",
    "forget",
    "keep",
    "kubernetes",
    "local",
    "reachable",
    "refuse_rotation",
    "role_token",
    "run_program",
    "serve",
    "serves",
    "simulated",
    "start",
    "stays_here",
    "token_files",
    "worker_command",
    "worker_environment",
]
