"""Futures: handles of logical buffers on a slice, whose values may not exist yet."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways import core, native, programs
from ptpathways.frontend.slices import _slice
from ptpathways.frontend.slices._slice import VirtualSlice
from ptpathways.frontend.xla import _dtypes
from ptpathways.frontend.xla._trace import TensorSpec
from ptpathways.sharding import Sharding

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

DEFAULT_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A tensor's type and where its shards are. Made by ``layout_of``, once each: to compare is to compare identity."""

    spec: TensorSpec
    sharding: Sharding
    slice: VirtualSlice

    def __str__(self) -> str:
        return f"{self.spec} {self.sharding} on {self.slice.name}"


def layout_of(spec: TensorSpec, sharding: Sharding, slice: VirtualSlice) -> Layout:
    """The one layout of these; raises InvalidSharding where the sharding does not divide the shape."""
    key = (spec, sharding)
    found: Layout | None = slice.layouts.get(key)
    if found is None:
        sharding.shard_shape(spec.shape)
        found = slice.layouts[key] = Layout(spec, sharding, slice)
    return found


class Future:
    """Refers to a tensor on a slice that exists or will exist (a logical buffer of Pathways, section 4.2).

    Functions and programs take and return futures; to drop a future frees its value. It has no tensor operations: pass
    it to a function, or fetch its value with ``result``. A future of one number converts to a Python number, which
    waits for it: ``float(loss)``, ``if loss:``, ``f"{loss:.3f}"``. ``await future`` gives what ``result`` returns,
    without blocking the event loop and without a timeout.
    """

    __slots__ = ("__weakref__", "_buffer", "_layout", "_moves", "_taken_by")

    def __init__(self, buffer: native.Buffer, layout: Layout) -> None:
        self._buffer: native.Buffer | None = buffer
        self._layout = layout
        self._moves = _slice.moves()
        self._taken_by = ""

    @property
    def shape(self) -> torch.Size:
        """Shape of the whole tensor, all shards together."""
        import torch

        return torch.Size(self._layout.spec.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the tensor."""
        return _dtypes.torch_dtype(self._layout.spec.dtype)

    @property
    def sharding(self) -> Sharding:
        """How the tensor is divided into shards, or copied, over the devices of its slice."""
        return self._layout.sharding

    @property
    def slice(self) -> VirtualSlice:
        """The slice on which the tensor lies."""
        return self._layout.slice

    @property
    def layout(self) -> Layout:
        """Shape, element type, sharding and slice as one value."""
        return self._layout

    def done(self) -> bool:
        """Returns whether the value exists or has failed. Never waits.

        Raises:
            UsedAfterDonation: it was donated.
        """
        return self.buffer().done()

    def wait(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Waits until the value exists on its devices; fetches nothing.

        Args:
            timeout: seconds to wait, infinity allowed.

        Raises:
            TypeError, ValueError: ``timeout`` is not a number of seconds.
            DeadlineExceeded: it does not exist after ``timeout`` seconds; nothing is cancelled.
            UsedAfterDonation: it was donated.
            HostLost, OutOfDeviceMemory, CompileFailed, PathwaysError: the first failure that it depends on.
        """
        timeout = core.check_seconds(timeout, "timeout")
        buffer = self.buffer()
        with native.translated():
            buffer.wait(timeout)

    def result(self, timeout: float = DEFAULT_TIMEOUT_S) -> torch.Tensor:
        """Waits for the value and returns it as a tensor on the CPU, assembled from its shards.

        Args:
            timeout: seconds to wait, infinity allowed.

        Returns:
            A CPU tensor of the future's ``shape`` and ``dtype``.

        Raises:
            PathwaysError, TypeError, ValueError: as ``wait``.
        """
        timeout = core.check_seconds(timeout, "timeout")
        buffer = self.buffer()
        with native.translated():
            shards = _fetch(buffer, self._layout, timeout)
        spec = self._layout.spec
        return _dtypes.from_numpy(programs.assemble(shards, spec.shape, self._layout.sharding, spec.dtype), spec.dtype)

    def item(self) -> Any:
        """Waits for the only element (at most 600 s) and returns it as a Python number.

        Raises:
            RuntimeError: it has several elements.
            PathwaysError: as ``wait``.
        """
        return self.result().item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def _refused(self, *unused: Any) -> Any:
        raise TypeError(
            f"a future has no operations, got one on {self!r}; use float() or result() for the value, tensor() for a "
            "tensor on its slice, or do it inside a @pw.function"
        )

    def __eq__(self, other: object) -> bool:
        values = isinstance(other, complex | float | int) or hasattr(other, "__array__")
        if values and not isinstance(other, Future):
            self._refused()  # or it would be False, whatever the value is
        return self is other

    __hash__ = object.__hash__
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = __len__ = __iter__ = __array__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refused
    __neg__ = __abs__ = __matmul__ = __rmatmul__ = __pow__ = __rpow__ = _refused

    def __format__(self, spec: str) -> str:
        """With a format, the number's: ``f"{loss:.3f}"`` waits for it, as it does for a tensor."""
        return format(self.item(), spec) if spec else str(self)

    def tensor(self) -> torch.Tensor:
        """Returns the value as a tensor on ``slice.device``; nothing is copied and nothing waits.

        The tensor has the future's ``shape`` and ``dtype``, and no gradient history. Changing it in place does not
        change the future.

        Raises:
            UsedAfterDonation: it was donated.
            SliceUnavailable: its slice was released.
        """
        from ptpathways.frontend.slices import _exchange

        return _exchange.as_tensor(self)

    def buffer(self) -> native.Buffer:
        """Returns the native handle of the tensor, on the devices that the slice has now.

        Raises:
            UsedAfterDonation: it was donated.
        """
        if self._buffer is None:
            raise core.UsedAfterDonation(
                f"this future ({self._layout}) was given up: {self._taken_by} took its memory; use what that call gave"
            )
        if self._moves != _slice.moves():
            self._follow(self._buffer)
        return self._buffer

    def _follow(self, buffer: native.Buffer) -> None:
        """Moves to the devices that the slice has now."""
        from ptpathways.frontend.slices import _reshard

        self._moves = _slice.moves()
        if tuple(buffer.devices) != self._layout.slice.devices:
            self._buffer = _reshard.follow(buffer, self._layout)

    def give_up(self, to: str) -> None:
        """Marks the future as donated; every later use raises UsedAfterDonation.

        Args:
            to: label of the call that took it, for that error.
        """
        self._buffer = None
        self._taken_by = to

    def __await__(self) -> Generator[Any, None, torch.Tensor]:
        yield from _completion(self.buffer()).__await__()
        return self.result()

    def __repr__(self) -> str:
        state = "given up" if self._buffer is None else "done" if self._buffer.done() else "pending"
        return f"Future({self._layout}, {state})"

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError(
            f"{getattr(function, '__name__', function)} got a future, which is no tensor; take it as one with "
            "tensor(), call the operation inside a @pw.function, or fetch the value with result()"
        )


def get(tree: Any, timeout: float = DEFAULT_TIMEOUT_S) -> Any:
    """Returns ``tree`` with each future in it replaced by its value.

    Args:
        tree: a future, or nested tuples, lists and dictionaries of futures and other values, which are kept.
        timeout: seconds to wait for all futures together, infinity allowed.

    Returns:
        The same structure, with CPU tensors in place of futures.

    Raises:
        TypeError, ValueError: ``timeout`` is not a number of seconds.
        PathwaysError: as ``Future.wait``, for the first future in the tree that failed.
    """
    from torch.utils import _pytree

    timeout = core.check_seconds(timeout, "timeout")
    deadline = time.monotonic() + timeout

    def value(leaf: Any) -> Any:
        return leaf.result(max(0.0, deadline - time.monotonic())) if isinstance(leaf, Future) else leaf

    return _pytree.tree_map(value, tree)


def _fetch(buffer: native.Buffer, layout: Layout, timeout: float) -> list[npt.NDArray[Any] | None]:
    """By position; of equal shards only the first is fetched."""
    wanted = programs.distinct(layout.sharding, len(layout.spec.shape))
    if all(wanted):
        return list(buffer.fetch(timeout))
    deadline = time.monotonic() + timeout
    return [
        buffer.shard(position).result(max(0.0, deadline - time.monotonic())) if needed else None
        for position, needed in enumerate(wanted)
    ]


async def _completion(buffer: native.Buffer) -> None:
    """Returns when ``buffer`` exists or has failed; the event loop sleeps on a descriptor meanwhile."""
    if buffer.done():
        return
    loop = asyncio.get_running_loop()
    descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    arrived = loop.create_future()
    try:
        buffer.notify(descriptor)
        loop.add_reader(descriptor, lambda: None if arrived.done() else arrived.set_result(None))
        await arrived
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
