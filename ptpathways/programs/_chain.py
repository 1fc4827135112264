"""Which results of a program are the arguments of its next run."""

from __future__ import annotations

from collections.abc import Collection

from ptpathways import core, ir


def chain(program: ir.Program, donated: Collection[int]) -> dict[int, int]:
    """Numbers of results by the numbers of the arguments that they become.

    An argument that a run gives up takes the result that is called after it (``new.NAME``, as saved steps call what
    they replace), else the first that is left, of its type, layout and slice. The others, and those for which there is
    none, keep their values. In a program that gives up none, every argument may.

    Raises:
        InvalidOption: no result fits any of them.
    """
    values = [program.values[name] for name in program.results]
    arguments = {number: node.outputs[0] for number, node in enumerate(program.arguments)}
    left = [number for number in arguments if number in donated or not donated]
    free = dict(enumerate(values))
    found: dict[int, int] = {}
    for by_name in (True, False):
        for number in left:
            wanted = arguments[number]
            fits = (
                result
                for result, value in free.items()
                if (value.type, value.slice) == (wanted.type, wanted.slice)
                and (not by_name or program.results[result] == f"new.{wanted.name}")
            )
            result = next(fits, None)
            if result is not None:
                found[number] = result
                del free[result]
        left = [number for number in left if number not in found]
    if not found:
        raise core.InvalidOption(
            f"to chain runs of {program.label}, a result must have the type, layout and slice of an argument"
            f"{' that a run gives up' if donated else ''}; none has"
        )
    return dict(sorted(found.items()))
