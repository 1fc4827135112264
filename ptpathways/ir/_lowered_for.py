"""The passes in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptpathways.ir._plan import Lowered
from ptpathways.ir._program import Program
from ptpathways.ir.passes import infer_transfers, lower, place


def lowered_for(program: Program, devices: Mapping[str, Sequence[int]], hosts: Mapping[int, int]) -> Lowered:
    """The plans of a regular program on the given devices: ``infer_transfers``, ``place``, ``lower``.

    ``devices``: per slice, position by position. ``hosts``: the host of each device.

    Raises:
        InvalidProgram: as the passes do.
    """
    return lower(place(infer_transfers(program), devices, hosts))
