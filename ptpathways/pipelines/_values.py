"""A pipeline's parameters and optimizer state, which are on the CPU and on the slices: which are newer?"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ptpathways import core, frontend
from ptpathways.pipelines import _changes
from ptpathways.pipelines._state import Held

_LOST = (
    "the values of the pipeline are lost: load a checkpoint with pw.load(path, pipe=pipe) or "
    "pipe.load_state_dict(state); before that, move() the slices whose hosts are lost"
)


class Values:
    """The user's module and optimizer have copies of what is on the slices. One thread at a time.

    Attributes:
        held: what is on the slices.
        homes: each parameter's slice, as far as a model was cut.
        given: whether the optimizer was loaded since its state was sent.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, placements: Mapping[str, Any]
    ) -> None:
        self.held = Held()
        self.homes: dict[str, frontend.VirtualSlice] = {}
        self.given = False
        self._parameters = parameters
        self._optimizer = optimizer
        self._placements = placements
        # Whether the module's parameters, and the optimizer's state, are older than those on the slices.
        self._behind = self._state_behind = False
        self._mirror, self._state_mirror = _changes.Mirror(), _changes.Mirror()

    def stepped(self, parameters: Mapping[str, Any], state: Mapping[str, dict[str, Any]]) -> None:
        """A step has given these, on the slices."""
        self.held.parameters.update(parameters)
        self.held.state = {**self.held.state, **state}
        self._behind = self._state_behind = True
        self._mirror.forget_values()
        self._state_mirror.forget_values()

    def fetch_parameters(self) -> None:
        """The current parameters into the module. Waits for the last step.

        Raises:
            PipelineError: they were changed since the last step, where they are older; or they are lost.
            HostLost: they are lost with a host.
        """
        if not self._behind:
            return
        self._refuse_stale()
        with _fetching(), torch.no_grad():
            for name, value in self.held.fetch_parameters().items():
                self._parameters[name].copy_(value)
        self._behind = False
        self._mirror.written(self._placed(), values=True)

    def fetch_state(self) -> None:
        """The optimizer's state from the slices, into the optimizer. Waits for the last step. Raises as above."""
        if not self._state_behind:
            return
        with _fetching():
            fetched = self.held.fetch_state()
        for name, state in fetched.items():
            self._optimizer.state[self._parameters[name]] = dict(state)
        self._state_behind = False
        self._state_mirror.clear()
        self._state_mirror.written(self._state_tensors(), values=True)

    def state_given(self) -> None:
        """The optimizer has loaded a state, which counts from now on."""
        self.given, self._state_behind = True, False

    def replaced(self) -> None:
        """Module and optimizer have all that counts: what is on the slices is given up, and may be lost."""
        self.held = Held()
        self.given = self._behind = self._state_behind = False
        self._mirror.clear()
        self._state_mirror.clear()

    def send(self) -> None:
        """What the slices do not have yet, and what the user changed on the CPU since the last step.

        Raises:
            PipelineError: it was changed where it is older than on the slices.
        """
        self._put_new()
        self._refuse_stale()
        placed = self._placed()
        changed = self._mirror.changed(placed)
        if changed:
            values = {name: placed[name] for name in changed}
            self.held.put_parameters(values, self.homes, self._placements)
            self._mirror.written(values, values=False)
        if not self.given:
            changed = self._state_mirror.changed(self._state_tensors())
            if changed and self._state_behind:
                way = "take pipe.optimizer.state_dict(), and pass another one to load_state_dict()"
                raise _changes.stale("tensors of the optimizer's state", changed, way)
            if not changed:
                return
        self._put_state()

    def _put_new(self) -> None:
        """Parameters that have a home since the last build, and the optimizer's first state, to their slices."""
        first = not self.held.parameters
        fresh = {
            name: value
            for name, value in self._parameters.items()
            if name in self.homes and name not in self.held.parameters
        }
        if not fresh:
            return
        self.held.put_parameters(fresh, self.homes, self._placements)
        self._mirror.written(fresh, values=False)
        if first:
            self._put_state()

    def _put_state(self) -> None:
        """The optimizer's state from the CPU to its slices."""
        known = self._optimizer.state
        state = {name: known[value] for name, value in self._placed().items() if value in known}
        self.held.put_state(state, self.homes, self._placements)
        self.given = self._state_behind = False
        self._state_mirror.clear()
        self._state_mirror.written(self._state_tensors(), values=False)

    def _placed(self) -> dict[str, Tensor]:
        return {name: value for name, value in self._parameters.items() if name in self.held.parameters}

    def _state_tensors(self) -> dict[str, Tensor]:
        """The optimizer's state on the CPU, by the parameter's name and the key."""
        if not self._optimizer.state:
            return {}
        return {
            f"{name}/{key}": value
            for name, parameter in self._placed().items()
            if parameter in self._optimizer.state
            for key, value in self._optimizer.state[parameter].items()
            if isinstance(value, Tensor)
        }

    def _refuse_stale(self) -> None:
        changed: Collection[str] = self._mirror.changed(self._placed()) if self._behind else []
        if changed:
            raise _changes.stale(
                "parameters",
                changed,
                "take pipe.module, which has the current ones, before you change them; all of them: "
                "pipe.load_state_dict()",
            )


@contextlib.contextmanager
def host_may_be_lost() -> Iterator[None]:
    """Inside, the loss of a host says what to do."""
    try:
        yield
    except core.HostLost as error:
        raise core.HostLost(f"{_LOST}. {error}") from error


@contextlib.contextmanager
def _fetching() -> Iterator[None]:
    """Inside, values that are gone, also with a step that failed, say what to do."""
    try:
        with host_may_be_lost():
            yield
    except (core.HostLost, core.ConnectionFailed, core.DeadlineExceeded, core.NotInitialized):
        raise
    except core.PathwaysError as error:
        raise core.PipelineError(f"{_LOST}. {error}") from error
