"""sharding: meshes, placements, what lies where, and moving it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptpathways.core import InvalidSharding
from ptpathways.sharding import (
    Box,
    Mesh,
    Move,
    Replicate,
    Shard,
    Sharding,
    op_sharding,
    parse_mesh,
    parse_sharding,
    reshard,
)

MESH = Mesh((2, 4), ("data", "model"))


def test_a_mesh_numbers_its_devices_by_rows() -> None:
    assert MESH.size == 8
    assert MESH.coordinates(6) == (1, 2)
    assert parse_mesh(str(MESH)) == MESH


@pytest.mark.parametrize(
    ("shape", "names", "message"),
    [
        ((), (), "1 to 3 axes"),
        ((1, 1, 1, 1), ("a", "b", "c", "d"), "1 to 3 axes"),
        ((0,), ("a",), "at least one device"),
        ((2, 2), ("a",), "needs 2 axis names"),
        ((2, 2), ("a", "a"), "must differ"),
        ((2,), ("a b",), "identifier"),
    ],
)
def test_a_mesh_that_cannot_be_is_refused(shape: tuple[int, ...], names: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidSharding, match=message):
        Mesh(shape, names)


def test_placements_per_axis_say_what_a_spec_per_dimension_says() -> None:
    assert Sharding(MESH, [Shard(0), Replicate()]) == Sharding.from_spec(MESH, ("data", None))
    assert Sharding(MESH, [Shard(1), Shard(1)]) == Sharding.from_spec(MESH, (None, ("data", "model")))
    assert Sharding(MESH, [Shard(-1), Replicate()], rank=2) == Sharding.from_spec(MESH, (None, "data"))
    assert Sharding.from_spec(MESH, ("model", None)).placements == (Replicate(), Shard(0))
    assert Sharding.from_spec(MESH, ()).is_replicated
    assert Sharding.from_spec(MESH, (("model", "data"),)) != Sharding.from_spec(MESH, (("data", "model"),))


def test_what_lies_where() -> None:
    sharding = Sharding.from_spec(MESH, ("model", "data"))
    assert sharding.shard_shape((8, 6, 5)) == (2, 3, 5)
    assert sharding.box((8, 6, 5), 6) == Box((4, 3, 0), (2, 3, 5))  # data=1, model=2


def test_a_dimension_that_does_not_divide_is_named() -> None:
    with pytest.raises(
        InvalidSharding,
        match=r"dimension 1 of shape \(4, 6\) has 6 elements, which mesh axis 'model' \(size 4\) does not divide",
    ):
        Sharding(MESH, [Shard(0), Shard(1)]).shard_shape((4, 6))
    with pytest.raises(InvalidSharding, match="splits dimension 1, which a tensor of shape"):
        Sharding(MESH, [Shard(0), Shard(1)]).shard_shape((4,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sharding(MESH, [Shard(0)]), "needs 2"),
        (lambda: Sharding(MESH, [Shard(-1), Replicate()]), "not known here"),
        (lambda: Sharding(MESH, [Shard(0), "model"]), "a placement is"),
        (lambda: Sharding.from_spec(MESH, ("seq",)), "no axis 'seq'"),
        (lambda: Sharding.from_spec(MESH, ("data", "data")), "more than once"),
        (lambda: Sharding.from_spec(MESH, "data"), "an entry per dimension"),
        (lambda: Sharding.replicated(MESH).box((2,), 8), "positions 0 to 7"),
    ],
)
def test_shardings_that_cannot_be_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidSharding, match=message):
        make()


def test_torchs_own_placements_are_understood_and_partial_sums_refused() -> None:
    torch = pytest.importorskip("torch.distributed.tensor")
    assert Sharding(MESH, [torch.Shard(1), torch.Replicate()]) == Sharding(MESH, [Shard(1), Replicate()])
    with pytest.raises(InvalidSharding, match="still to be summed"):
        Sharding(MESH, [torch.Partial(), torch.Replicate()])


def test_text_comes_back() -> None:
    for spec in [(), ("data",), (None, "model"), (("model", "data"), None), (("data", "model"),)]:
        sharding = Sharding.from_spec(MESH, spec)
        assert parse_sharding(str(sharding)) == sharding
        assert parse_sharding(sharding.text(3), MESH) == sharding
    with pytest.raises(InvalidSharding, match="a mesh reads like"):
        parse_sharding("{x: -}")


def test_xlas_description() -> None:
    assert str(Sharding.from_spec(MESH, (None, "data")).op_sharding(2)) == (
        "{devices=[1,2,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"
    )
    turned = Sharding.from_spec(MESH, ("model",)).op_sharding(1)
    assert turned.tile_dimensions == (4, 2) and turned.tile_devices == (0, 4, 1, 5, 2, 6, 3, 7)
    whole = Sharding.from_spec(MESH, (("data", "model"),)).op_sharding(1)
    assert str(whole) == "{devices=[8]0,1,2,3,4,5,6,7}"
    assert whole.to_proto() == bytes([8, 3, 26, 1, 8, 34, 8, 0, 1, 2, 3, 4, 5, 6, 7])
    assert turned.to_proto()[-2:] == bytes([6 << 3, 1])
    replicated = Sharding.replicated(MESH).op_sharding(2)
    assert replicated.is_replicated and str(replicated) == "{replicated}" and replicated.to_proto() == bytes([8, 0])
    assert op_sharding((1, 1), [(0, 0)]) == replicated


def test_layouts_are_compared_by_what_lies_where() -> None:
    other = Mesh((8,), ("all",))
    assert Sharding.from_spec(MESH, (("data", "model"),)).same_layout(Sharding.from_spec(other, ("all",)), 1)
    assert not Sharding.from_spec(MESH, (("model", "data"),)).same_layout(Sharding.from_spec(other, ("all",)), 1)
    assert Sharding.replicated(MESH).same_layout(Sharding.replicated(other), 2)
    assert not Sharding.replicated(MESH).same_layout(Sharding.replicated(Mesh((4,), ("all",))), 2)


# --- moving


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> Sharding:
    """A sharding of a tensor of that rank on a mesh of one to three axes of 1, 2, 3 or 4 devices."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3).filter(lambda s: math.prod(s) <= 12))
    mesh = Mesh(shape, [f"a{i}" for i in range(len(shape))])
    spec: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(mesh.axis_names)):
        where = draw(st.integers(-1, rank - 1))
        if where >= 0:
            spec[where].append(name)
    return Sharding.from_spec(mesh, spec)


