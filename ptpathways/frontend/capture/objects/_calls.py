"""What a recorded call runs that the walk has not looked into.

The walk finds what a step can reach by names. This is the check that it has found all: each function of the user's that
runs must be one that was walked; an object of Python's own library whose methods run must be one that is compared, and
a function of it one that makes the same of the same; a function of an installed package must be given tensors or what
is compared, or its answer must be something that is looked into. Else a replay could leave out, or repeat, what nobody
compares, and the step is not replayed.

Python calls a profiler at each call; only recordings, which are few, have it.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ptpathways import native
from ptpathways.frontend.base import _locator
from ptpathways.frontend.capture.objects._library_variables import Seen
from ptpathways.frontend.capture.python import _code, _whose
from ptpathways.frontend.capture.python._contents import is_setting
from ptpathways.frontend.capture.python._places import elements, items

if TYPE_CHECKING:
    from ptpathways.frontend.capture.objects._reachable import Surroundings

_FRESH = """
_collections_abc _hashlib _io _weakrefset abc array ast bisect builtins cmath codecs collections contextlib copy
copyreg csv dataclasses datetime decimal dis encodings enum fractions functools hashlib heapq importlib inspect io
itertools json keyword linecache math numbers opcode operator pathlib pickle pprint random re reprlib
statistics string struct textwrap token tokenize traceback types typing uuid warnings weakref
"""
_FRESH_MODULES = frozenset(_FRESH.split())
"""Of Python's library: whose objects do not change, or that a step makes for itself, and whose functions make the same
of the same; the walk compares the objects that it finds, and ``Draws`` the generator of ``random``."""
_QUIET_ROOTS = _FRESH_MODULES | {"os", ""}
_PURE = """
_abc _ast _blake2 _bisect _bz2 _codecs _collections _contextvars _csv _ctypes _datetime _functools _heapq _imp _json
_lzma _md5 _operator _pickle _random _sha1 _sha256 _sha2 _sha3 _sha512 _sre _statistics _string _struct _tokenize
_typing _warnings _weakref binascii marshal unicodedata zlib
"""
_PURE_MODULES = _FRESH_MODULES - {"_io", "io", "decimal"} | frozenset(_PURE.split())
"""Of Python's library, and written in C: whose functions make the same of the same, or of what is compared."""
_QUIET = {
    "_io": {"BytesIO", "StringIO", "text_encoding"},
    "_thread": {"RLock", "allocate_lock", "get_ident", "get_native_id"},
    "gc": {"collect", "get_referents"},
    "posix": {"cpu_count", "fspath", "getpid", "strerror"},
    "sys": {
        *("_getframe", "audit", "exc_info", "exception", "getdefaultencoding", "getfilesystemencoding", "getprofile"),
        *("getsizeof", "gettrace", "intern", "is_finalizing", "setprofile", "settrace"),
    },
    "logging": {"getLogger"},
    "threading": {"current_thread", "get_ident", "get_native_id", "main_thread"},
}
"""Functions of other modules that do, and those that do nothing that a step could tell."""
_SETTING = {
    "_csv": frozenset({"field_size_limit"}),
    "copyreg": frozenset({"add_extension", "constructor", "pickle", "remove_extension"}),
    "logging": frozenset(
        {
            *("addFilter", "addHandler", "addLevelName", "basicConfig", "captureWarnings", "disable", "removeFilter"),
            *("removeHandler", "setFormatter", "setLevel", "setLogRecordFactory", "setLoggerClass", "set_name"),
        }
    ),
    "warnings": frozenset({"filterwarnings", "resetwarnings", "simplefilter"}),
}
"""Functions of Python's library that change what other functions of it do, for the whole process."""
_CLOCKS = frozenset({"now", "today", "utcnow"})
"""Methods of classes of ``datetime``."""
_ASKING = frozenset({"isEnabledFor", "getEffectiveLevel", "hasHandlers"})
"""Methods of loggers whose answer a step may compute with."""
_SWITCHES_OF_NUMPY = frozenset(
    {
        *("get_printoptions", "getbufsize", "geterr", "geterrcall"),
        *("set_printoptions", "setbufsize", "seterr", "seterrcall", "set_string_function"),
    }
)
_TAKING = frozenset({"acquire", "locked"})
"""Methods of locks that say what others do."""
_SAYS = {"print": "prints", "warn": "warns"}
_NUMPY = os.path.dirname(np.__file__) + os.sep


