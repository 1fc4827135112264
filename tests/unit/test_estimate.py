"""A program's memory and time on paper, and the axes of collectives."""

from __future__ import annotations

import itertools

import pytest

from ptpathways import core, ir, platforms, programs
from ptpathways.sharding import Mesh, Sharding

_MIB = 1 << 20
_PAIR = Mesh((2,), ("x",))
_ROWS = ir.ValueType("f32", (1024, 512), Sharding.from_spec(_PAIR, ("x", None)))  # 1 MiB on each device


def _function(name: str, part: str, *, donated: tuple[int, ...] = ()) -> ir.Function:
    return ir.Function(name, part, (_ROWS,), (_ROWS,), digest=ir.digest_of(name.encode()), donated=donated)


def _chain(*parts: str, donated: tuple[int, ...] = (), given_up: bool = False) -> ir.Program:
    """One function after the other, each on its slice, beginning with an argument on the first."""
    builder = ir.ProgramBuilder("chain")
    for part in dict.fromkeys(parts):
        builder.slice(part, _PAIR)
    value = builder.argument("f32", _ROWS.shape, sharding=_ROWS.sharding, slice=parts[0], name="v", donated=given_up)
    for number, part in enumerate(parts):
        (value,) = builder.compute(_function(f"f{number}", part, donated=donated), [value], names=[f"y{number}"])
    return ir.infer_transfers(builder.build([value]))


def _costs(program: ir.Program, **cost: float) -> dict[str, ir.FunctionCost]:
    return {
        function.name: ir.FunctionCost(int(cost.get("extra", 0)), cost.get("seconds", 0.0))
        for function in program.functions
    }


def test_a_value_lives_until_its_last_use() -> None:
    program = _chain("s", "s", "s")
    found = ir.estimate(program, _costs(program, extra=100), {"s": range(2)}, 1e9)
    # The argument is the caller's; beside it the input and the output of the second or third function.
    assert found.peak_bytes == 3 * _MIB + 100
    assert found.peak_at == found.peak_function == "f1"
    assert [(value.name, value.shard_bytes) for value in found.live] == [("v", _MIB), ("y0", _MIB), ("y1", _MIB)]


def test_a_donated_argument_makes_room() -> None:
    program = _chain("s", "s", "s", given_up=True)
    assert ir.estimate(program, _costs(program), {"s": range(2)}, 1e9).peak_bytes == 2 * _MIB


def test_memory_that_a_function_takes_over_counts_once() -> None:
    program = _chain("s", "s", "s", given_up=True, donated=(0,))
    assert ir.estimate(program, _costs(program), {"s": range(2)}, 1e9).peak_bytes == _MIB
    kept = _chain("s", "s", "s", donated=(0,))  # of the argument it gets a copy, since the caller keeps it
    assert ir.estimate(kept, _costs(kept), {"s": range(2)}, 1e9).peak_bytes == 2 * _MIB


def test_slices_on_the_same_devices_share_their_memory() -> None:
    program = _chain("s", "t")
    apart = ir.estimate(program, _costs(program), {"s": range(2), "t": range(2, 4)}, 1e9)
    together = ir.estimate(program, _costs(program), {"s": range(2), "t": range(2)}, 1e9)
    assert apart.peak_bytes == 2 * _MIB
    assert together.peak_bytes == 3 * _MIB  # while y0 goes from s to t
    assert {value.name for value in together.live} == {"v", "y0", "y0.t"}


def test_time_is_that_of_the_longest_way() -> None:
    builder = ir.ProgramBuilder("fork")
    for part in ("s", "t"):
        builder.slice(part, _PAIR)
    v = builder.argument("f32", _ROWS.shape, sharding=_ROWS.sharding, slice="s", name="v")
    w = builder.argument("f32", _ROWS.shape, sharding=_ROWS.sharding, slice="t", name="w")
    results: list[ir.Handle] = []
    for _ in range(3):
        results += builder.compute(_function("a", "s"), [v])
        results += builder.compute(_function("b", "t"), [w])
    program = ir.infer_transfers(builder.build(results))
    costs = _costs(program, seconds=2.0)
    assert ir.estimate(program, costs, {"s": range(2), "t": range(2, 4)}, 1e9).seconds == 6.0
    assert ir.estimate(program, costs, {"s": range(2), "t": range(1, 3)}, 1e9).seconds == 12.0


def test_a_transfer_takes_its_bytes_over_the_link() -> None:
    program = _chain("s", "t")
    found = ir.estimate(program, _costs(program, seconds=1.0), {"s": range(2), "t": range(2, 4)}, float(_MIB))
    assert found.seconds == 3.0


def test_sizes_of_shards() -> None:
    for dtype, size in (("f32", 4), ("bf16", 2), ("pred", 1), ("f8e4m3fn", 1), ("c128", 16), ("u8", 1)):
        divided = ir.ValueType(dtype, (8, 4), Sharding.from_spec(_PAIR, ("x", None)))
        assert ir.shard_bytes(divided) == 16 * size
        assert ir.shard_bytes(ir.ValueType(dtype, (8, 4), Sharding.replicated(_PAIR))) == 32 * size


def test_groups_are_named_by_their_axes() -> None:
    mesh = Mesh((2, 2, 2), ("data", "fsdp", "model"))
    assert programs.axes_of("all-reduce", [], mesh) == "data,fsdp,model"
    assert programs.axes_of("all-reduce", [[0, 1], [2, 3], [4, 5], [6, 7]], mesh) == "model"
    assert programs.axes_of("all-gather", [[0, 4], [1, 5], [2, 6], [3, 7]], mesh) == "data"
    assert programs.axes_of("all-reduce", [[4, 0, 2, 6], [5, 1, 3, 7]], mesh) == "data,fsdp"
    assert programs.axes_of("all-reduce", [[0, 3], [1, 2], [4, 7], [5, 6]], mesh) == "4 groups of 2"
    assert programs.axes_of("collective-permute", [[0, 1], [1, 0]], mesh) == "2 pairs"


def test_every_choice_of_axes_is_found_again() -> None:
    mesh = Mesh((2, 3, 2), ("a", "b", "c"))
    positions = range(mesh.size)
    for count in (1, 2, 3):
        for chosen in itertools.combinations(range(3), count):
            groups: dict[tuple[int, ...], list[int]] = {}
            for position in positions:
                at = mesh.coordinates(position)
                groups.setdefault(tuple(at[axis] for axis in range(3) if axis not in chosen), []).append(position)
            names = ",".join(mesh.axis_names[axis] for axis in chosen)
            assert programs.axes_of("all-reduce", list(groups.values()), mesh) == names


def test_a_plugin_that_compiles_only_for_what_is_here_is_named() -> None:
    here = platforms.find_plugin("cpu")
    chip = platforms.CHIPS["v5e"]
    target = platforms.Target("v5e:1x1", chip, 1, 1, here, "v5e:1x1", {}, {})
    bundle = programs.Bundle(ir.ProgramBuilder("empty").build([]), {})
    with pytest.raises(core.InvalidOption, match=r"target v5e:1x1 must be one that plugin .* compiles for, and .*CPU"):
        programs.compile_for(bundle, target)
