"""Edit lists: what has to be changed in somebody else's program, said without holding a copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class EditError(ValueError):
    """An edit does not fit the text that it is for: another version of the program, probably."""


@dataclass(frozen=True)
class Edit:
    """New lines after a line that is found by how it begins, or in its place."""

    begins: str
    """How the line begins, without its indentation."""
    lines: tuple[str, ...]
    """Without the found line's indentation, which they get."""
    replaces: bool = False
    nth: int = 1
    """Which of the lines that begin so, from 1; 0: there must be just one."""


def after(begins: str, *lines: str, nth: int = 0) -> Edit:
    """Puts ``lines`` after the line that begins so."""
    return Edit(begins, lines, False, nth)


def instead(begins: str, *lines: str, nth: int = 0) -> Edit:
    """Puts ``lines`` in the place of the line that begins so."""
    return Edit(begins, lines, True, nth)


def apply(text: str, edits: Sequence[Edit]) -> tuple[str, int]:
    """The edited text, and how many of its lines are new or changed, at least one for each edit.

    All edits are looked up in ``text`` as it was given, so their order does not matter.

    Raises:
        EditError: a line is missing, or there are several where one is meant, or two edits mean the same line.
    """
    lines = text.splitlines(keepends=True)
    at: dict[int, Edit] = {}
    for edit in edits:
        index = _find(lines, edit)
        if index in at:
            raise EditError(f"two edits are for line {index + 1}, {lines[index].strip()!r}; make them one")
        at[index] = edit
    out: list[str] = []
    for index, line in enumerate(lines):
        if index not in at:
            out.append(line)
            continue
        edit = at[index]
        indentation = line[: len(line) - len(line.lstrip())]
        if not edit.replaces:
            out.append(line if line.endswith("\n") else line + "\n")
        out += [f"{indentation}{new}\n" for new in edit.lines]
    return "".join(out), sum(max(1, len(edit.lines)) for edit in edits)


def _find(lines: Sequence[str], edit: Edit) -> int:
    found = [index for index, line in enumerate(lines) if line.lstrip().startswith(edit.begins)]
    wanted = max(edit.nth, 1)
    if len(found) < wanted or (edit.nth == 0 and len(found) > 1):
        need = "exactly one line" if edit.nth == 0 else f"at least {wanted} lines"
        where = ", ".join(str(index + 1) for index in found) or "none"
        raise EditError(
            f"{need} should begin with {edit.begins!r}, found: {where}; the edit is for another version of the program"
        )
    return found[wanted - 1]
