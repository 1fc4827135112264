"""Where a pipeline's values are between two steps: futures on the slices that own them.

The only file that knows in which form values are held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ptpathways import frontend


@dataclass(slots=True)
class Held:
    """What a step takes and gives anew."""

    parameters: dict[str, Any] = field(default_factory=dict)
    """By the model's names; each on the slice of its first user."""
    state: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The optimizer's, by parameter; empty before its first step."""

    def put_parameters(
        self, values: Mapping[str, Tensor], homes: Mapping[str, frontend.VirtualSlice], placements: Mapping[str, Any]
    ) -> None:
        for name, value in values.items():
            self.parameters[name] = frontend.put(value.detach(), homes[name], placements.get(name))

    def put_state(
        self,
        values: Mapping[str, Mapping[str, Any]],
        homes: Mapping[str, frontend.VirtualSlice],
        placements: Mapping[str, Any],
    ) -> None:
        self.state = {
            name: {
                key: frontend.put(value, homes[name], placements.get(name) if value.dim() else None)
                for key, value in state.items()
                if isinstance(value, Tensor)
            }
            for name, state in values.items()
        }

    def fetch_parameters(self) -> dict[str, Tensor]:
        """Waits for the values."""
        found: dict[str, Tensor] = frontend.get(self.parameters)
        return found

    def fetch_state(self) -> dict[str, dict[str, Tensor]]:
        """Waits for the values."""
        found: dict[str, dict[str, Tensor]] = frontend.get(self.state)
        return found
