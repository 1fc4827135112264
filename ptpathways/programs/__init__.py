"""Programs on a session: what is lowered is registered, run, saved to a file and replayed. No torch."""

from __future__ import annotations

from ptpathways.programs._bind import BoundProgram, Functions, SequentialProgram, hosts_of
from ptpathways.programs._bundle import Bundle
from ptpathways.programs._replay import Replay, ReplayedResult, replay
from ptpathways.programs._shards import assemble, distinct, numpy_dtype, split
from ptpathways.programs._times import Computation, TimedRun, gather

__all__ = [
    "BoundProgram",
    "Bundle",
    "Computation",
    "Functions",
    "Replay",
    "ReplayedResult",
    "SequentialProgram",
    "TimedRun",
    "assemble",
    "distinct",
    "gather",
    "hosts_of",
    "numpy_dtype",
    "replay",
    "split",
]
