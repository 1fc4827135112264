"""Why a computation had to be compiled although one like it had been: a pure comparison of two modules."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Instruction = tuple[str, str, str, str]
"""Opcode, type, detail (a constant's value, a parameter's number, a slice's ranges, else all attributes), line."""

BAKED = ("0", "1", "-1")
"""Numbers that PyTorch/XLA makes part of a computation; others are inputs."""
_SHOWN = 3
_ALIKE, _SAME = 0.5, 0.9
_TYPE = re.compile(r"(\w+)\[([\d,]*)\]")

SHAPE_HINT = "every new size is compiled once: pad to a few sizes with pw.bucket() or pw.bucketed() (dim={dimension})"
ROWS_HINT = (
    "every new number of rows is compiled once: for the last batch of an epoch use drop_last=True, or pad it with "
    "pw.bucket(dim=0)"
)
DTYPE_HINT = "make its type the same at each step"
BAKED_HINT = "PyTorch/XLA makes 0, 1 and -1 part of the computation; every other value of that number is an input"
NUMBER_HINT = "keep the number the same, or make it a tensor on the device"
SLICE_HINT = (
    "keep the range the same: compute all of it and mask, take it with index_select and a tensor, or (CutMix, random "
    "erasing) do it on the CPU, before the tensor is moved"
)
ARGUMENTS_HINT = "the computation takes it as an argument from now on, so other values need no compile"
KEPT_HINT = "keep the same tensors alive at each step; of values for later keep detach()ed ones, or pw.log them"
STRUCTURE_HINT = (
    "another branch or another number of rounds of the user's Python, another mode (training or evaluation), or "
    "another model; both stay compiled"
)


@dataclass(frozen=True)
class Module:
    """What is compared of a computation. Types are such as ``f32[8,128]``."""

    name: str
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    line: str
    """Of the user, where it was submitted: ``file:line``."""
    numbers: int = 0
    """How many of its numbers are arguments of what was compiled."""

    @functools.cached_property
    def opcodes(self) -> Counter[str]:
        """How often each operation occurs."""
        return Counter(opcode for opcode, _, _, _ in self.instructions)

    @property
    def contents(self) -> tuple[object, ...]:
        """Equal for computations that differ in nothing but their name and lines."""
        return self.parameters, self.results, tuple(instruction[:3] for instruction in self.instructions)


@dataclass(frozen=True, slots=True)
class Cause:
    """What differs."""

    kind: str
    """shape, dtype, number, slice, kept, structure."""
    text: str
    """For people: what, from what, to what."""
    hint: str
    """What to do about it."""
    line: str = ""
    """Of the operation that differs, where the module says so: ``file:line``."""


def most_alike(module: Module, known: Iterable[Module]) -> Module | None:
    """The one that ``module`` is most likely another version of; of equals the last."""
    return max(reversed(list(known)), key=lambda other: _likeness(module, other), default=None)


def cause_of(module: Module, before: Module, name_of: Callable[[str], str] = lambda type: "") -> Cause:
    """Why ``module`` is not ``before``.

    Args:
        name_of: what the user calls the argument of a type, such as ```x```; empty: nobody knows.
    """
    if len(module.parameters) == len(before.parameters):
        changed = [(old, new) for old, new in zip(before.parameters, module.parameters, strict=True) if old != new]
        if changed and Counter(module.parameters) != Counter(before.parameters):
            return _of_arguments(changed, name_of)
    elif _share(module, before) > _ALIKE and (baked := _of_baked_numbers(module, before)):
        return baked
    if kept := _of_kept(module, before):
        return kept
    if Counter(module.parameters) == Counter(before.parameters):
        if [one[0] for one in module.instructions] == [one[0] for one in before.instructions]:
            return _of_instructions(module, before)
        if _share(module, before) > _SAME and (few := _of_few_operations(module, before)):
            return few
    return _of_structure(module, before)


def _likeness(module: Module, other: Module) -> float:
    same = (Counter(module.parameters) & Counter(other.parameters)).total()
    parameters = same / max(len(module.parameters), len(other.parameters), 1)
    return 2 * _share(module, other) + parameters + (module.line == other.line)


def _share(module: Module, other: Module) -> float:
    """How much of the operations both have, from 0 to 1."""
    both = (module.opcodes & other.opcodes).total()
    return 2 * both / max(len(module.instructions) + len(other.instructions), 1)


def _of_arguments(changed: Sequence[tuple[str, str]], name_of: Callable[[str], str]) -> Cause:
    distinct = list(dict.fromkeys(changed))
    same_type = [(old, new) for old, new in distinct if _element(old) == _element(new)]
    said = [_argument(old, new, name_of) for old, new in distinct[:_SHOWN]]
    if len(distinct) > _SHOWN:
        said.append(f"and {len(distinct) - _SHOWN} more")
    text = "; ".join(said)
    if len(same_type) < len(distinct):
        return Cause("dtype", text, DTYPE_HINT)
    dimensions = {at for old, new in distinct for at in _differing(old, new)}
    first = min(dimensions, default=0)
    return Cause("shape", text, ROWS_HINT if first == 0 else SHAPE_HINT.format(dimension=first))


def _argument(old: str, new: str, name_of: Callable[[str], str]) -> str:
    name = name_of(new)
    text = f"the argument {name + ' ' if name else ''}was {old} and is {new}"
    differing = _differing(old, new)
    if differing and _element(old) == _element(new):
        sizes_old, sizes_new = _dimensions(old), _dimensions(new)
        moved = ", ".join(f"dimension {at}: {sizes_old[at]} -> {sizes_new[at]}" for at in differing)
        text += f" ({moved})"
    return text


def _of_baked_numbers(module: Module, before: Module) -> Cause | None:
    """A number that was an input and is a constant, or the other way round."""
    gone, come = Counter(before.parameters), Counter(module.parameters)
    gone, come = gone - come, come - gone
    if not all(type.endswith("[]") for type in [*gone, *come]):
        return None
    constants_old, constants_new = _numbers(before), _numbers(module)
    fewer = len(module.parameters) < len(before.parameters)
    more = constants_new - constants_old if fewer else constants_old - constants_new
    values = list(dict.fromkeys(value for _, value in more if value in BAKED))
    if not values:
        return None
    which = " or ".join(values)
    was = "was an input of the computation and is now" if fewer else "is now an input of the computation and was before"
    return Cause("number", f"a Python number {was} exactly {which}", BAKED_HINT)


def _of_kept(module: Module, before: Module) -> Cause | None:
    """The same computation, of which more results are asked for, or fewer."""
    extra = len(module.results) - len(before.results)
    larger, smaller = (module, before) if extra > 0 else (before, module)
    if not extra or smaller.opcodes - larger.opcodes or _share(module, before) < _SAME:
        return None
    more = "more" if extra > 0 else "fewer"
    return Cause(
        "kept",
        f"it leaves {len(module.results)} tensors and left {len(before.results)}: {abs(extra)} {more} than before "
        "are in use after it",
        KEPT_HINT,
    )


def _of_few_operations(module: Module, before: Module) -> Cause | None:
    """Slices and numbers that differ although the operations are in another order, or not quite the same."""
    of_old, of_new = Counter(o[:3] for o in before.instructions), Counter(n[:3] for n in module.instructions)
    old, new = of_old - of_new, of_new - of_old
    slices = [[i[2] for i in of if i[0] == "slice"] for of in (old, new)]
    if all(0 < len(some) <= _SHOWN for some in slices):
        line = next((i[3] for i in module.instructions if i[0] == "slice" and i[2] == slices[1][0]), "")
        return _slice(slices[0][0], slices[1][0], line)
    numbers = [[i[2] for i in of if i[0] == "constant" and i[1].endswith("[]")] for of in (old, new)]
    if all(0 < len(some) <= _SHOWN for some in numbers):
        return _number(*numbers)
    return None


def _of_instructions(module: Module, before: Module) -> Cause:
    """The same operations in the same order: their numbers, or the first that people can do something about."""
    pairs = [(o, n) for o, n in zip(before.instructions, module.instructions, strict=True) if o[:3] != n[:3]]
    constants = [(old, new) for old, new in pairs if old[0] == "constant" and old[1] == new[1]]
    if constants:
        distinct = list(dict.fromkeys((old[2], new[2]) for old, new in constants))[:_SHOWN]
        cause = _number(*zip(*distinct, strict=True))
        return Cause(cause.kind, cause.text, cause.hint, constants[0][1][3])
    for old, new in pairs:
        if old[0] == "slice" and old[2] != new[2]:
            return _slice(old[2], new[2], new[3])
    for old, new in pairs:
        if _element(old[1]) != _element(new[1]):
            return Cause("dtype", f"the result of {_an(new[0])} was {old[1]} and is {new[1]}", DTYPE_HINT, new[3])
    for old, new in pairs:
        if old[1] != new[1]:
            return Cause("shape", f"the result of {_an(new[0])} was {old[1]} and is {new[1]}", NUMBER_HINT, new[3])
    for _, new in pairs:
        return Cause("structure", f"{_an(new[0])} of {new[1]} has other options than before", STRUCTURE_HINT, new[3])
    return Cause("structure", "the same operations are connected in another way", STRUCTURE_HINT)


def _of_structure(module: Module, before: Module) -> Cause:
    more, fewer = module.opcodes - before.opcodes, before.opcodes - module.opcodes
    parts = [
        f"{word}: {', '.join(f'{count} {opcode}' for opcode, count in counts.most_common(_SHOWN))}"
        for word, counts in (("more", more), ("fewer", fewer))
        if counts
    ]
    detail = f" ({'; '.join(parts)})" if parts else ""
    text = f"it has {len(module.instructions)} operations, and the most similar one {len(before.instructions)}{detail}"
    return Cause("structure", text, STRUCTURE_HINT)


def _slice(old: str, new: str, line: str = "") -> Cause:
    return Cause("slice", f"a slice took [{old}] and takes [{new}]", SLICE_HINT, line)


def _number(old: Sequence[str], new: Sequence[str]) -> Cause:
    was, now = ", ".join(old), ", ".join(new)
    if any(value.startswith("#") for value in [*old, *new]):
        return Cause("number", "a constant array of the computation has other values", NUMBER_HINT)
    hint = BAKED_HINT if {*old, *new} <= set(BAKED) else NUMBER_HINT
    if len(old) == len(new) == 1:
        return Cause("number", f"a Python number that is part of the computation was {was} and is {now}", hint)
    return Cause("number", f"Python numbers that are part of the computation were {was} and are {now}", hint)


def _numbers(module: Module) -> Counter[tuple[str, str]]:
    """Scalar constants: type and value."""
    return Counter((i[1], i[2]) for i in module.instructions if i[0] == "constant" and i[1].endswith("[]"))


def _element(type: str) -> str:
    return type.partition("[")[0]


def _dimensions(type: str) -> list[int]:
    match = _TYPE.fullmatch(type)
    return [int(size) for size in match[2].split(",") if size] if match else []


def _differing(old: str, new: str) -> list[int]:
    before, after = _dimensions(old), _dimensions(new)
    if len(before) != len(after):
        return []
    return [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]


def _an(opcode: str) -> str:
    return f"an operation `{opcode}`"
