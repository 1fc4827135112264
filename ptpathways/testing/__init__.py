"""A public kit for tests on real local clusters: faults as verbs, and checks for what is left behind."""

from __future__ import annotations

from ptpathways.testing._faults import hold_thread, kill, resume, resume_process, stop_process, suspend
from ptpathways.testing._leaks import is_running, leftovers, shared_memory_files, wait_until
from ptpathways.testing._machines import Machine, NotPermitted, machines
from ptpathways.testing._proxies import SHUT, USUAL, Proxy, Way

__all__ = [
    "SHUT",
    "USUAL",
    "Machine",
    "NotPermitted",
    "Proxy",
    "Way",
    "hold_thread",
    "is_running",
    "kill",
    "leftovers",
    "machines",
    "resume",
    "resume_process",
    "shared_memory_files",
    "stop_process",
    "suspend",
    "wait_until",
]
