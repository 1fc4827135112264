"""The pure part of the ``input`` workload."""

from __future__ import annotations

import pytest

from ptpathways.bench import _input
from ptpathways.bench._record import Setting


def test_figures_are_per_sample_and_per_batch() -> None:
    seconds = {variant: [2.0, 4.0, 8.0] for variant in _input.VARIANTS}
    cpu = {variant: [0.4, 0.2, 0.1] for variant in _input.VARIANTS}
    records = _input.figures(Setting("input", 2, 2), 10, seconds, cpu)
    found = {record.variant: record.median for record in records}
    assert len(found) == 2 * len(_input.VARIANTS)
    assert found[f"{_input.REMOTE}: samples"] == pytest.approx(10 * _input.BATCH / 4.0)
    assert found[f"{_input.HERE}: client's CPU per batch"] == pytest.approx(20.0)
