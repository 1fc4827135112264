"""Watching for NaN and infinity: found on the devices, told later, with step and tensor. Nothing waits for it.

At each step the devices compute one small vector: for every watched tensor whether it has a value that is not finite.
A thread of its own fetches it, and the finding is raised at a later step.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ptpathways import core, frontend


class Watch:
    """Watches a model's training steps; made by ``watch``.

    Its methods are for the thread of the loop; a thread of its own fetches the findings.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, on_nonfinite: Callable[[core.NonFinite], None] | None
    ) -> None:
        self.step = 0
        """Number of steps begun so far. May be set, for a loop that continues from a checkpoint."""
        self._model = model
        self._tell = on_nonfinite
        self._passes = 0
        self._names: list[str] = []
        self._rows: list[Tensor] = []
        self._pending: _Letter | None = None
        self._mailbox = _Mailbox()
        self._handles = [
            module.register_forward_hook(_Recorder(self, path or type(model).__name__))
            for path, module in model.named_modules()
        ]
        self._handles.append(model.register_forward_pre_hook(_PassCounter(self)))
        self._handles.append(optimizer.register_step_pre_hook(self._begin_step))

    def check(self, timeout_s: float = 60.0) -> None:
        """Waits until all steps so far have been checked.

        Args:
            timeout_s: seconds to wait.

        Raises:
            NonFinite: a tensor was not finite (with ``on_nonfinite``, that is called instead).
            DeadlineExceeded: the devices have not computed it within ``timeout_s`` seconds.
            TypeError, ValueError: ``timeout_s`` is not a number of seconds.
        """
        timeout_s = core.check_seconds(timeout_s)
        self._send(submit=True)
        self._mailbox.drain(timeout_s)
        self._report()

    def remove(self) -> None:
        """Ends the watch. Findings that were not raised yet are dropped."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._mailbox.close()
        self._rows, self._names, self._pending = [], [], None

    def begin_pass(self) -> None:
        """Notes that the model is called."""
        if torch.is_grad_enabled():
            self._passes += 1

    def record(self, path: str, output: Any) -> None:
        """Notes an output of a module, a tensor or several, if it is part of a training step."""
        if not torch.is_grad_enabled() or torch._C._functorch.peek_interpreter_stack() is not None:
            return
        leaves = [output] if isinstance(output, Tensor) else torch.utils._pytree.tree_leaves(output)
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.device.type == "xla":
                part = f" (part {index} of it)" if len(leaves) > 1 else ""
                times = f" in forward pass {self._passes} of the step" if self._passes > 1 else ""
                self._names.append(f"the output of {path}{part}{times}")
                self._rows.append(_row(leaf.detach()))

    def _begin_step(self, optimizer: Optimizer, *unused: Any) -> None:
        """Before the update: gradients are complete, and parameters are those that the step computed with."""
        self._send(submit=False)
        self._report()
        self.step += 1
        names, rows = self._names, self._rows
        self._names, self._rows, self._passes = [], [], 0
        named = [(name, value) for name, value in self._model.named_parameters() if value.device.type == "xla"]
        with_gradient = [(name, value.grad) for name, value in reversed(named) if value.grad is not None]
        before = [f"parameter {name}, after the update of the step before," for name, _ in named]
        after = [f"the gradient of {name}" for name, _ in with_gradient]
        with torch.no_grad():
            flags = [*_sums([value for _, value in named]), *rows, *_sums([value for _, value in with_gradient])]
            if flags:
                self._pending = _Letter(self.step, [*before, *names, *after], _fused(flags))

    def _send(self, submit: bool) -> None:
        """Hands the last step's vector over; it has been submitted by the cut after that step."""
        if self._pending is None:
            return
        letter, self._pending = self._pending, None
        if submit:
            frontend.settle([bad for _, bad in letter.parts])
        self._mailbox.put(letter)

    def _report(self) -> None:
        for error in self._mailbox.take():
            if self._tell is None:
                raise error
            self._tell(error)


@dataclass(slots=True)
class _Letter:
    """A step's vectors, one for each device: element i of ``bad`` says whether tensor ``names[order[i]]`` is bad."""

    step: int
    names: list[str]
    parts: list[tuple[list[int], Tensor]]
    """Order and bad."""


class _Hook:
    """A hook of a module that does not keep the watch alive, nor goes with a copy or a pickle of the module.

    The watch lives as long as the optimizer does, whose hook is its method.
    """

    def __init__(self, watch: Watch | None) -> None:
        self._watch = weakref.ref(watch) if watch is not None else None

    @property
    def watch(self) -> Watch | None:
        return self._watch() if self._watch is not None else None

    def __reduce__(self) -> Any:
        return type(self), (None,)


class _Recorder(_Hook):
    """After a forward pass."""

    def __init__(self, watch: Watch | None, path: str = "") -> None:
        super().__init__(watch)
        self._path = path

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if (watch := self.watch) is not None:
            watch.record(self._path, output)


class _PassCounter(_Hook):
    """Before a forward pass of the whole model."""

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        if (watch := self.watch) is not None:
            watch.begin_pass()


