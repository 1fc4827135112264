"""Named workloads that measure ptpathways, side by side with what it is compared with.

Each is run by ``ptpathways bench NAME`` or ``run``, starts its own local cluster, and gives ``Record``s.
"""

from __future__ import annotations

from ptpathways.bench._main import WORKLOADS, main, run
from ptpathways.bench._record import Record
from ptpathways.bench._workload import BenchOptions, Workload

__all__ = ["WORKLOADS", "BenchOptions", "Record", "Workload", "main", "run"]
