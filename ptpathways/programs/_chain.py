"""Which results of a program are the arguments of its next run."""

from __future__ import annotations

from collections.abc import Collection

from ptpathways import core, ir


def chain(program: ir.Program, donated: Collection[int]) -> dict[int, int]:
    """Numbers of results by the numbers of the arguments that they become.

    Each argument that a run gives up takes the first result of its type, layout and slice that no earlier one took; the
    others, and those for which there is none, keep their values. In a program that gives up none, every argument may.

    Raises:
        InvalidOption: no result fits any of them.
    """
    free = dict(enumerate(program.values[name] for name in program.results))
    found: dict[int, int] = {}
    for number, node in enumerate(program.arguments):
        wanted = node.outputs[0]
        if donated and number not in donated:
            continue
        fits = (n for n, value in free.items() if (value.type, value.slice) == (wanted.type, wanted.slice))
        result = next(fits, None)
        if result is not None:
            found[number] = result
            del free[result]
    if not found:
        raise core.InvalidOption(
            f"to chain runs of {program.label}, a result must have the type, layout and slice of an argument"
            f"{' that a run gives up' if donated else ''}; none has"
        )
    return found