class _Mailbox:
    """Vectors on their way to a thread that fetches them, and what it found."""

    def __init__(self) -> None:
        self._sent: queue.SimpleQueue[_Letter | None] = queue.SimpleQueue()
        self._done = threading.Condition()
        self._open = 0
        self._found: list[core.NonFinite] = []
        self._thread: threading.Thread | None = None

    def put(self, letter: _Letter) -> None:
        with self._done:
            self._open += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pw-watch", daemon=True)
            self._thread.start()
        self._sent.put(letter)

    def take(self) -> list[core.NonFinite]:
        with self._done:
            found, self._found = self._found, []
        return found

    def drain(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._done:
            if not self._done.wait_for(lambda: self._open == 0, max(0.0, deadline - time.monotonic())):
                raise core.DeadlineExceeded(
                    f"watch: of {self._open} steps it is not known within {timeout_s:g} s whether their values are "
                    "finite, because the devices have not computed them"
                )

    def close(self) -> None:
        self._sent.put(None)

    def _run(self) -> None:
        while (letter := self._sent.get()) is not None:
            try:
                fetched = frontend.fetch_beside([bad for _, bad in letter.parts])
                flags = [flag for bad in fetched for flag in bad.tolist()]
                order = [index for part, _ in letter.parts for index in part]
                wrong = [
                    letter.names[index] for index in sorted(i for i, flag in zip(order, flags, strict=True) if flag)
                ]
            except Exception:  # the step has failed; the loop is told by its own values
                wrong = []
            with self._done:
                self._open -= 1
                if wrong:
                    self._found.append(core.NonFinite(_sentence(letter.step, wrong), letter.step, wrong[0]))
                self._done.notify_all()


def watch(
    model: nn.Module, optimizer: Optimizer, on_nonfinite: Callable[[core.NonFinite], None] | None = None
) -> Watch:
    """Watches the outputs of all layers, gradients and parameters for NaN and infinity, at each training step.

    The devices check them beside the step, and nothing waits: a later ``optimizer.step()`` raises the finding, before
    it changes anything. ``check()`` of the result waits for all steps so far; ``remove()`` ends the watch. Gradients
    are checked as ``optimizer.step()`` finds them; with a ``GradScaler``, those of skipped steps are not.

    Args:
        model: prepared, or made on the devices.
        optimizer: its ``step()`` ends a step; steps count from 1.
        on_nonfinite: called instead of raising, in the loop's thread, once for each step with such values.

    Raises:
        NonFinite: later, by ``optimizer.step()``, with the step and its first such tensor in the order of computation:
            parameters, outputs of the forward pass, gradients of the backward pass.
        TypeError: an argument is not a module, an optimizer or a function.
    """
    if not isinstance(model, nn.Module) or not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"pw.watch takes a module and its optimizer, got a {type(model).__name__} and a {type(optimizer).__name__}"
        )
    if on_nonfinite is not None and not callable(on_nonfinite):
        raise TypeError(f"on_nonfinite must be a function of one NonFinite, got {on_nonfinite!r}")
    return Watch(model, optimizer, on_nonfinite)


def _row(value: Tensor) -> Tensor:
    """A number for each row of the first dimension: 0, or NaN if the row has a value that is not finite.

    Rows and not one number, because a batch is divided over devices along them: all tensors of a batch size are then
    put together by one exchange between devices.
    """
    if value.dim() == 0:
        value = value.reshape(1)
    zeros = value * 0
    return (zeros.flatten(1).sum(1) if zeros.dim() > 1 else zeros).float()


def _sums(values: Sequence[Tensor]) -> list[Tensor]:
    """For each the same, in a vector of one."""
    sums: dict[int, Tensor] = {}
    for indices in _grouped(value.device for value in values):
        zeros = torch._foreach_mul([values[index] for index in indices], 0.0)
        sums |= {index: zero.sum().float().reshape(1) for index, zero in zip(indices, zeros, strict=True)}
    return [sums[index] for index in range(len(values))]


def _fused(rows: Sequence[Tensor]) -> list[tuple[list[int], Tensor]]:
    """One vector for each device, with the row vector that each of its elements is of: whether that has a NaN."""
    parts = []
    for on_device in _grouped(row.device for row in rows):
        by_size = [[on_device[place] for place in places] for places in _grouped(len(rows[i]) for i in on_device)]
        groups = [torch.stack([rows[index] for index in indices]) for indices in by_size]
        bad = torch.cat([(group != 0).sum(1, dtype=torch.int32) for group in groups])
        parts.append(([index for indices in by_size for index in indices], bad))
    return parts


def _grouped(keys: Iterable[Any]) -> list[list[int]]:
    """The positions of equal keys, in the order of their first."""
    positions: dict[Any, list[int]] = {}
    for position, key in enumerate(keys):
        positions.setdefault(key, []).append(position)
    return list(positions.values())


def _sentence(step: int, wrong: Sequence[str]) -> str:
    more = f", and {len(wrong) - 1} more tensors after it" if len(wrong) > 1 else ""
    return f"step {step}: {wrong[0]} has values that are NaN or infinite{more}"
