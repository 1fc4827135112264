"""What a captured step is found to depend on. No devices."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from ptpathways.frontend import _capture_state


def test_a_step_is_looked_into_wherever_it_was_written() -> None:
    """Also in a file that is nobody's, such as that of ``python -c``, or a library's."""
    model = nn.Linear(1, 1)
    names: dict[str, Any] = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    exec(compile("def step(x):\n    helper()\ndef helper():\n    optimizer.step()\n", "<string>", "exec"), names)
    found = _capture_state.walk(names["step"], (), {})
    assert found.optimizers == [names["optimizer"]] and "helper.optimizer.0.lr" in found.options
    assert not _capture_state.walk(torch.optim.SGD.step, (), {}).optimizers


def test_a_global_of_an_attributes_name_is_not_looked_at() -> None:
    model = nn.Linear(1, 1)
    names: dict[str, Any] = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "step": 1, "scale": 2.0}
    text = "def train(x):\n    loss = lambda: x * scale\n    optimizer.step()\n    return loss()\n"
    exec(compile(text, "<string>", "exec"), names)
    settings = _capture_state.walk(names["train"], (), {}).settings
    assert "scale" in settings and "step" not in settings
