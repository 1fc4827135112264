"""Two threads that compute on one device: said before it does harm.

PyTorch/XLA has one trace for each device, whatever the number of threads. While one thread submits it, the tensors in
it have no value for a moment; what another thread does with them then fails in PyTorch/XLA's depths, or ends the
process. So a thread *claims* the devices that it computes on, from the first forward pass to the next time that all is
submitted, and another one that comes meanwhile gets an error. Threads that only upload claim nothing.

Nothing of this costs a program with one thread anything: the hook for forward passes is there once a second thread has
used a device.
"""

from __future__ import annotations

import itertools
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways import core
from ptpathways.frontend.base import _locator
from ptpathways.frontend.diagnostics import _operands
from ptpathways.frontend.xla import _trace

if TYPE_CHECKING:
    import torch
    from torch import nn

_PYTHON = os.path.join(sysconfig.get_paths()["stdlib"], "")
_PACKAGES = os.path.join(sysconfig.get_paths()["purelib"], "")


@dataclass(frozen=True, slots=True)
class _Claim:
    thread: threading.Thread
    line: str


_lock = threading.Lock()
_claims: dict[int, _Claim] = {}  # by torch device; guarded by _lock
_several = False
_main = threading.main_thread().ident


def arrived() -> None:
    """This thread uses devices. From the second such thread on, forward passes claim them."""
    global _several
    _operands.arrived()
    if _several or threading.get_ident() == _main or _own() is None:
        return
    from torch.nn.modules.module import register_module_forward_pre_hook

    with _lock:
        if not _several:
            _several = True
            register_module_forward_pre_hook(_before_forward)


def claim(devices: Iterable[int]) -> None:
    """This thread is about to compute on these devices, or to submit what was traced there.

    Raises:
        ConcurrentUse: another thread has begun to, and has not submitted it.
    """
    arrived()
    if not _several:
        return
    own = _own()
    if own is None or _trace.tracing():
        return
    devices = [index for index in devices if (known := _claims.get(index)) is None or known.thread is not own]
    if not devices:
        return
    line = _locator.user_source_line()
    with _lock:
        for index in devices:
            other = _claims.get(index)
            if other is not None and other.thread is not own and not _is_parked(other.thread):
                raise core.ConcurrentUse(
                    f"thread {own.name!r} computes on xla:{index} at {line or 'an unknown line'} while thread "
                    f"{other.thread.name!r} does, at {other.line or 'an unknown line'}, and has not submitted it: "
                    "PyTorch/XLA has one trace for a device. Give each thread a slice of its own, or let them take "
                    "turns: a lock around each one's step, which ends with pw.step() or with a value that is read"
                )
            _claims[index] = _Claim(own, line)


def several() -> bool:
    """Whether more than one thread of the program has used devices so far."""
    return _several


def theirs() -> set[int]:
    """The devices on which other threads compute now."""
    if not _several:
        return set()
    own = threading.current_thread()
    with _lock:
        return {index for index, known in _claims.items() if known.thread is not own and known.thread.is_alive()}


def release(devices: Iterable[int]) -> None:
    """What this thread computes on these devices has been submitted, or read."""
    if not _several:
        return
    own = threading.current_thread()
    with _lock:
        for index in devices:
            if (known := _claims.get(index)) is not None and known.thread is own:
                del _claims[index]


def _own() -> threading.Thread | None:
    """This thread; None for one that Python has not started, such as autograd's, which works for another."""
    thread = threading.current_thread()
    return None if isinstance(thread, threading._DummyThread) else thread


def _is_parked(thread: threading.Thread) -> bool:
    """Whether the thread is over, or in Python's own code (a lock, a queue, a join), so another may stand in for it."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None or not thread.is_alive():
        return True
    place = frame.f_code.co_filename
    return place.startswith(_PYTHON) and not place.startswith(_PACKAGES)


def _before_forward(module: nn.Module, args: Any) -> None:
    import torch

    if torch.compiler.is_compiling():
        return
    own: Iterable[torch.Tensor] = itertools.chain(module.parameters(), module.buffers())
    first = next(itertools.chain((item for item in args if isinstance(item, torch.Tensor)), own), None)
    if first is not None and first.device.type == "xla":
        claim([first.device.index or 0])
