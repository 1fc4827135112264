"""What the code of a function mentions, and whose it is: the user's, an installed package's, or Python's own."""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import itertools
import re
import site
import struct
import sys
import sysconfig
import types
from collections.abc import Collection, Iterator
from typing import Any

from ptpathways.frontend.base import _locator

MADE_BY_PYTHON = 1 << 9
"""Of a class's flags: it was made by a class statement (``Py_TPFLAGS_HEAPTYPE``)."""
_WORD = struct.calcsize("P")
_OF_EXTENSIONS = frozenset({"builtin_function_or_method", "pybind11_type"})
"""Classes of what modules of extensions have."""
_IMPORTING = frozenset({"import_module", "__import__", "modules"})
"""Ways to a module by its name in a text: the last one is that of ``sys``."""
_SEEN_OTHERWISE = frozenset({"numpy", "ptpathways", "torch", "torch_xla", "_XLAC"})
"""Packages whose objects written in C are compared, or whose functions are watched."""
_COUNTING = """
asyncio concurrent gc io _io logging multiprocessing queue selectors socket ssl subprocess tempfile threading
tracemalloc unittest weakref
"""
_COUNTING_ROOTS = frozenset(_COUNTING.split())
"""Of Python's library: whose objects change by themselves. Those of others are options that their methods read."""
_WITHOUT_METHODS = frozenset({"abc", "builtins", "collections.abc", "enum", "types", "typing"})
"""Modules of classes that have no methods that read what a class derived from them has."""
_LEADING_OUT = {
    *("_ctypes._Pointer", "_ctypes.CFuncPtr", "ctypes.c_char_p", "ctypes.c_wchar_p", "ctypes.c_void_p"),
    *("_contextvars.Context", "torch.storage.TypedStorage", "torch.storage.UntypedStorage"),
}
"""Classes of Python's library and of torch whose contents nothing compares."""
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
CONSTRUCTORS = ("__init__", "__new__", "__post_init__")


def uses_what_it_has(kind: type) -> bool:
    """Whether a module is a layer of torch's, which does not look for further parameters and parts at each call. There
    are very many of them."""
    return module_of(kind).startswith("torch.nn.modules.") and not module_of(kind).endswith(".container")


def is_operator(name: str, value: Any) -> bool:
    """Whether an attribute of a class is a method that is called without being named, as by ``+`` or ``[]``."""
    if not name.startswith("__") or not name.endswith("__") or not isinstance(value, types.FunctionType):
        return False
    return name not in (*CONSTRUCTORS, "__repr__", "__str__", "__del__", "__getstate__", "__setstate__", "__reduce__")


def file_of(function: Any) -> str:
    """Where a function, a bound method, a partial call or an object that can be called is written; empty if unknown."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.FunctionType) and hasattr(function, "__wrapped__"):  # by torch.no_grad()
            function = function.__wrapped__
        else:
            break
    if not isinstance(function, types.FunctionType | types.MethodType):
        function = inspect.getattr_static(type(function), "__call__", None)
    code = getattr(function, "__code__", None)
    return code.co_filename if code is not None else ""


def module_of(kind: type) -> str:
    """Of a class; empty for one that ``type()`` has made in a namespace without a name."""
    name = getattr(kind, "__module__", "")
    return name if isinstance(name, str) else ""


def file_of_module(module: object) -> str | None:
    """Where a module is written. One may answer any name with anything (``__getattr__``)."""
    try:
        filename = getattr(module, "__file__", None)
    except Exception:
        return None
    return filename if isinstance(filename, str) else None


def place_of(function: Any) -> tuple[str, int]:
    """File and line of a step's function, for messages."""
    while isinstance(function, functools.partial):
        function = function.func
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


def homes(function: Any) -> list[dict[str, Any]]:
    """The global variables of the user's modules, and of the module of ``function``."""
    home = file_of(function)
    return [vars(module) for name, module in list(sys.modules.items()) if module is not None and is_own(name, home)]


@functools.lru_cache(maxsize=256)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """The global variables that a function, or one inside it, reads. Its attributes' names are not among them: a loop's
    own counter ``step`` is no business of a function that says ``optimizer.step()``."""
    return _arguments_of(code, "LOAD_GLOBAL", "LOAD_NAME")


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
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(all_names(constant))
        else:
            texts = constant if isinstance(constant, tuple) else (constant,)
            parts = (part for text in texts if isinstance(text, str) for part in _parts(text))
            names.update(part for part in parts if part.isidentifier())
    return tuple(sorted(names))


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


def members_in_c(kind: type) -> list[str]:
    """The attributes that objects of a class have elsewhere than in a dictionary: in slots, or in C."""
    members = types.MemberDescriptorType
    return sorted({name for base in kind.__mro__ for name, value in vars(base).items() if isinstance(value, members)})


def leads_out(kind: type) -> bool:
    """Whether objects of a class lead to memory, or to values, that nothing else leads to."""
    return any(f"{module_of(base)}.{base.__qualname__}" in _LEADING_OUT for base in kind.__mro__)


def has_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") or any(map(slots, type(value).__mro__))


def slots(kind: type) -> tuple[str, ...]:
    """The attributes that a class keeps in slots."""
    if "__slots__" not in vars(kind):
        return ()
    # Not by what is written there: a name may be private, the list may have been changed, or gone through.
    return tuple(name for name, value in vars(kind).items() if isinstance(value, types.MemberDescriptorType))


