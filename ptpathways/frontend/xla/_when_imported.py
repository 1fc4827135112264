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
    elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, mend))


class _Finder(importlib.abc.MetaPathFinder):
    """Mends the module as soon as it is imported, and is no longer asked then."""

    def __init__(self, name: str, mend: Mend) -> None:
        self.name = name
        self._mend = mend

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                run(module)
                self._mend(module)

            loader.exec_module = exec_module
        return spec
