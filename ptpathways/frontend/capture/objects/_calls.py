"""What a recorded call runs that the walk has not looked into.

The walk finds what a step can reach by names. This is the check that it has found all: each function of the user's that
runs must be one that was walked, and an object of Python's own library whose methods run must be one that is compared.
Else a replay could leave out, or repeat, what nobody compares, and the step is not replayed.

Python calls a profiler at each call; only recordings, which are few, have it.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.base import _locator
from ptpathways.frontend.capture.objects import _code

if TYPE_CHECKING:
    from ptpathways.frontend.capture.objects._reachable import Surroundings

_FRESH = """
_collections_abc _hashlib _io _thread _weakrefset abc array ast builtins collections contextlib copy
copyreg dataclasses datetime decimal enum fractions functools hashlib inspect io itertools json
keyword math numbers operator pathlib pickle pprint random re reprlib statistics string struct
textwrap traceback types typing uuid warnings weakref
"""
_FRESH_MODULES = frozenset(_FRESH.split())
"""Of Python's library: whose objects do not change, or that a step makes for itself; the walk compares those that it
finds, and ``Draws`` the generator of ``random``."""
_CLOCK = frozenset({"time", "posix", "select", "_socket"})
"""Modules whose functions answer otherwise at each call, or do something outside of the process."""
_QUIET = frozenset({"fspath", "getpid", "strerror", "cpu_count"})
"""Functions of these that do not."""
_SAYS = frozenset({"print"})


class Calls:
    """Context manager around the function of a step. ``unknown``: why it cannot be replayed, empty if it can."""

    def __init__(self, surroundings: Surroundings, function: Callable[..., Any]) -> None:
        self.unknown = ""
        self.says = ""
        """Where it prints or logs; empty if it does not."""
        self._home = _code.file_of(function)
        self._compared = surroundings.compared
        self._codes: set[types.CodeType] = set()
        for code in surroundings.codes:
            self._add(code)
        self._files: dict[str, str] = {}  # whose a file is
        self._before: Any = None

    def _add(self, code: types.CodeType) -> None:
        self._codes.add(code)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add(constant)

    def __enter__(self) -> Calls:
        self._before = sys.getprofile()
        sys.setprofile(self._look)
        return self

    def __exit__(self, *unused: object) -> None:
        sys.setprofile(self._before)

    def _whose(self, filename: str) -> str:
        """``own``, ``python`` (its standard library) or ``other``."""
        known = self._files.get(filename)
        if known is None:
            known = "own" if _code.is_own_file(filename, self._home) else "other"
            if known == "other" and _locator.is_standard(filename):
                known = "python"
            self._files[filename] = known
        return known

    def _asked_by_user(self, frame: types.FrameType | None) -> bool:
        """Whether the user's code runs there, or Python's library on its behalf."""
        while frame is not None:
            whose = self._whose(frame.f_code.co_filename)
            if whose != "python":
                return whose == "own"
            frame = frame.f_back
        return False

    def _look(self, frame: types.FrameType, event: str, given: Any) -> None:
        if self._before is not None:
            self._before(frame, event, given)
        if self.unknown:
            return
        if event == "call":
            self._look_at_call(frame)
        elif event == "c_call":
            self._look_at_builtin(frame, given)

    def _look_at_call(self, frame: types.FrameType) -> None:
        code = frame.f_code
        whose = self._whose(code.co_filename)
        if whose == "own":
            if code not in self._codes and code.co_name != "<module>":
                self._refuse(f"runs {code.co_qualname}(), which is not found among what the step refers to", frame)
        elif (
            whose == "python"
            and code.co_argcount
            and code.co_varnames[0] == "self"
            and self._asked_by_user(frame.f_back)
        ):
            receiver = frame.f_locals.get("self")
            if self._is_unknown(receiver):
                if type(receiver).__module__ == "logging":
                    self.says = self.says or _line(frame)
                    return
                self._refuse(f"uses {_name(receiver)} ({code.co_name}())", frame)

    def _look_at_builtin(self, frame: types.FrameType, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")
        if owner is None or isinstance(owner, type):
            return
        if isinstance(owner, types.ModuleType):
            if name in _SAYS and self._asked_by_user(frame):
                self.says = self.says or _line(frame)
            elif owner.__name__ in _CLOCK and name not in _QUIET and self._asked_by_user(frame):
                self._refuse(f"calls {owner.__name__.strip('_')}.{name}(), whose answer a replay would repeat", frame)
        elif owner is sys.stdout or owner is sys.stderr:
            self.says = self.says or _line(frame)
        elif self._is_unknown(owner) and self._asked_by_user(frame):
            self._refuse(f"uses {_name(owner)} ({name}())", frame)

    def _is_unknown(self, value: Any) -> bool:
        kind = type(value)
        if id(value) in self._compared or issubclass(kind, BaseException | type):
            return False
        module = kind.__module__
        if module in _FRESH_MODULES:
            return False
        package = module.partition(".")[0]
        return package in sys.stdlib_module_names or package not in sys.modules

    def _refuse(self, what: str, frame: types.FrameType) -> None:
        if _in_warning(frame):
            return
        self.unknown = f"it {what} {_line(frame)}, and what that does or finds is not compared"


def _name(value: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _in_warning(frame: types.FrameType | None) -> bool:
    """Whether a warning is being shown there, by a function of the user's perhaps: ours about this call, for one."""
    while frame is not None:
        if frame.f_code.co_filename == warnings.__file__:
            return True
        frame = frame.f_back
    return False


def _line(frame: types.FrameType | None) -> str:
    while frame is not None and _locator.is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return f"at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "in a library"
