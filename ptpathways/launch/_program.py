"""Runs the user's program in this process, as ``python`` itself would."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from ptpathways import core

_started = False


def started() -> bool:
    """Whether the program has begun: what is raised from then on is its own."""
    return _started


def check_program(program: str, *, module: bool) -> None:
    """Raises InvalidOption when the script is no file."""
    if not module and not os.path.isfile(program):
        raise core.InvalidOption(f"the script must be a file, got {program!r}, which is none")


def run_program(program: str, arguments: Sequence[str], *, module: bool) -> None:
    """Runs a script, or a module as ``python -m`` does, as ``__main__``. Raises what it raises, SystemExit too."""
    global _started
    _started = True
    sys.argv = [program, *arguments]
    if module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
        runpy.run_path(program, run_name="__main__")


def code_of(error: BaseException | None) -> int:
    """The exit code that Python gives a program which ended like this; None: it came to its end."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        return error.code & 0xFF if isinstance(error.code, int) else 1
    return 130 if isinstance(error, KeyboardInterrupt) else 1
