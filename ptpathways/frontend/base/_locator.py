"""Which line of the user's program is being executed: asked when something is compiled, to name it in errors."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
import threading
import warnings
from pathlib import Path
from types import FrameType


def user_source_line() -> str:
    """``file:line`` of the innermost frame that is the user's own code; empty when there is none.

    A thread that has no such frame (autograd's) is at work for the main thread, so that one's line is given.
    """
    line = line_of(sys._getframe(1))
    if not line and threading.current_thread() is not threading.main_thread():
        identity = threading.main_thread().ident
        frame = sys._current_frames().get(identity) if identity is not None else None
        line = line_of(frame)
    return line


def user_frame() -> FrameType | None:
    """The innermost frame of this thread that is the user's own code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def frame_outside() -> FrameType | None:
    """The innermost frame of this thread that is not of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("ptpathways."):
        frame = frame.f_back
    return frame


def is_inside(folder: str) -> bool:
    """Whether the user's line is in a call of a library's code in that folder, such as ``/torch/optim/``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        if folder in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def warn(message: str, category: type[Warning]) -> None:
    """A warning that is shown with the user's line."""
    frame = user_frame()
    filename, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("<unknown>", 1)
    warnings.warn_explicit(message, category, filename, line)


def register() -> None:
    """Lets the plugin ask when PyTorch/XLA gives it something to compile."""
    from ptpathways import native

    native.set_source_locator(user_source_line)


def unregister() -> None:
    from ptpathways import native

    native.set_source_locator(None)


def line_of(frame: FrameType | None) -> str:
    """``file:line`` of the innermost frame of the user's own code, from ``frame`` outwards; empty if there is none."""
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@functools.lru_cache(maxsize=4096)
def is_library(filename: str) -> bool:
    """Whether a file belongs to torch, torch_xla, this package or Python itself, and not to the user."""
    if filename == "<stdin>" or filename.startswith("<python-input"):  # at a prompt
        return False
    return filename.startswith("<") or os.path.abspath(filename).startswith(_library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    folders = [str(Path(__file__).resolve().parents[2])]
    for name in ("torch", "torch_xla"):
        found = importlib.util.find_spec(name)  # which need not be imported yet
        if found is not None and found.origin is not None:
            folders.append(os.path.dirname(found.origin))
    wrapper = importlib.util.find_spec("typing_extensions")  # around every method that a library calls deprecated
    if wrapper is not None and wrapper.origin is not None:
        folders.append(wrapper.origin)
    return (*(folder + (os.sep if os.path.isdir(folder) else "") for folder in folders), *_standard_folders())


def is_standard(filename: str) -> bool:
    """Whether a file is of Python's own library."""
    return filename.startswith("<frozen ") or os.path.abspath(filename).startswith(_standard_folders())


@functools.cache
def _standard_folders() -> tuple[str, ...]:
    """Files and folders of Python's own library. Installed packages lie inside its folder, but those are somebody's
    code: a user may well be interested in the line of the trainer that called torch."""
    paths = sysconfig.get_paths()
    library = {paths["stdlib"], paths["platstdlib"]}
    folders = [os.path.join(path, name) for path in library for name in _standard_modules(path)]
    return tuple(folder + (os.sep if os.path.isdir(folder) else "") for folder in folders)


def _standard_modules(path: str) -> list[str]:
    if not os.path.isdir(path):
        return []
    return [name for name in os.listdir(path) if name not in ("site-packages", "dist-packages")]
