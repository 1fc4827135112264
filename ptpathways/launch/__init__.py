"""Starting clusters: one file per launcher. ``local`` starts one on this machine."""

from __future__ import annotations

from ptpathways.launch import local
from ptpathways.launch._worker_command import WorkerOptions, worker_command, worker_environment

__all__ = ["WorkerOptions", "local", "worker_command", "worker_environment"]
