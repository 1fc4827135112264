"""Which results of a program are the arguments of its next run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ptpathways import core, ir


def chain(program: ir.Program, donated: Collection[int], follows: Mapping[int, int] | None = None) -> dict[int, int]:
    """Numbers of results by the numbers of the arguments that they become.

    Those that ``follows`` names, where that is known. Else each argument that a run gives up takes the first result of
    its type, layout and slice that no earlier one took; in a program that gives up none, every argument may. All others
    keep their values.

    Raises:
        InvalidOption: no result becomes an argument, or one that has another type, layout or slice.
    """
    if follows is not None:
        if not follows:
            raise core.InvalidOption(
                f"to chain runs of {program.label}, it must write state that it reads; it has none"
            )
        for number, place in follows.items():
            argument, name = program.arguments[number].outputs[0], program.results[place]
            if (argument.type, argument.slice) != (program.values[name].type, program.values[name].slice):
                raise core.InvalidOption(
                    f"to chain runs of {program.label}, result {name} must have the type, layout and slice of argument "
                    f"{argument.name}, which it becomes; it has others"
                )
        return dict(follows)
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
