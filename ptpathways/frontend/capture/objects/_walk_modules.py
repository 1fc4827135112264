"""What the walk looks at in modules of Python: the user's global variables, and what libraries have under names that
the code mentions."""

from __future__ import annotations

import builtins
import decimal
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ptpathways.frontend.capture.objects._reachable import Link, Watched
from ptpathways.frontend.capture.python import _code, _whose
from ptpathways.frontend.capture.python._contents import CONTEXTS, Contents, Same, contents_of, is_setting, member_key
from ptpathways.frontend.capture.python._places import AttributeView, elements, size

if TYPE_CHECKING:
    from ptpathways.frontend.capture.objects._walk import Walker

DEPTH_MAX = 64
"""References from the step's function to what it computes with."""
ITEMS_MAX = 10_000
"""Of a container, that are looked into."""
SHALLOW = 1_000
"""As a depth: what is not looked into any further."""
_BY_DEFAULT = frozenset({"getattr", "hasattr"})
"""Ways to ask for what may be absent."""
_PARTS_MAX = 3
"""How far down in a library's modules: ``torch.nn.utils.clip_grad_norm_``."""
_GLOBALS_BY_TEXT = frozenset({"globals", "eval", "exec", "vars"})
"""Ways to a global variable that do not name it in the code."""

_CODE_IN_TEXTS = frozenset({"eval", "exec"})


