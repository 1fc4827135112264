"""Whose a class, a module or a function is: the user's, an installed package's, ours, or Python's own."""

from __future__ import annotations

import builtins
import functools
import site
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any, TypeGuard

from ptpathways.frontend.base import _locator
from ptpathways.frontend.capture.python import _code, _layout

_OF_EXTENSIONS = frozenset({"builtin_function_or_method", "pybind11_type"})
"""Classes of what modules of extensions have."""
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
_MAKING = frozenset({"dataclasses", "types", "typing"})
"""Modules whose functions make classes, which then say that they are of that module."""
_LEADING_OUT = {
    *("_ctypes._Pointer", "_ctypes.CFuncPtr", "ctypes.c_char_p", "ctypes.c_wchar_p", "ctypes.c_void_p"),
    *("_contextvars.Context", "weakref.finalize", "torch.storage.TypedStorage", "torch.storage.UntypedStorage"),
}
"""Classes of Python's library and of torch whose contents nothing compares."""


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


def homes(function: Any) -> list[dict[str, Any]]:
    """The global variables of the user's modules, and of the module of ``function``."""
    home = _code.file_of(function)
    return [vars(module) for name, module in list(sys.modules.items()) if module is not None and is_own(name, home)]


def leads_out(kind: type) -> bool:
    """Whether objects of a class lead to memory, or to values, that nothing else leads to."""
    return any(f"{module_of(base)}.{base.__qualname__}" in _LEADING_OUT for base in kind.__mro__)


def is_users(kind: type, home: str) -> bool:
    """Whether a class is the user's own, or written in the file ``home``, and not Python's or a library's."""
    filename = file_of_module(sys.modules.get(module_of(kind)))
    if is_own_class(kind, home) or filename == home:
        return True
    return filename is not None and not _locator.is_library(filename)


def is_installed(kind: type) -> bool:
    """Whether a class is an installed package's, or ours: what such objects count for themselves is no business of a
    step."""
    return is_ours(kind) or is_library_module(sys.modules.get(module_of(kind)))


def is_library_module(module: types.ModuleType | None) -> TypeGuard[types.ModuleType]:
    """Whether a module is an installed package's."""
    filename = file_of_module(module)
    return filename is not None and filename.startswith(installed())


def extends_layer(kind: type) -> bool:
    """Whether a class of modules that is not an installed package's derives from one that is, beside ``nn.Module``."""
    import torch

    return not is_installed(kind) and any(is_installed(base) for base in kind.__mro__ if base is not torch.nn.Module)


def is_ours(kind: type) -> bool:
    """Whether a class is this package's."""
    return module_of(kind).partition(".")[0] == "ptpathways"


def is_opaque(kind: type) -> bool:
    """Whether objects of a class are an installed package's and written in C."""
    return (
        module_of(kind).partition(".")[0] not in _SEEN_OTHERWISE and is_installed(kind) and _layout.is_made_of_c(kind)
    )


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
    if module_of(kind) in _MAKING and vars(module).get(kind.__name__) is not kind:
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
    return (
        bool(kind.__flags__ & _layout.MADE_BY_PYTHON)
        and type(kind).__name__ != "pybind11_type"
        and not _layout.has_more(kind)
    )


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
