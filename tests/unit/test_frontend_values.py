"""What calls are made of: arguments, placements, values of a trace; shards of arrays. No cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import Partial, Replicate, Shard

from ptpathways import core, programs
from ptpathways.frontend.dataflow import _arguments, _value
from ptpathways.frontend.slices import _placements
from ptpathways.frontend.xla import _dtypes, _trace
from ptpathways.sharding import Mesh, Sharding

MESH = Mesh((2, 4), ("data", "model"))


def leaf(value: Any) -> Any:
    return _arguments.leaf(value, lambda: "argument 0 of f")


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        (1.5, "f32[]"),
        ([1.0, 2.0], "f32[2]"),
        ([[1, 2, 3]], "s64[1,3]"),
        (np.zeros((2, 3), np.float64), "f64[2,3]"),
        (np.float16(1), "f16[]"),
        (torch.zeros(3, dtype=torch.bfloat16), "bf16[3]"),
        (torch.tensor(True), "pred[]"),
    ],
)
def test_values_are_tensors(value: Any, spec: str) -> None:
    assert str(leaf(value).spec) == spec


@pytest.mark.parametrize("value", [1, True, "relu", None, (1, 2), torch.float32])
def test_everything_else_is_static_and_compared_with_its_type(value: Any) -> None:
    assert leaf(value) == _arguments.Static(type(value), value)
    assert leaf(1) != leaf(True)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(TypeError, match="argument 0 of f is a set, which is neither a tensor nor hashable"):
        leaf({1})
    with pytest.raises(TypeError, match="dense"):
        leaf(torch.zeros(2).to_sparse())


def test_lists_of_numbers_are_leaves_and_other_lists_structure() -> None:
    leaves, structure = _arguments.flatten(([1.0, [2.0]], [torch.zeros(1), 2.0], {"k": []}))
    assert leaves[0] == [1.0, [2.0]] and len(leaves) == 3
    assert _arguments.unflatten("abc", structure) == ("a", ["b", "c"], {"k": []})


def test_bits_survive_numpy() -> None:
    for dtype in (torch.bfloat16, torch.float32, torch.bool, torch.complex64, torch.uint16):
        tensor = torch.arange(4).to(dtype)
        name = _dtypes.name_of(dtype)
        assert torch.equal(_dtypes.from_numpy(_dtypes.to_numpy(tensor), name), tensor)
        assert _dtypes.to_numpy(tensor).dtype == programs.numpy_dtype(name)
    with pytest.raises(TypeError, match="quint8"):
        _dtypes.name_of(torch.quint8)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "-,-"),
        ([Shard(0), Replicate()], "data,-"),
        ((Replicate(), Shard(-1)), "-,model"),
        (("model",), "model,-"),
        ((("data", "model"), None), "data+model,-"),
        ((), "-,-"),
    ],
)
def test_a_layout_is_torchs_placements_or_a_spec(given: Any, text: str) -> None:
    assert _placements.sharding(given, MESH, 2).text(2) == text


def test_layouts_are_spread_over_structures() -> None:
    tree = (0, {"a": 1, "b": [2, 3]})
    rows, columns = ("data",), (None, "data")
    spread = _placements.spread
    assert spread(rows, tree, "x") == [rows] * 4
    assert spread([rows, None], tree, "x") == [rows, None, None, None]
    assert spread([(), {"a": rows}], tree, "x") == [(), rows, None, None]
    assert spread((), tree, "x") == [()] * 4
    assert spread((), (), "x") == []
    assert spread([None, {"b": [rows, columns]}], tree, "x") == [None, None, rows, columns]
    assert spread([Shard(0), Replicate()], tree, "x") == [[Shard(0), Replicate()]] * 4
    with pytest.raises(core.InvalidSharding, match="x has 3 entries, and there are 2"):
        spread([rows, rows, rows], tree, "x")
    with pytest.raises(core.InvalidSharding, match="there is no 'c'"):
        spread([None, {"c": rows}], tree, "x")
    with pytest.raises(core.InvalidSharding, match="expected placements"):
        spread("data", tree, "x")
    with pytest.raises(core.InvalidSharding, match="sum it inside"):
        _placements.sharding([Partial(), Replicate()], MESH, 1)


@pytest.mark.parametrize("spec", [(), ("data",), (None, "model"), (("data", "model"),), ("model", "data")])
def test_arrays_are_split_and_put_together(spec: Any) -> None:
    sharding = Sharding.from_spec(MESH, spec)
    array = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    shards = programs.split(array, sharding)
    wanted = programs.distinct(sharding, 2)
    assert sum(wanted) == len({shard.tobytes() for shard in shards})
    partial = [shard if needed else None for shard, needed in zip(shards, wanted, strict=True)]
    np.testing.assert_array_equal(programs.assemble(partial, (8, 8), sharding, "f32"), array)


@pytest.mark.parametrize(
    "use",
    [
        lambda v: v + 1,
        lambda v: 1 - v,
        lambda v: bool(v),
        lambda v: float(v),
        lambda v: v[0],
        lambda v: list(v),
        lambda v: np.asarray(v),
        lambda v: v.item(),
        lambda v: v < 0,
        lambda v: torch.relu(v),
    ],
)
def test_a_value_of_a_trace_has_no_elements(use: Any) -> None:
    value = _value.Value(None, ("leaf", 0, 0), _trace.TensorSpec((2,), "f32"), None)
    assert tuple(value.shape) == (2,) and value.dtype is torch.float32
    with pytest.raises(TypeError, match="no elements yet"):
        use(value)