class Modules:
    """Those that ``walker`` meets."""

    def __init__(self, walker: Walker) -> None:
        self._walker: Walker = weakref.proxy(walker)  # no cycle, as for the objects of torch
        self._linked: set[tuple[int, str, bool]] = set()
        self._own: dict[int, tuple[str, types.ModuleType]] = {}  # the user's that were met, by id
        self._computes = False  # whether code computes names of attributes, which may be those of a module

    def of_function(self, prefix: str, function: types.FunctionType, depth: int) -> None:
        """What a function of the user's names in its own module, and in those that it imports when it runs."""
        code = function.__code__
        names = _code.all_names(code)
        loaded = _code.global_names(code)
        variables = loaded if _GLOBALS_BY_TEXT.isdisjoint(names) else names
        texts = sorted(_CODE_IN_TEXTS.intersection(loaded))
        if texts and not self._walker.found.unknown:
            self._walker.found.unknown = f"it calls {texts[0]}(), and what the text reads is not compared"
        elif "__globals__" in names and not self._walker.found.unknown:
            self._walker.found.unknown = "it reads the __globals__ of a function, and what is there is not compared"
        elif _code.imports_by_computed_name(code) and not self._walker.found.unknown:
            self._walker.found.unknown = (
                "it looks a module up by a name that it computes, and what is there is not compared; write the name out"
            )
        elif "globals" in loaded and _code.computes_global_names(code) and not self._walker.found.unknown:
            self._walker.found.unknown = (
                "it looks a global variable up by a name that it computes, and what is there is not compared; write "
                "the name out"
            )
        self._computes = self._computes or _code.computes_attribute_names(code)
        self._absent(function.__globals__, variables, depth)
        self._variables(prefix, function.__globals__, variables, names, depth)
        for imported in _code.imported_names(code):
            module = sys.modules.get(imported)
            if module is None:
                self._walker.found.absent.append((sys.modules, imported))
                self._walker.found.kinds[f"the module {imported}"] = "not imported"
            else:
                self._walker.found.links.append(Link(sys.modules, imported, module, f"{prefix}{imported}"))
                self._module(f"{prefix}{imported}.", imported, module, names, depth)

    def library(
        self, prefix: str, space: dict[str, Any], names: tuple[str, ...], depth: int = 0, quiet: bool = False
    ) -> None:
        """What a library's module, and modules in it, have under names that the code mentions: somebody may put
        something else there.

        ``quiet``: no code mentions them; classes among them, and attributes that may come, are left out.
        """
        for name in names:
            value = space.get(name)
            if isinstance(value, types.ModuleType):
                if depth < _PARTS_MAX and value.__name__ == f"{space.get('__name__')}.{name}":
                    self.library(f"{prefix}{name}.", vars(value), names, depth + 1)
                    self._computed(f"{prefix}{name}.", value, names)
            elif isinstance(value, type):
                if not quiet and (id(space), name, quiet) not in self._linked:
                    self._linked.add((id(space), name, quiet))
                    self._walker.found.links.append(Link(space, name, value, prefix + name))
                    self._walker.mentioned.of_class(prefix + name, value, depth)
            elif callable(value):
                if (id(space), name, quiet) not in self._linked:
                    self._linked.add((id(space), name, quiet))
                    self._walker.found.links.append(Link(space, name, value, prefix + name))
                    self._walker.kind(prefix + name, Same(value))
                    self._walker.library_function(prefix + name, value)
                    if self._walker.mentioned.is_given_to_packages(type(value)):  # such as one that has registered some
                        self._walker.mentioned.of_library(prefix + name, value, depth)
                    elif not quiet or getattr(value, "__dict__", None):  # somebody's own
                        self._walker.objects.mentioned_attributes(prefix + name, value, depth)
            elif name in space and is_setting(value):
                self._walker.link(prefix + name, space, name, value, SHALLOW)
            elif isinstance(value, list | dict | set):  # sys.argv
                self._walker.found.links.append(Link(space, name, value, prefix + name))
                self.shallow(prefix + name, value)
            elif name in space and isinstance(getattr(value, "__dict__", None), dict):
                self._walker.found.links.append(Link(space, name, value, prefix + name))
                self._walker.kind(prefix + name, Same(value))
                self._walker.mentioned.of_library(prefix + name, value, depth)
            elif name not in space and not _BY_DEFAULT.isdisjoint(self._walker.mentioned.names):
                self._walker.found.absent.append((space, name))

    def _module(self, prefix: str, name: str, module: types.ModuleType, names: tuple[str, ...], depth: int) -> None:
        if _whose.is_own(name, self._walker.home, module):
            self._own.setdefault(id(module), (prefix, module))
            self._variables(prefix, vars(module), (*names, "__getattr__"), names, depth + 1)
        else:
            if module is decimal:
                self.context(decimal.getcontext)
            if module is np:
                self.of_numpy()
            self.library(prefix, vars(module), names)
            self._computed(prefix, module, names)

    def _computed(self, prefix: str, module: types.ModuleType, names: tuple[str, ...]) -> None:
        """What a module gives without having it in its dictionary, as torch's modules of settings do."""
        for name in names if type(module) is not types.ModuleType else ():
            if name not in vars(module) and is_setting(value := getattr(module, name, None)) and value is not None:
                self._walker.link(prefix + name, AttributeView(module), name, value, SHALLOW)

    def of_object(self, name: str, module: types.ModuleType, names: tuple[str, ...]) -> None:
        """A module that is a value, as of a closure's variable, or of an attribute."""
        self._module(f"{name}.", module.__name__, module, names, 0)

    def by_computed_names(self) -> None:
        """What the user's modules have, if code computes names of attributes. Functions among it are not looked into:
        a step that runs one is told so."""
        done: set[int] = set()
        while self._computes and len(done) < len(self._own):
            for key, (prefix, module) in list(self._own.items()):
                if key in done:
                    continue
                done.add(key)
                space = vars(module)
                self._walker.found.sizes.append(Watched(space, len(space), prefix.removesuffix(".")))
                for name, value in list(space.items()):
                    if isinstance(value, types.FunctionType | types.ModuleType):
                        self._walker.found.links.append(Link(space, name, value, prefix + name))
                        self._walker.kind(prefix + name, Same(value))
                    elif not name.startswith("__"):
                        self._walker.link(prefix + name, space, name, value, 0)

    def _absent(self, space: dict[str, Any], names: tuple[str, ...], depth: int) -> None:
        """Variables that are not there must not come; those that Python has for all modules stay what they are."""
        for name in names:
            if name in space:
                continue
            self._walker.found.absent.append((space, name))
            where = space.get("__builtins__", builtins)  # which a text that is executed may have others of
            known = where if isinstance(where, dict) else vars(where)
            if name in known:
                self._walker.link(f"builtins.{name}", known, name, known[name], depth)

    def _variables(
        self, prefix: str, space: dict[str, Any], names: tuple[str, ...], attributes: tuple[str, ...], depth: int
    ) -> None:
        """The variables of a module that code names, and ``attributes`` of the modules among them."""
        for name in names if depth <= DEPTH_MAX else ():
            if name not in space:
                continue
            value = space[name]
            self._walker.link(prefix + name, space, name, value, depth)
            if not issubclass(type(value), types.ModuleType):
                continue
            if vars(value) is space:
                self._own.setdefault(id(value), (f"{prefix}{name}.", value))
            else:
                self._module(f"{prefix}{name}.", value.__name__, value, attributes, depth)

    def shallow(self, name: str, value: list[Any] | dict[Any, Any] | set[Any]) -> None:
        """What is in a container of a library, but not what is in that."""
        if id(value) in self._walker.seen or size(value) > ITEMS_MAX or value is sys.modules:
            self._walker.kind(name, Same(value))
            return
        self._walker.seen[id(value)] = value
        self._walker.call(value, name)
        if isinstance(value, dict):
            self._walker.mapping(name, value, SHALLOW)
            return
        if isinstance(value, list):
            members = tuple(elements(value))
            self._walker.found.sequences.append(Watched(value, members, name))
            contents: Any = tuple(map(member_key, members))
        else:
            contents = contents_of(value)
            self._walker.found.contents.append(Watched(value, contents, name))
        self._walker.kind(name, (type(value), Contents(contents)))

    def context(self, function: Callable[[], Any]) -> None:
        """What a library computes with beside the arguments, which ``function`` of it tells."""
        name, ask = CONTEXTS[function]
        if name not in self._walker.found.kinds:
            self._walker.found.kinds[name] = Contents(answer := ask())
            self._walker.found.contexts.append(Watched(ask, answer, name))

    def of_numpy(self) -> None:
        self.context(np.get_printoptions)
        self.context(np.geterr)
