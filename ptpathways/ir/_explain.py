"""All stages of a program's lowering as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptpathways.ir._plan import HOSTS_SHOWN, lowered_text
from ptpathways.ir._program import Program
from ptpathways.ir._segments import split
from ptpathways.ir._text import to_text
from ptpathways.ir.passes import infer_transfers, lower, place


def explain(
    program: Program,
    devices: Mapping[str, Sequence[int]] | None = None,
    hosts: Mapping[int, int] | None = None,
    *,
    hosts_max: int = HOSTS_SHOWN,
) -> str:
    """The program after each pass, and its plans (those of the first ``hosts_max`` hosts).

    ``devices``, ``hosts``: as ``place`` takes them; without them, and if the program is not placed, the text ends
    before placement. A program with host calls is shown segment by segment from there.

    Raises:
        InvalidProgram: as the passes do.
    """
    stages = [("as traced", to_text(program))]
    if program.is_regular:
        program = infer_transfers(program)
        stages.append(("infer_transfers: data movement made explicit", to_text(program)))
    if devices is not None:
        program = place(program, devices, hosts or {})
        stages.append(("place: virtual slices on devices", to_text(program)))
    if program.is_regular:
        if program.placed:
            stages.append(("lower: one plan per host", lowered_text(lower(program), hosts_max)))
        return _joined(stages)
    parts = split(program)
    for number, segment in enumerate(parts, 1):
        name = f"segment {number} of {len(parts)}"
        if segment.host_call is not None:
            takes, gives = (", ".join(f"%{value}" for value in values) for values in (segment.inputs, segment.outputs))
            stages.append((name, f"the client runs {segment.host_call.label} on {takes} and gets {gives}\n"))
        elif segment.program is not None:
            stages.append((name, to_text(segment.program)))
            if segment.program.placed:
                stages.append((f"{name}: one plan per host", lowered_text(lower(segment.program), hosts_max)))
    return _joined(stages)


def _joined(stages: list[tuple[str, str]]) -> str:
    return "\n".join(f"=== {title} ===\n{text}" for title, text in stages)
