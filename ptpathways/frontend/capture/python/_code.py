"""What the code of a function mentions, and where it is written."""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import re
import sys
import types
from collections.abc import Collection, Sequence
from typing import Any

_IMPORTING = frozenset({"import_module", "__import__", "modules"})
"""Ways to a module by its name in a text: the last one is that of ``sys``."""
_FORMATTING = frozenset({"format", "format_map", "vformat"})
"""Methods that read attributes by what a text says."""
_TO_OPTIONS = frozenset({"_last_lr", "base_lrs", "defaults", "get_last_lr", "get_lr", "param_groups"})
"""Ways to an optimizer's options."""
_NUMERIC = "abs add eq floordiv ge gt le lt mod mul ne neg pos pow radd rmul rpow rsub rtruediv sub truediv"
_READING_IN_C = {
    *(f"__{name}__" for name in _NUMERIC.split()),
    *("Decimal", "array", "dump", "dumps", "fmean", "pack", "pack_into", "statistics"),
}
"""Functions that read a number without asking it."""
BY_TEXT = frozenset(
    (
        *("attrgetter", "delattr", "get_field", "getattr", "hasattr", "methodcaller", "setattr"),
        *("__delattr__", "__getattribute__", "__setattr__", "getattr_static"),
    )
)
"""Ways to an attribute by a text, which is among the first two arguments."""
BY_ANY_TEXT = frozenset({"__dict__", "dir", "getmembers", "getmembers_static", "vars"})
"""Ways to all attributes."""
_WRITING = frozenset({"delattr", "setattr", "__delattr__", "__getattribute__", "__setattr__", "getattr_static"})
"""Those of them that matter only with a computed text."""
_SHOWING = _FORMATTING | {"ascii", "print", "repr", "str"}
_COPYING = frozenset({"copy", "deepcopy", "dump", "dumps"})
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
CONSTRUCTORS = ("__init__", "__new__", "__post_init__")


def is_operator(name: str, value: Any) -> bool:
    """Whether an attribute of a class is a method that is called without being named, as by ``+`` or ``[]``."""
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not name.startswith("__") or not name.endswith("__") or not isinstance(function, types.FunctionType):
        return False
    return name not in (*CONSTRUCTORS, "__repr__", "__str__", "__del__", "__getstate__", "__setstate__", "__reduce__")


def file_of(function: Any) -> str:
    """Where a function, a bound method, a partial call or an object that can be called is written; empty if unknown."""
    function = _as_written(function)
    if not isinstance(function, types.FunctionType):
        function = inspect.getattr_static(type(function), "__call__", None)
    code = getattr(function, "__code__", None)
    return code.co_filename if code is not None else ""


