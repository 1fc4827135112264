"""Mends a module of another library, now or when the program imports it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import importlib.machinery
    import types

Mend = Callable[[Any], None]
"""Takes the module. Nothing may be done twice: it may have been mended before."""


def when_imported(name: str, mend: Mend) -> None:
    """Calls ``mend`` with the module of that name as soon as there is one, and once. Idempotent."""
    if name in sys.modules:
        mend(sys.modules[name])
        return

    def mend_after(spec: importlib.machinery.ModuleSpec) -> None:
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            run(module)
            mend(module)

        loader.exec_module = exec_module

    when_found(name, mend_after)


def when_found(name: str, change: Callable[[importlib.machinery.ModuleSpec], None]) -> None:
    """Has ``change`` change how a module will be loaded that has not been imported. Of one name only the first."""
    if name not in sys.modules and not any(
        isinstance(finder, Finder) and finder.name == name for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, Finder(name, change))


class Finder(importlib.abc.MetaPathFinder):
    """Finds one module, and is no longer asked then."""

    def __init__(self, name: str, change: Callable[[importlib.machinery.ModuleSpec], None]) -> None:
        self.name = name
        self._change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            self._change(spec)
        return spec
