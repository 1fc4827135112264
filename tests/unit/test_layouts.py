"""How tensors lie on a slice: grids, tilings, what torch_xla's shardings mean, strategies. No devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch_xla")

from torch_xla import runtime
from torch_xla.distributed import spmd

from ptpathways import core
from ptpathways.frontend.loops import _spmd
from ptpathways.frontend.slices import _mesh
from ptpathways.sharding import Box, Mesh, Shard, Sharding, tiling_of
from ptpathways.train import _strategy

EIGHT = Mesh((2, 4), ("data", "model"))


@pytest.mark.parametrize(
    "spec",
    [("data", None), (None, "model"), ("model", "data"), (("data", "model"), None), (("model", "data"),), (None, None)],
)
def test_a_grid_divides_as_a_sharding_does(spec: Any) -> None:
    grid = _mesh.Grid.of(EIGHT, 8)
    assert grid.tiling(grid.axes(spec, 2)) == tiling_of(Sharding.from_spec(EIGHT, spec), 2)


def test_placements_are_one_per_axis() -> None:
    grid = _mesh.Grid.of(EIGHT, 8)
    assert grid.axes([Shard(-1), Shard(0)], 2) == (("model",), ("data",))
    assert grid.axes([Shard(0), Shard(0)], 1) == (("data", "model"),)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("x", None), "axis 'x', which does not exist; there are data \\(2\\), model \\(4\\)"),
        (("data", "data"), "axis 'data' twice"),
        ((None, None, "data"), "has 3 entries, and the tensor 2 dimensions"),
        (("data", None, None), "has 3 entries, and the tensor 2 dimensions"),
        ([Shard(0)], "what each axis of the mesh does"),
        ([Shard(2), Shard(0)], "names a dimension that a tensor of 2 has not"),
        ("data", "expected a partition spec"),
    ],
)
def test_what_does_not_fit_is_named(given: Any, said: str) -> None:
    with pytest.raises(core.InvalidSharding, match=said):
        _mesh.Grid.of(EIGHT, 8).axes(given, 2)


def test_boxes_leave_padding_out() -> None:
    assert _mesh.boxes((10, 2), ((4, 1), (0, 1, 2, 3))) == [
        Box((0, 0), (3, 2)),
        Box((3, 0), (3, 2)),
        Box((6, 0), (3, 2)),
        Box((9, 0), (1, 2)),
    ]
    assert _mesh.boxes((2,), ((4,), (0, 1, 2, 3)))[3] == Box((2,), (0,))
    assert _mesh.boxes((4, 4), ((2, 2), (3, 2, 1, 0)))[0] == Box((2, 2), (2, 2))


@pytest.mark.parametrize(
    "spec", [("data", None), (None, "model"), ("model", "data"), (("data", "model"), None), (None,) * 2]
)
@pytest.mark.parametrize("order", [list(range(8)), [3, 1, 0, 2, 7, 5, 4, 6]])
def test_a_sharding_of_torch_xla_is_read(monkeypatch: pytest.MonkeyPatch, spec: Any, order: list[int]) -> None:
    monkeypatch.setattr(runtime, "global_runtime_device_count", lambda: 8)
    mesh = spmd.Mesh(np.array(order), (2, 4), ("data", "model"))
    grid = _mesh.Grid.of(mesh, 8)
    meant = _spmd.OpSharding(*mesh._get_op_sharding_args(spec)).tiling(2, 8)
    assert meant == grid.tiling(grid.axes(spec, 2))
    again = _spmd.OpSharding.of(meant)
    assert again.tiling(2, 8) == meant and str(again).startswith("{")
    with pytest.raises(core.InvalidSharding, match="on a slice of 2"):
        _spmd.OpSharding.of(meant).tiling(2, 2)


@pytest.mark.parametrize(
    ("shape", "parts"), [((16, 64), (1, 4)), ((64, 64), (4, 1)), ((63, 16), (1, 4)), ((63, 15), None), ((8, 8), None)]
)
def test_the_largest_dimension_that_divides_is_cut(shape: tuple[int, ...], parts: tuple[int, ...] | None) -> None:
    found = _strategy.cut_largest(shape, 4)
    assert (None if found is None else found[0]) == parts


def test_another_strategy_is_refused() -> None:
    with pytest.raises(core.InvalidSharding, match=r"'ddp'.*'fsdp'"):
        _strategy.check_strategy("zero")