def _as_written(function: Any) -> Any:
    """The function below partial calls, bound methods and what decorators have made (``torch.no_grad()``)."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif isinstance(function, types.FunctionType) and hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return function


def parts_of(function: types.FunctionType) -> tuple[types.FunctionType, types.CodeType, Any, Any]:
    """With what somebody may give a function another one of: its code, and the values of its arguments by default."""
    return function, function.__code__, function.__defaults__, function.__kwdefaults__


def place_of(function: Any) -> tuple[str, int]:
    """File and line of a step's function, for messages."""
    function = _as_written(function)
    function = getattr(function, "written_as", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("<unknown>", 1)


def running() -> frozenset[types.CodeType]:
    """The code of the functions that have called this one."""
    codes = set()
    frame = inspect.currentframe()
    while frame is not None:
        codes.add(frame.f_code)
        frame = frame.f_back
    return frozenset(codes)


@functools.lru_cache(maxsize=256)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """The global variables that a function, or one inside it, uses. Its attributes' names are not among them:
    a loop's own counter ``step`` is no business of a function that says ``optimizer.step()``."""
    return _arguments_of(code, "LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")


@functools.lru_cache(maxsize=4096)
def sets_globals(code: types.CodeType) -> bool:
    """Whether a function, not one inside it, assigns global variables of its module."""
    return any(one.opname == "STORE_GLOBAL" for one in dis.get_instructions(code))


@functools.lru_cache(maxsize=256)
def imported_names(code: types.CodeType) -> tuple[str, ...]:
    """The modules that a function, or one inside it, imports when it runs; texts, too, where they may be modules'."""
    found = _arguments_of(code, "IMPORT_NAME")
    if not _IMPORTING.isdisjoint(all_names(code)):
        found += tuple(text for text in code.co_consts if isinstance(text, str))
    return found


def imports_by_computed_name(code: types.CodeType) -> bool:
    """Whether a function, or one inside it, looks a module up by a name that no text in its code is."""
    names = set(all_names(code))
    looks = not names.isdisjoint({"import_module", "__import__", "getmodule"})
    if not looks and not ("sys" in names and "modules" in read_names(code)):  # model.modules() is something else
        return False
    return not any(isinstance(text, str) and text in sys.modules for text in code.co_consts)


@functools.lru_cache(maxsize=256)
def computes_global_names(code: types.CodeType) -> bool:
    """Whether a function, or one inside it, uses ``globals()`` otherwise than for a name that it writes out."""
    steps = [one for one in dis.get_instructions(code) if one.opname not in ("PRECALL", "PUSH_NULL")]
    for place, one in enumerate(steps):
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME") and one.argval == "globals":
            then = [next_one.opname for next_one in steps[place + 1 : place + 4]]
            if then[:2] != ["CALL", "LOAD_CONST"] or then[2:] not in (["BINARY_SUBSCR"], ["STORE_SUBSCR"]):
                return True
    return any(computes_global_names(part) for part in code.co_consts if isinstance(part, types.CodeType))


@functools.lru_cache(maxsize=256)
def computes_attribute_names(code: types.CodeType) -> bool:
    """Whether a function, or one inside it, uses an attribute otherwise than by a name that it writes out."""
    if not BY_ANY_TEXT.isdisjoint(code.co_names):
        return True
    steps = list(dis.get_instructions(code))
    for place, one in enumerate(steps):
        if one.argval in BY_TEXT and not any(
            argument.opname == "LOAD_CONST" and isinstance(argument.argval, str)
            for argument in _first_arguments(steps[place + 1 :])
        ):
            return True
    return any(computes_attribute_names(part) for part in code.co_consts if isinstance(part, types.CodeType))


def _first_arguments(steps: Sequence[dis.Instruction]) -> list[dis.Instruction]:
    """What gives the first two arguments of a call whose function was loaded last; nothing if that cannot be told."""
    depth, by_depth = 0, dict[int, dis.Instruction]()
    for one in steps:
        if one.opname in ("PRECALL", "CALL") and depth == one.arg:
            return [by_depth[place] for place in (1, 2) if place in by_depth]
        if depth < 0 or one.opcode in _JUMPS:
            return []
        depth += dis.stack_effect(one.opcode, one.arg if one.opcode >= dis.HAVE_ARGUMENT else None)
        by_depth[depth] = one
    return []


def reads_numbers_in_c(codes: Collection[types.CodeType], options: Collection[str]) -> bool:
    """Whether functions that mention an option of an optimizer also mention what reads numbers behind Python's back: a
    ``%`` of texts, ``struct.pack``, methods of ``float`` by their names."""
    names = {name for code in codes for name in all_names(code)}
    if names.isdisjoint(_TO_OPTIONS) and names.isdisjoint(options):
        return False
    return not names.isdisjoint(_READING_IN_C) or any(map(_formats_by_percent, codes))


@functools.lru_cache(maxsize=256)
def _formats_by_percent(code: types.CodeType) -> bool:
    texts = [text for text in code.co_consts if isinstance(text, str | bytes)]
    if any((b"%" if isinstance(text, bytes) else "%") in text for text in texts):  # type: ignore[operator]
        return True
    return any(_formats_by_percent(part) for part in code.co_consts if isinstance(part, types.CodeType))


def _is_method(one: dis.Instruction) -> bool:
    """Whether it reads a method to call it, which has an instruction of its own before Python 3.12."""
    return sys.version_info >= (3, 12) and one.opname == "LOAD_ATTR" and bool((one.arg or 0) & 1)


def _arguments_of(code: types.CodeType, *operations: str) -> tuple[str, ...]:
    names = {one.argval for one in dis.get_instructions(code) if one.opname in operations and not _is_method(one)}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_arguments_of(constant, *operations))
    return tuple(sorted(names))


@functools.lru_cache(maxsize=256)
def read_names(code: types.CodeType) -> frozenset[str]:
    """The attributes that a function, or one inside it, reads without calling them as methods."""
    return frozenset(_arguments_of(code, "LOAD_ATTR"))


@functools.lru_cache(maxsize=256)
def all_names(code: types.CodeType) -> tuple[str, ...]:
    """The names of global variables and of attributes that a function, or one inside it, mentions; also as texts, as
    ``match`` and ``attrgetter`` do."""
    names = set(code.co_names)
    if not names.isdisjoint(_FORMATTING) and _formats_by_variable(code):
        names.add("getattr")  # the text may name any attribute
    if not names.isdisjoint(_WRITING | {"hasattr"}):
        names -= _WRITING
        if computes_attribute_names(code):
            names.add("getattr")
    if not names.isdisjoint(_SHOWING) or _formats(code):
        names.update(("__str__", "__repr__"))
    if not names.isdisjoint(_COPYING):
        names.update(("__getstate__", "__reduce__", "__reduce_ex__", "__setstate__"))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(all_names(constant))
        else:
            texts = constant if isinstance(constant, tuple) else (constant,)
            parts = (part for text in texts if isinstance(text, str) for part in _parts(text))
            names.update(part for part in parts if part.isidentifier())
    return tuple(sorted(names))


def _formats(code: types.CodeType) -> bool:
    return _formats_by_percent(code) or any(one.opname.startswith("FORMAT_") for one in dis.get_instructions(code))


def _formats_by_variable(code: types.CodeType) -> bool:
    """Whether a function, but none inside it, formats by a text that is not written out there."""
    steps = [*dis.get_instructions(code)]
    return any(
        one.opname in ("LOAD_ATTR", "LOAD_METHOD") and one.argval in _FORMATTING and before.opname != "LOAD_CONST"
        for before, one in itertools.pairwise(steps)
    )


def _parts(text: str) -> list[str]:
    """What a text may name: of ``attrgetter``, ``a.b``; of ``format``, ``{0.a}``."""
    return re.split(r"\W+", text) if "{" in text else text.split(".")