def is_users(kind: type, home: str) -> bool:
    """Whether a class is the user's own, or written in the file ``home``, and not Python's or a library's."""
    filename = file_of_module(sys.modules.get(module_of(kind)))
    if is_own_class(kind, home) or filename == home:
        return True
    return filename is not None and not _locator.is_library(filename)


def is_installed(kind: type) -> bool:
    """Whether a class is an installed package's, or ours: what such objects count for themselves is no business of a
    step."""
    filename = file_of_module(sys.modules.get(module_of(kind)))
    return is_ours(kind) or (filename is not None and filename.startswith(installed()))


def is_ours(kind: type) -> bool:
    """Whether a class is this package's."""
    return module_of(kind).partition(".")[0] == "ptpathways"


def is_opaque(kind: type) -> bool:
    """Whether objects of a class are an installed package's and written in C."""
    return module_of(kind).partition(".")[0] not in _SEEN_OTHERWISE and is_installed(kind) and is_made_of_c(kind)


def is_container_of_c(kind: type) -> bool:
    """Whether they are that, or of a user's class that derives from one, and hold what can be had without a call."""
    if type(kind).__name__ == "pybind11_type" and hasattr(kind, "__setitem__"):  # TorchScript's dictionaries and lists
        return True
    return any(map(is_opaque, kind.__mro__)) and (hasattr(kind, "__getitem__") or hasattr(kind, "__iter__"))


def is_record(kind: type) -> bool:
    """Whether objects of a class of Python's library hold nothing but what their methods read."""
    root = module_of(kind).partition(".")[0]
    return root in sys.stdlib_module_names and root not in _COUNTING_ROOTS


def has_methods_of_python(kind: type) -> bool:
    """Whether a class derives from one of Python's library whose methods read what is in it."""
    return any(is_record(base) and module_of(base) not in _WITHOUT_METHODS for base in kind.__mro__)


def is_made_of_c(kind: type) -> bool:
    """Whether objects of a class have room for more than its attributes, as those of classes written in C."""
    return any(_has_more(base) for base in kind.__mro__)


def _has_more(kind: type) -> bool:
    if kind.__base__ is None:
        return False
    words = len(slots(kind)) + sum(name in vars(kind) for name in ("__dict__", "__weakref__"))
    return kind.__basicsize__ - kind.__base__.__basicsize__ > words * _WORD


def is_own_class(kind: type, home: str) -> bool:
    """Whether a class is written by the user: also one of a text."""
    return is_own(module_of(kind), home) or _is_of_a_text(kind)


def _is_of_a_text(kind: type) -> bool:
    """Whether a class was made of a text: in a namespace that is no module's, or in a module that has no file."""
    if not _is_of_a_statement(kind):
        return False
    module = sys.modules.get(module_of(kind))
    if not isinstance(module, types.ModuleType):  # somebody may put another object there
        return file_of_module(module) is None
    if module is builtins or _is_made_by_hand(module):
        return True
    spaces = (one.__globals__ for one in _functions_of(kind) if one.__globals__.get("__name__") == module_of(kind))
    return next(spaces, vars(module)) is not vars(module)  # there are two modules of this name


def _functions_of(kind: type) -> Iterator[types.FunctionType]:
    """Those that a class has as methods, static ones and properties."""
    for value in vars(kind).values():
        for function in (value, *(getattr(value, part, None) for part in ("__func__", "fget", "func"))):
            if isinstance(function, types.FunctionType):
                yield function


def _is_of_a_statement(kind: type) -> bool:
    """Whether a class statement has made a class, and no extension."""
    return bool(kind.__flags__ & MADE_BY_PYTHON) and type(kind).__name__ != "pybind11_type" and not _has_more(kind)


def _is_made_by_hand(module: types.ModuleType) -> bool:
    """Whether a program has made a module: it has no file, and neither the interpreter nor an extension has it."""
    if file_of_module(module) is not None or vars(module).get("__spec__") is not None:
        return False
    values = [value for value in vars(module).values() if type(value).__name__ in _OF_EXTENSIONS]
    return not any(getattr(value, "__module__", None) == vars(module).get("__name__") for value in values)


def is_own(module: str, home: str, known: types.ModuleType | None = None) -> bool:
    """Whether a module is written by the user, and not installed. ``known``: the module, if it may be in no list."""
    found = known or sys.modules.get(module)
    filename = file_of_module(found)
    if module == "__main__" or filename is not None:
        return filename is None or is_own_file(filename, home)
    return isinstance(found, types.ModuleType) and _is_made_by_hand(found)


def is_made_by_exec(function: types.FunctionType) -> bool:
    """Whether a function was made of a text, in a namespace that is no module's, or by the user in one of his."""
    filename, space = function.__code__.co_filename, function.__globals__
    if filename.startswith("<frozen "):
        return False
    if "__file__" not in space:
        return True
    if not filename.startswith("<"):
        return False
    module = sys.modules.get(space.get("__name__", ""))
    if module is None or vars(module) is not space:
        return True
    by_dataclass = function.__code__.co_qualname.startswith("__create_fn__.")
    return filename == "<string>" and not by_dataclass and is_own(module.__name__, "")


def is_own_file(filename: str, home: str) -> bool:
    return filename == home or not (filename.startswith(installed()) or _locator.is_library(filename))


@functools.cache
def installed() -> tuple[str, ...]:
    folders = {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], *site.getsitepackages()}
    return tuple(folders)
