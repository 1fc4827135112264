"""The states of all random generators that a loop may use: Python's, NumPy's, torch's and the devices'."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from ptpathways import frontend
from ptpathways.checkpoint import _tree


def states() -> dict[str, Any]:
    """As JSON."""
    torchs = torch.get_rng_state().numpy().copy()
    found = {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torchs,
        "devices": frontend.generator_states(),
    }
    return dict(_tree.encode(found, "rng", _no_tensor))


def restore(encoded: dict[str, Any]) -> None:
    """Sets what ``states`` gave."""
    found = _tree.decode(encoded, _no_tensor, allow_pickle=False)
    random.setstate(found["python"])
    np.random.set_state(found["numpy"])
    torch.set_rng_state(torch.from_numpy(found["torch"]))
    frontend.set_generator_states(found["devices"])


def _no_tensor(*unused: object) -> Any:
    raise AssertionError("generators have no tensors")
