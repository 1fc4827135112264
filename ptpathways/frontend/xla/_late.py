"""A module of torch_xla that few programs use is executed when one of its names is first asked for.

``import torch_xla`` imports its bridge to dynamo, and with it all of inductor: a third of what it takes, in every
process, for programs that call ``torch.compile(backend="openxla")``.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
import types
from typing import Any

from ptpathways.frontend.xla._when_imported import Mend, when_found

_loading = threading.RLock()


def execute_when_used(name: str) -> None:
    """The module is to be executed when an attribute of it is read, if it has not been imported. Idempotent."""

    def delay(spec: importlib.machinery.ModuleSpec) -> None:
        assert spec.loader is not None
        spec.loader = _Loader(spec.loader)

    when_found(name, delay)


def when_executed(name: str, mend: Mend) -> None:
    """Calls ``mend`` with a module that has been imported, as soon as it is executed. Of several only the last."""
    module = sys.modules[name]
    with _loading:
        if isinstance(module, _Late):
            vars(module)["__mend__"] = mend
            return
    mend(module)


class _Late(types.ModuleType):
    """A module that is not executed yet. Its names of two underscores can be read, as ``inspect`` and others do."""

    def __getattr__(self, name: str) -> Any:
        asks_for_all = name == "__all__"  # of ``from module import *``
        if name.startswith("__") and not asks_for_all:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _loading:
            # Another thread may have done it meanwhile; and while it is done it may ask for names it does not have yet.
            if isinstance(self, _Late) and "__executing__" not in vars(self):
                self._execute()
        return types.ModuleType.__getattribute__(self, name)

    def _execute(self) -> None:
        names = vars(self)
        names["__executing__"] = True
        try:
            loader = self.__spec__.loader if self.__spec__ is not None else None
            assert isinstance(loader, _Loader)
            loader.really.exec_module(self)
        finally:
            del names["__executing__"]
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        if mend := names.pop("__mend__", None):
            mend(self)


class _Loader(importlib.abc.Loader):
    def __init__(self, really: importlib.abc.Loader) -> None:
        self.really = really

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.really.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__class__ = _Late

    def __getattr__(self, name: str) -> Any:  # of linecache, inspect and others: the source
        return getattr(self.really, name)
