"""Programs on a session: what is lowered is registered, run, saved to a file and replayed. No torch."""

from __future__ import annotations

from ptpathways.programs._bind import BoundProgram, Functions, SequentialProgram, hosts_of
from ptpathways.programs._bundle import Bundle
from ptpathways.programs._compile_for import (
    CollectiveCost,
    CompiledFor,
    CompiledFunction,
    LargeValue,
    axes_of,
    compile_apart,
    compile_for,
)
from ptpathways.programs._replay import Replay, ReplayedResult, replay
from ptpathways.programs._shards import assemble, distinct, numpy_dtype, split
from ptpathways.programs._times import Computation, TimedRun, gather

__all__ = [
    "BoundProgram",
    "Bundle",
    "CollectiveCost",
    "CompiledFor",
    "CompiledFunction",
    "Computation",
    "Functions",
    "LargeValue",
    "Replay",
    "ReplayedResult",
    "SequentialProgram",
    "TimedRun",
    "assemble",
    "axes_of",
    "compile_apart",
    "compile_for",
    "distinct",
    "gather",
    "hosts_of",
    "numpy_dtype",
    "replay",
    "split",
]
