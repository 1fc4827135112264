"""A public kit for tests on real local clusters: faults as verbs, and checks for what is left behind."""

from __future__ import annotations

from ptpathways.testing._faults import kill, resume, stop_process, suspend
from ptpathways.testing._leaks import is_running, leftovers, shared_memory_files, wait_until

__all__ = ["is_running", "kill", "leftovers", "resume", "shared_memory_files", "stop_process", "suspend", "wait_until"]
