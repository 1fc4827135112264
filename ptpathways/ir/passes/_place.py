"""place: virtual slices get their physical devices (paper 4.1, 4.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ptpathways.core import InvalidProgram
from ptpathways.ir._program import Program
from ptpathways.ir._types import Slice
from ptpathways.ir._verify import verify


def place(program: Program, devices: Mapping[str, Sequence[int]], hosts: Mapping[int, int]) -> Program:
    """The program with each slice on the cluster-wide ``devices[name]``, position by position.

    ``hosts``: the host of each device. Slices may share devices. What is placed already is placed again.

    Raises:
        InvalidProgram: a slice gets no devices, not as many as it has positions, or one that no host has.
    """

    def bound(part: Slice) -> Slice:
        found = devices.get(part.name)
        if found is None:
            raise InvalidProgram(f"program {program.label}: slice {part.name!r} is bound to no devices")
        for device in found:
            if device not in hosts:
                raise InvalidProgram(f"program {program.label}: slice {part.name!r}: no host has device {device}")
        return replace(part, devices=tuple(found), hosts=tuple(hosts[device] for device in found))

    return verify(program.changed(slices=tuple(bound(part) for part in program.slices)))
