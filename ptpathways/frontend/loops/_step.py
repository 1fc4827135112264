"""Cutting the lazy trace: what was traced so far is submitted, and nothing waits for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ptpathways import core, native
from ptpathways.frontend.base import _hooks, _state
from ptpathways.frontend.diagnostics import _recompiles, _threads
from ptpathways.frontend.slices import _rng
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch

_cuts = 0


def step(*devices: torch.device) -> None:
    """Marks a step boundary: submits everything traced so far, and returns at once.

    ``prepare`` calls it after each ``optimizer.step()`` and after each batch without one. It corresponds to
    PyTorch/XLA's ``torch_xla.sync()``, for all slices that are in use.

    Args:
        devices: torch devices of the slices whose trace is submitted; none: all except those on which another thread
            computes.

    Raises:
        NotInitialized: before ``init``.
        ConcurrentUse: another thread computes on one of ``devices``.
        TooManyRecompiles: with ``init(recompiles="raise")``.
        TypeError: one of ``devices`` is not the device of a slice.
        RuntimeError: PyTorch/XLA reports here that an earlier submission failed.
    """
    for device in devices:
        if getattr(device, "type", None) != "xla":
            raise TypeError(f"pw.step() takes devices of slices, as slice.device and pw.device() are, got {device!r}")
    _cut(wait_for_submit=False, devices=devices)


def submit() -> None:
    """As ``step``, but returns only when PyTorch/XLA has handed everything over. Waits for no device."""
    _cut(wait_for_submit=True)


def wait(timeout_s: float = 600.0) -> None:
    """Submits everything traced so far and waits until every device has completed it.

    Args:
        timeout_s: seconds to wait, infinity allowed; without effect with ``backend="xla-cpu"``.

    Raises:
        NotInitialized: before ``init``.
        TypeError, ValueError: ``timeout_s`` is not a number of seconds.
        DeadlineExceeded: the devices still work after ``timeout_s`` seconds; nothing is cancelled.
        TooManyRecompiles: with ``init(recompiles="raise")``.
        HostLost, OutOfDeviceMemory, PathwaysError: something failed on the devices, and no error has been raised since.
            Reads of the values that depend on it raise it, too, each with the root cause.
        RuntimeError: PyTorch/XLA could not submit something.
    """
    timeout_s = core.check_seconds(timeout_s)
    this = _state.runtime()
    _cut(wait_for_submit=True)
    if this.connection is not None:
        this.connection.drain(timeout_s)
        this.connection.raise_failure()
    else:
        _xla.binding()._xla_wait_device_ops(devices=[])


def cut_count() -> int:
    """How often ``step`` was called: two equal values say that nothing was cut between."""
    return _cuts


def _cut(wait_for_submit: bool, devices: tuple[torch.device, ...] = ()) -> None:
    global _cuts
    import torch_xla

    if _state.runtime().connection is not None:
        # What holds a loop back waits on threads of PyTorch/XLA's; a notebook replaces signals' handlers in each cell.
        native.watch_interrupts(threading.main_thread().ident or 0)
    _hooks.before_cut()
    _recompiles.about_to_run()
    _cuts += 1
    current = -1
    indices = {_xla.index_of(device) for device in devices} or set(_rng.in_use())
    if devices:
        _threads.claim(indices)
    else:
        indices -= _threads.theirs()
    try:
        if not devices and not _threads.several():
            torch_xla.sync(wait=wait_for_submit)  # The current device, and what torch_xla does once per step.
            current = _xla.binding()._xla_get_default_device_ordinal()
        for index in indices - {current}:
            _xla.binding()._xla_step_marker(_xla.device_name(index), [], wait=wait_for_submit)
    except RuntimeError as error:
        raise native.translate_of_torch(error) from None
    _threads.release(indices)
    _recompiles.report()


def count_cut() -> None:
    """Notes that a step was submitted without tracing, as a cut would have done."""
    global _cuts
    _cuts += 1
