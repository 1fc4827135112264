"""Starting clusters: one file per launcher. ``local`` starts one on this machine, ``simulated`` in this process."""

from __future__ import annotations

from ptpathways.launch import local, simulated
from ptpathways.launch._worker_command import WorkerOptions, worker_command, worker_environment

__all__ = ["WorkerOptions", "local", "simulated", "worker_command", "worker_environment"]
