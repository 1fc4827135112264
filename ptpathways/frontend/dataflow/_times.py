"""When the computations of a program's last runs began and ended."""

from __future__ import annotations

import time

from ptpathways import native, programs
from ptpathways.frontend.dataflow._program import Program

_TIMEOUT_S = 60.0  # for a host to answer
_LATE_S = 0.5
"""For what plugins say of computations whose run is known to have ended: each has a thread of its own that says it."""
_POLL_S = 0.01


def timed_runs(program: Program) -> list[programs.TimedRun]:
    """The last runs of ``program``, for whatever arguments, the oldest first; few of them.

    Hosts keep them as long as the program is bound to its devices. Asks once more when some of the last run is missing,
    so wait for that before.

    Raises:
        HostLost, ConnectionFailed, DeadlineExceeded: a host does not answer.
    """
    until = time.monotonic() + _LATE_S
    while True:
        found = _ask(program)
        if not found or not found[-1].missing or time.monotonic() > until:
            return found
        time.sleep(_POLL_S)


def _ask(program: Program) -> list[programs.TimedRun]:
    found: list[programs.TimedRun] = []
    for entry in list(program._entries.values()):
        bound = None if entry.first is None else entry.first.bound
        if isinstance(bound, programs.BoundProgram):
            with native.translated():
                found += bound.times(_TIMEOUT_S)
    return sorted(found, key=lambda one: one.run)
