"""The pure parts of the ``reshard`` workload."""

from __future__ import annotations

import pytest

from ptpathways import bench, core
from ptpathways.bench import _reshard, _reshard_process
from ptpathways.bench._record import Setting
from ptpathways.bench._workload import BenchOptions


def test_percentages_are_of_the_same_round() -> None:
    records = _reshard.figures(Setting("reshard", 4, 8), "a to b", 10**9, [0.5, 0.25, 1.0], [4.0, 4.0, 1.0])
    found = {(record.variant, record.unit): record.median for record in records}
    assert found["a to b", "ms"] == pytest.approx(500.0)
    assert found["a to b", "GB/s"] == pytest.approx(2.0)
    assert found["a to b: of the plain copy's rate", "%"] == pytest.approx(100.0)  # not 2 of 4, which the medians are


def test_the_goal_is_of_a_figure_that_is_recorded() -> None:
    (first, *_) = _reshard.MOVES
    records = _reshard.figures(Setting("reshard", 4, 8), " to ".join(first), 1, [1.0], [1.0])
    assert set(_reshard.RESHARD.goals) <= {record.variant for record in records}


def test_every_layout_of_the_moves_exists() -> None:
    for name in {name for move in _reshard.MOVES for name in move}:
        assert len(_reshard_process.layout_of(name, 0)) == 2
    assert _reshard_process.layout_of("tensor parallel", 0) == _reshard_process.ROWS
    assert _reshard_process.layout_of("tensor parallel", 1) == _reshard_process.COLUMNS
    with pytest.raises(ValueError, match=r"layout must be one of copies, .* got 'diagonal'"):
        _reshard_process.layout_of("diagonal", 0)


@pytest.mark.parametrize("options", [BenchOptions(hosts=3), BenchOptions(hosts=2, devices_per_host=1)])
def test_clusters_without_two_alike_slices_are_refused(options: BenchOptions) -> None:
    with pytest.raises(core.InvalidOption, match="even number of hosts"):
        bench.run("reshard", options)