@st.composite
def problems(draw: st.DrawFn) -> tuple[tuple[int, ...], Sharding, list[int], Sharding, list[int], dict[int, int]]:
    rank = draw(st.integers(0, 3))
    source, target = draw(layouts(rank)), draw(layouts(rank))
    shape = tuple(
        math.lcm(source.parts(dim), target.parts(dim)) * draw(st.sampled_from([0, 1, 1, 2])) for dim in range(rank)
    )
    devices = list(range(draw(st.integers(max(source.mesh.size, target.mesh.size), 24))))
    per_host = draw(st.integers(1, 5))
    return (
        shape,
        source,
        draw(st.permutations(devices))[: source.mesh.size],
        target,
        draw(st.permutations(devices))[: target.mesh.size],
        {device: device // per_host for device in devices},
    )


@given(problems())
@settings(max_examples=300, deadline=None)
def test_every_element_of_every_target_shard_is_written_once_and_rightly(
    problem: tuple[tuple[int, ...], Sharding, list[int], Sharding, list[int], dict[int, int]],
) -> None:
    shape, source, source_devices, target, target_devices, hosts = problem
    whole = np.arange(math.prod(shape)).reshape(shape)
    shards = [whole[source.box(shape, p).slices()] for p in range(source.mesh.size)]
    made = [np.full(target.shard_shape(shape), -1) for _ in range(target.mesh.size)]
    writes = [np.zeros(target.shard_shape(shape), int) for _ in range(target.mesh.size)]
    fed = set()
    for move in reshard(shape, source, source_devices, target, target_devices, hosts.__getitem__):
        part = shards[move.source_position][move.source_box.slices()]
        made[move.target_position][move.target_box.slices()] = part
        writes[move.target_position][move.target_box.slices()] += 1
        fed.add(move.target_position)
        # a copy on the same device, else on the same host, is preferred to one elsewhere
        tile = source.tile(move.source_position, len(shape))
        holders = [p for p in range(source.mesh.size) if source.tile(p, len(shape)) == tile]
        device = target_devices[move.target_position]
        if device in [source_devices[p] for p in holders]:
            assert source_devices[move.source_position] == device
        elif hosts[device] in [hosts[source_devices[p]] for p in holders]:
            assert hosts[source_devices[move.source_position]] == hosts[device]
    assert fed == set(range(target.mesh.size))
    for position in range(target.mesh.size):
        assert (writes[position] == 1).all()
        assert np.array_equal(made[position], whole[target.box(shape, position).slices()])


def _moves(source: Sharding, target: Sharding, apart: int = 1000) -> list[Move]:
    shape = (64, 64)
    return reshard(
        shape,
        source,
        range(source.mesh.size),
        target,
        range(apart, apart + target.mesh.size),
        lambda device: device // 4,
    )


def test_copies_share_the_sending() -> None:
    sixteen = Mesh((16,), ("x",))
    moves = _moves(Sharding.replicated(sixteen), Sharding.from_spec(sixteen, ("x",)))
    assert sorted(move.source_position for move in moves) == list(range(16))
    moves = _moves(Sharding.replicated(Mesh((8,), ("x",))), Sharding.replicated(Mesh((2,), ("x",))))
    assert len({move.source_position // 4 for move in moves}) == 2, "two senders, of two hosts"


def test_nothing_passes_through_one_host() -> None:
    """Rows to columns over 16 devices of 4 hosts: every device sends its own sixteenth to each, and nobody more."""
    sixteen = Mesh((16,), ("x",))
    moves = _moves(Sharding.from_spec(sixteen, ("x", None)), Sharding.from_spec(sixteen, (None, "x")))
    sent, got = [0] * 16, [0] * 16
    for move in moves:
        sent[move.source_position] += move.source_box.elements
        got[move.target_position] += move.target_box.elements
    assert sent == got == [64 * 64 // 16] * 16


def test_a_shard_that_stays_is_one_move() -> None:
    big = Mesh((512, 4), ("x", "y"))
    rows = Sharding.from_spec(big, (("x", "y"),))
    moves = reshard((4096, 8), rows, range(2048), rows, range(2048), lambda device: device // 4)
    assert len(moves) == 2048
    assert all(move.source_position == move.target_position and move.source_box.covers((2, 8)) for move in moves)


def test_devices_must_be_one_per_position() -> None:
    sharding = Sharding.replicated(Mesh((2,), ("x",)))
    with pytest.raises(InvalidSharding, match="needs 2 different devices"):
        reshard((2,), sharding, [0, 0], sharding, [0, 1], lambda device: 0)
