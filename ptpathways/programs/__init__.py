"""Programs on a session: what is lowered is registered, run, saved to a file and replayed. No torch."""

from __future__ import annotations

from ptpathways.programs._bind import BoundProgram, Functions, hosts_of

__all__ = [
    "BoundProgram",
    "Functions",
    "hosts_of",
]
