"""Finding libzmq, loading the extension, and checking that both sides are of one build."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from ptpathways import core

ZMQ_VARIABLE = "PTPATHWAYS_LIBZMQ"
"""Environment variable naming the libzmq to use instead of pyzmq's."""

PROTOCOL_VERSION = 13
"""The wire protocol that this Python side was written for (csrc/wire/message.h)."""

_SYSTEM_ZMQ = "libzmq.so.5"


class NativeUnavailable(ImportError):
    """The C++ extension, or the libzmq it needs, cannot be loaded. The message says what to do."""


def find_zmq() -> str:
    """Path of the libzmq that pyzmq brings, without importing zmq; else the name the dynamic linker knows.

    A wheel keeps its libraries in ``pyzmq.libs`` beside the package; a pyzmq built from source links the system's.

    Raises:
        NativeUnavailable: pyzmq is not installed, or ``PTPATHWAYS_LIBZMQ`` names no file.
    """
    override = os.environ.get(ZMQ_VARIABLE)
    if override:
        if not os.path.exists(override):
            raise NativeUnavailable(f"{ZMQ_VARIABLE} must name libzmq's file, got {override!r}, which does not exist")
        return override
    spec = importlib.util.find_spec("zmq")
    if spec is None or spec.origin is None:
        raise NativeUnavailable(
            "ptpathways uses the libzmq that pyzmq brings, and pyzmq is not installed; run `pip install pyzmq`"
        )
    package = Path(spec.origin).parent
    for folder in (package.parent / "pyzmq.libs", package / ".libs", package):
        found = sorted(folder.glob("libzmq*.so*"))
        if found:
            return str(found[0])
    return _SYSTEM_ZMQ


def find_extension() -> str:
    """Path of the built extension, without loading it.

    Raises:
        NativeUnavailable: it is not built for this Python.
    """
    spec = importlib.util.find_spec("ptpathways.native._native")
    if spec is None or spec.origin is None or not spec.origin.endswith(".so"):
        folder = Path(__file__).parent
        others = ", ".join(path.name for path in sorted(folder.glob("_native*.so")))
        found = f"found only {others}" if others else f"found none in {folder}"
        raise NativeUnavailable(
            f"the C++ extension is not built for Python {sys.version_info[0]}.{sys.version_info[1]} ({found}); "
            "run `make setup` in a source checkout, or `pip install .`"
        )
    return spec.origin


def find_torch_kernels() -> str | None:
    """Path of the library that needs torch; None where the extension was built without torch's headers."""
    path = Path(__file__).parent / "_torch_kernels.so"
    return str(path) if path.exists() else None


@functools.cache
def load() -> ModuleType:
    """Loads libzmq and the extension once and checks them; the module ``ptpathways.native._native``.

    Raises:
        NativeUnavailable: not built, not loadable, or of another version than the Python package.
    """
    find_extension()
    try:
        module = importlib.import_module("ptpathways.native._native")
    except ImportError as error:
        raise NativeUnavailable(f"the C++ extension does not load: {error}; rebuild it with `make setup`") from error
    check_versions(module.__version__, module.protocol_version)
    zmq = find_zmq()
    try:
        module.load_zmq(zmq)
    except RuntimeError as error:
        raise NativeUnavailable(f"libzmq does not load from {zmq!r}: {error}; reinstall pyzmq") from error
    return module


def check_versions(built: str, protocol: int) -> None:
    """Compares what the extension says of itself with the Python package.

    Raises:
        NativeUnavailable: they differ.
    """
    if built != core.__version__:
        raise NativeUnavailable(
            f"the Python package is {core.__version__} but its C++ extension was built as {built}; "
            "rebuild it with `make setup`"
        )
    if protocol != PROTOCOL_VERSION:
        raise NativeUnavailable(
            f"the Python package speaks protocol {PROTOCOL_VERSION} but its C++ extension speaks {protocol}; "
            "rebuild it with `make setup`"
        )