class Calls:
    """Context manager around the function of a step. ``unknown``: why it cannot be replayed, empty if it can."""

    def __init__(self, surroundings: Surroundings, function: Callable[..., Any]) -> None:
        self.unknown = ""
        self.says = ""
        """What it does that replays do not, such as to print, and where; empty if it does nothing of the kind."""
        self.used: dict[type, set[str]] = {}
        """What functions of installed packages mention that were given an object of such a package, by its class."""
        self.variables = Seen()
        self._home = _code.file_of(function)
        self._compared = surroundings.compared
        self._codes: set[types.CodeType] = set()
        for code in surroundings.codes:
            self._add(code)
        self._files: dict[str, str] = {}  # whose a file is
        self._before: Any = None  # a profile function that is written in Python and hears of everything, too
        self._held: native.HeldProfiler | None = None
        self._answers: dict[types.FrameType, str] = {}  # functions of installed packages that are running
        self._setting: dict[types.FrameType, str] = {}  # those of libraries that assign global variables
        self._followed: dict[type, bool] = {}  # whether it is noted what is used of objects of a class

    def _add(self, code: types.CodeType) -> None:
        self._codes.add(code)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add(constant)

    def __enter__(self) -> Calls:
        before = sys.getprofile()
        self._before = before if callable(before) else None
        self._held = native.hold_profiler()
        sys.setprofile(self._look)
        return self

    def __exit__(self, *unused: object) -> None:
        if self._held is not None:
            native.put_back_profiler(self._held)
        self._answers.clear()
        self._setting.clear()

    def _whose(self, filename: str) -> str:
        """``own``, ``python`` (its standard library), ``torch`` (also torch_xla and this package), ``numpy``, or
        ``other``."""
        known = self._files.get(filename)
        if known is None:
            known = self._files[filename] = self._look_up(filename)
        return known

    def _whose_frame(self, frame: types.FrameType) -> str:
        """The same of what runs there. Functions that were made of a text, as a dataclass makes its methods, are their
        module's, as far as that is a library: in a program that is a text, too, both would have one file name."""
        filename = frame.f_code.co_filename
        if filename.startswith("<"):
            module = sys.modules.get(frame.f_globals.get("__name__", ""))
            whose = self._whose(_whose.file_of_module(module) or filename)
            if whose != "own":
                return whose
        return self._whose(filename)

    def _look_up(self, filename: str) -> str:
        if _whose.is_own_file(filename, self._home):
            return "own"
        if _locator.is_standard(filename):
            return "python"
        if _locator.is_library(filename):
            return "torch"
        return "numpy" if filename.startswith(_NUMPY) else "other"

    def _asked_by_user(self, frame: types.FrameType | None) -> bool:
        """Whether the user's code runs there, or Python's library on its behalf."""
        while frame is not None:
            whose = self._whose_frame(frame)
            if whose != "python":
                return whose == "own"
            if frame.f_globals.get("__name__") == "logging":  # which may look at the clock
                return False
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
        elif event == "return" and (self._answers or self._setting):
            question, setter = self._answers.pop(frame, None), self._setting.pop(frame, None)
            if setter is not None and given is None:  # such as torch.hub.set_dir
                self._refuse_setting(f"{frame.f_globals.get('__name__', '')}.{setter}", frame)
            elif question is not None:
                self._look_at_answer(question, given, frame)

    def _look_at_call(self, frame: types.FrameType) -> None:
        code = frame.f_code
        whose = self._whose_frame(frame)
        if whose == "own":
            if code not in self._codes and code.co_name != "<module>":
                self._refuse(f"runs {code.co_qualname}(), which is not found among what the step refers to", frame)
            return
        if _code.sets_globals(code) and self._is_own(frame.f_back):
            self._setting[frame] = code.co_qualname
        if whose in ("torch", "other"):
            self.variables.take(frame.f_globals, code)
            self._note_use(frame)
        if code.co_name == "set_printoptions" and whose == "torch":
            self._refuse("calls torch.set_printoptions()", frame)
        if whose == "torch" or not self._asked_by_user(frame.f_back):
            return
        if whose == "python":
            self._look_at_python(frame)
        elif whose == "numpy":
            if code.co_name in _SWITCHES_OF_NUMPY:
                self._refuse(f"calls numpy.{code.co_name}()", frame)
        elif not code.co_flags & inspect.CO_GENERATOR and not self._is_about_tensors(frame):
            self._answers[frame] = code.co_qualname

    def _note_use(self, frame: types.FrameType) -> None:
        """What a function of an installed package may use of those of its arguments that the walk has not compared."""
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount
        values = frame.f_locals if count else {}
        for kind in {type(values[name]) for name in code.co_varnames[:count] if name in values}:
            if self._is_followed(kind):
                self.used.setdefault(kind, set()).update(_code.all_names(code))

    def _is_followed(self, kind: type) -> bool:
        """Whether objects of a class are an installed package's, and not looked into otherwise; or layers of a class of
        the user's whose methods such a package may call."""
        known = self._followed.get(kind)
        if known is None:
            import torch

            others = (torch.Tensor, torch.optim.Optimizer, type, types.FunctionType)
            if issubclass(kind, torch.nn.Module):
                known = _whose.extends_layer(kind)
            else:
                installed = any(_whose.is_installed(base) for base in kind.__mro__)  # also the base of a user's class
                known = installed and not issubclass(kind, others) and not _whose.is_ours(kind)
            self._followed[kind] = known
        return known

    def _look_at_python(self, frame: types.FrameType) -> None:
        """A function of Python's own library that the user's code calls, or that is called on its behalf."""
        code = frame.f_code
        module = str(frame.f_globals.get("__name__", ""))
        root = module.partition(".")[0]
        if code.co_name in _SETTING.get(root, ()) and self._stays(root, frame.f_back):
            self._refuse_setting(f"{module}.{code.co_qualname}", frame)
            return
        if code.co_argcount and code.co_varnames[0] == "self":
            receiver = frame.f_locals.get("self")
            if _whose.module_of(type(receiver)) == "logging":
                if code.co_name not in _ASKING:
                    self._say("logs", frame)
                elif id(receiver) not in self._compared and self._is_own(frame.f_back):
                    self._refuse(f"uses {_name(receiver)} ({code.co_name}())", frame)
            elif self._is_unknown(receiver):
                self._refuse(f"uses {_name(receiver)} ({code.co_name}())", frame)
        elif root == "logging" and code.co_name not in _QUIET["logging"]:
            self._say("logs", frame)
        elif not (root in _QUIET_ROOTS or code.co_name in _QUIET.get(root, ()) or code.co_name.startswith("<")):
            self._refuse(f"calls {module}.{code.co_qualname}()", frame)

    def _stays(self, root: str, caller: types.FrameType | None) -> bool:
        """Whether what the user's code sets there stays set for the whole process: not within ``catch_warnings``."""
        if caller is None or not self._is_own(caller):
            return False
        return root != "warnings" or "catch_warnings" not in caller.f_code.co_names

    def _refuse_setting(self, name: str, frame: types.FrameType) -> None:
        self.unknown = f"it calls {name}() {self._line(frame)}, which a replay would not; call it outside"

    def _look_at_builtin(self, frame: types.FrameType, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")
        if owner is None:
            return
        if isinstance(owner, type):
            asks = name == "__subclasses__" or (name in _CLOCKS and owner.__module__ == "datetime")
            if asks and self._asked_by_user(frame):
                self._refuse(f"calls {owner.__qualname__}.{name}(), whose answer a replay would repeat", frame)
        elif isinstance(owner, types.ModuleType):
            module = owner.__name__
            if name in _SETTING.get(module, ()) and self._stays(module, frame):
                self._refuse_setting(f"{module.strip('_')}.{name}", frame)
            elif name in _SAYS and self._asked_by_user(frame):
                self._say(_SAYS[name], frame)
            elif (
                module.partition(".")[0] in sys.stdlib_module_names
                and module not in _PURE_MODULES
                and name not in _QUIET.get(module, ())
                and self._asked_by_user(frame)
            ):
                way = self._called_by_user(frame)
                self._refuse(f"calls {way}{module.strip('_')}.{name}(), whose answer a replay would repeat", frame)
        elif owner is sys.stdout or owner is sys.stderr:
            self._say("prints", frame)
        elif _whose.module_of(type(owner)) == "_thread":
            if name in _TAKING and self._is_own(frame):
                self._refuse(f"uses a lock ({name}())", frame)
        elif name == "seed" and _whose.module_of(type(owner)) == "torch._C":  # a Generator's: it draws one
            self._refuse("calls seed() of a random generator, whose answer a replay would repeat", frame)
        elif self._is_unknown(owner) and self._asked_by_user(frame):
            self._refuse(f"uses {_name(owner)} ({name}())", frame)

    def _look_at_answer(self, question: str, answer: Any, frame: types.FrameType) -> None:
        """What an installed package has told the user's code, of nothing that is compared."""
        if answer is None:
            self._say(f"calls {question}()", frame)
        elif is_setting(answer) or isinstance(answer, np.ndarray | list | dict | set):
            self._refuse(f"calls {question}(), whose answer a replay would repeat", frame)

    def _is_own(self, frame: types.FrameType | None) -> bool:
        return frame is not None and self._whose_frame(frame) == "own"

    def _is_about_tensors(self, frame: types.FrameType) -> bool:
        """Whether a function is given tensors or modules, or something that is compared."""
        import torch

        kinds = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
        for value in frame.f_locals.values():
            if isinstance(value, kinds) or id(value) in self._compared:
                return True
            held: Iterable[Any] = elements(value) if isinstance(value, list | tuple) else ()
            if isinstance(value, dict):
                held = (inner for _, inner in items(value))
            if any(isinstance(inner, kinds) for inner in held):
                return True
        return False

    def _is_unknown(self, value: Any) -> bool:
        kind = type(value)
        if id(value) in self._compared or issubclass(kind, BaseException | type):
            return False
        package = _whose.module_of(kind).partition(".")[0]
        if package in _FRESH_MODULES or package == "_thread":
            return False
        if package in sys.stdlib_module_names or package not in sys.modules:
            return True
        return _whose.is_opaque(kind)

    def _called_by_user(self, frame: types.FrameType) -> str:
        """The function of Python's library that the user's code has called, if another one is running there."""
        if self._is_own(frame):
            return ""
        while frame.f_back is not None and not self._is_own(frame.f_back):
            frame = frame.f_back
        return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}(), and that "

    def _line(self, frame: types.FrameType | None) -> str:
        """The user's line."""
        while frame is not None and not self._is_own(frame):
            frame = frame.f_back
        return f"at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "in a library"

    def _say(self, what: str, frame: types.FrameType) -> None:
        self.says = self.says or f"{what} {self._line(frame)}"

    def _refuse(self, what: str, frame: types.FrameType) -> None:
        if _in_warning(frame):
            return
        self.unknown = f"it {what} {self._line(frame)}, and what that does or finds is not compared"


def _name(value: Any) -> str:
    return f"a {_whose.module_of(type(value))}.{type(value).__qualname__}"


def _in_warning(frame: types.FrameType | None) -> bool:
    """Whether a warning is being shown there, by a function of the user's perhaps: ours about this call, for one."""
    while frame is not None:
        if frame.f_code.co_filename == warnings.__file__:
            return True
        frame = frame.f_back
    return False
