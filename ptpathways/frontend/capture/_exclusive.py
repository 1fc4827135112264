"""Whether the values that replays write over are those of one tensor each, and where they were.

PyTorch/XLA has operations that give a second tensor the value of a first one and make no copy. A traced step puts a new
value in the place of a tensor's old one; a replay writes over the old one, and so over the second tensor's. PyTorch/XLA
tells nobody who shares a value, so it is read from its objects' counts. Copies are made where that is known
(``frontend/kernels/memory/_copies``); this finds the rest.
"""

from __future__ import annotations

import functools
import threading
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptpathways import core, native
from ptpathways.frontend.kernels.memory import _copies
from ptpathways.frontend.slices import _buffers as buffers
from ptpathways.frontend.xla import _private, _xla

if TYPE_CHECKING:
    import torch


class Exclusive:
    """The tensors that a replay writes over, by name."""

    def __init__(self, tensors: Sequence[tuple[str, torch.Tensor]]) -> None:
        self._names = [name for name, _ in tensors]
        self.tensors = [tensor for _, tensor in tensors]

    def shared(self) -> str:
        """The name of the first one whose value another tensor has, too; empty when there is none.

        Raises:
            VersionMismatch: torch or torch_xla are of another version than this knows.
        """
        if not self.tensors:
            return ""
        values = _values(self.tensors[0].device.index or 0)
        if values.first_shared(self.tensors) < 0:
            return ""
        # A computation that is just being handed over has its arguments' values, too.
        _wait_for_hand_over()
        place = values.first_shared(self.tensors)
        return self._names[place] if place >= 0 else ""


def are_at(tensors: list[torch.Tensor], handles: array[int]) -> bool:
    """Whether the tensors have the values of these handles (``_buffers.handles``), if nothing was traced since; False
    also where that cannot be told. PyTorch/XLA's own answer takes half a millisecond for a thousand tensors.

    Raises:
        VersionMismatch: torch or torch_xla are of another version than this knows.
    """
    return not tensors or _values(tensors[0].device.index or 0).have(tensors, handles)


def has_view(tensors: list[torch.Tensor]) -> bool:
    """Whether one of them is a view of another tensor, or of its own memory (``p.data = p.data.view(...)``): what is
    derived from it, such as its ``detach()``, is computed from the other one.

    Raises:
        VersionMismatch: torch or torch_xla are of another version than this knows.
    """
    return bool(tensors) and _values(tensors[0].device.index or 0).first_view(tensors) >= 0


_failures: list[RuntimeError] = []
"""Of waits that have ended, or were given up and have ended since: PyTorch/XLA tells each only once."""


def _wait_for_hand_over() -> None:
    """On a thread of its own: this one would not hear of Ctrl-C while PyTorch/XLA waits for room on a host.

    Raises:
        RuntimeError: something could not be handed over, or one of the project's errors that says so.
    """
    thread = threading.Thread(target=_wait_and_note, daemon=True)
    thread.start()
    thread.join()
    if _failures:
        raise native.translate_of_torch(_failures.pop()) from None


def _wait_and_note() -> None:
    try:
        _xla.binding()._xla_wait_device_ops([])
    except RuntimeError as error:
        _failures.append(error)


@functools.cache
def _values(index: int) -> native.TensorValues:
    """What looks into tensors, checked with some of the device that do and do not share their value.

    Raises:
        VersionMismatch: it cannot look into those of what is installed.
    """
    import torch
    import torch_xla

    found = {"torch": torch.__version__.partition("+")[0], "torch_xla": torch_xla.__version__.partition("+")[0]}
    sees = found == {"torch": _private.TORCH, "torch_xla": _private.TORCH_XLA}
    if sees:
        one, two, apart = (torch.zeros(2, device="cpu").to(_xla.device_name(index)) for _ in range(3))
        buffers.submit_pending()  # before that the trace has their values
        values = native.TensorValues(one)
        before = [values.first_shared([tensor]) for tensor in (one, two, apart)]
        with _copies.as_they_come():
            two.copy_(one)
            torch._sync(two)  # type: ignore[attr-defined,no-untyped-call]
        after = [values.first_shared([tensor]) for tensor in (one, two, apart)]
        buffers.submit_pending()
        handles = buffers.handles([one, two, apart]) or array("q")
        have = [values.have([one, two, apart], handles), values.have([apart, two, one], handles)]
        views = [values.first_view([one, apart]), values.first_view([one, apart.view(2), two.t()])]
        sees = (before, after, have, views) == ([-1, -1, -1], [0, 0, -1], [True, False], [-1, 1])
    if not sees:
        raise core.VersionMismatch(
            f"captured steps look into tensors of torch {_private.TORCH} and torch_xla {_private.TORCH_XLA}, got torch "
            f"{torch.__version__} and torch_xla {torch_xla.__version__}: install those, or leave the step uncaptured"
        )
    return values
