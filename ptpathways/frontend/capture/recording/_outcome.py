"""What a recorded call has left behind, and when replays are to be checked by another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.capture.objects._reachable import Surroundings
from ptpathways.frontend.capture.recording import _probe
from ptpathways.frontend.capture.recording._effects import Effects
from ptpathways.frontend.plans._wiring import Result
from ptpathways.frontend.slices import _buffers as buffers

if TYPE_CHECKING:
    import torch


class Audits:
    """When a replay is to be checked: after 1, 10 and 100, and then so that checking takes a hundredth of the time."""

    def __init__(self) -> None:
        self.replays = 0
        """Since the last one."""
        self.seconds = 0.0
        """That those took."""
        self._after = 1

    def due(self) -> bool:
        return self.replays >= self._after

    def done(self, seconds: float) -> None:
        """One was made, and took so long."""
        each = self.seconds / max(self.replays, 1)
        enough = int(100 * seconds / each) if each > 0 else 0
        self._after = self._after * 10 if self._after < 100 else max(1000, enough)
        self.replays, self.seconds = 0, 0.0


@dataclass(slots=True)
class Outcome:
    """What the call that was recorded last returned and left behind."""

    recording: Mapping[str, Any]
    surroundings: Surroundings
    extras: Mapping[str, Any]
    """Further tensors by name that the walk does not find, but the step reads or writes."""
    gone: Mapping[str, Any]
    """Gradients by name that were there before the call, and are not after it."""
    in_place: frozenset[str]
    """What was written in place, by name: autograd refuses graphs that have saved it before."""
    moved: frozenset[str]
    """What is the same object with other memory, by name."""
    returned: Sequence[Any]
    """What was returned."""
    tree: Any
    """Its structure."""
    found: frozenset[str]
    """The parameters that had a gradient when the call began."""
    required: Mapping[str, bool]
    """Whether a tensor required a gradient when the call began, by name."""
    shapes: Mapping[Result, buffers.Shape]
    """Of each returned result."""
    effects: Effects
    probes: _probe.Log
    """What was made of the optimizers' options."""
    others: Sequence[tuple[torch.Tensor, int]]
    """Tensors of the CPU that it used and was not given, with their digests."""
    ages: Mapping[str, int]
    """Which tensor was made earlier than which when the call began, by name (``_buffers.ages``)."""

    def renewed(self) -> list[torch.Tensor]:
        """Tensors that it has made and left behind, in the place of others or of none."""
        tensors = self.surroundings.tensors
        gradients = {f"{name}.grad" for name in self.surroundings.with_gradient() - self.found}
        return [tensors[name] for name in self.effects.renewed | gradients if name in tensors]
