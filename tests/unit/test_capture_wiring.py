"""What recordings of a step have in common, and the plans that replay it: on recordings written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptpathways.frontend.plans._move import WHOLE, tile_box
from ptpathways.frontend.plans._move import plan as plan_movement
from ptpathways.frontend.plans._plan import lower
from ptpathways.frontend.plans._seeds import MASK, seed_after, seed_at_cut, seed_chain
from ptpathways.frontend.plans._wiring import (
    Different,
    Feed,
    Held,
    Number,
    Observed,
    Rate,
    Result,
    Seed,
    State,
    Type,
    Uncapturable,
    Upload,
    Wiring,
    is_baked,
    merge,
    number_bits,
    wire,
)
from ptpathways.sharding import Tiling


class Recording:
    """Values with numbers of their own, and the events that made them."""

    def __init__(self, first: int = 100) -> None:
        self.values: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self._next = first

    def value(
        self,
        device: int = 0,
        scalar: int | None = None,
        dtype: str = "f32",
        dims: tuple[int, ...] = (4,),
        devices: tuple[int, ...] | None = None,
        tiling: Tiling | None = None,
    ) -> int:
        """One on the device of the same number in the cluster, unless ``devices`` says otherwise."""
        self._next += 1
        dims = () if scalar is not None else dims
        if tiling is not None and scalar is not None:
            tiling = ((), tiling[1])
        parts = tiling[0] if tiling is not None else (1,) * len(dims)
        self.values[self._next] = {
            "dtype": dtype,
            "dims": dims,
            "shard_dims": tuple(-(-size // count) for size, count in zip(dims, parts, strict=True)),
            "device": device,
            "devices": devices or (device,),
            "tiling": tiling,
            "scalar": scalar,
            "value": object(),
        }
        return self._next

    def upload(self, digest: int = 0, **more: Any) -> int:
        token = self.value(**more)
        self.events.append({"kind": "upload", "value": token, "digest": digest})
        return token

    def run(
        self,
        *arguments: int,
        results: int = 1,
        donated: tuple[int, ...] = (),
        passed: tuple[int, ...] = (),
        **more: Any,
    ) -> list[int]:
        made = [self.value(**more) for _ in range(results)]
        self.events.append(
            {
                "kind": "run",
                "function": 0,
                "identity": 7,
                "what": "function 'f'",
                "device": more.get("device", 0),
                "arguments": list(arguments),
                "results": made,
                "donated": list(donated),
                "passed": list(passed),
            }
        )
        return made

    def copy(self, source: int, device: int, **more: Any) -> int:
        made = self.value(device, **more)
        self.events.append({"kind": "copy", "source": source, "result": made})
        return made

    def wiring(self, state: int, after: int, returned: int, **more: Any) -> Wiring:
        """Of a step with one state tensor and one returned one."""
        recording = {"events": self.events, "values": self.values, "functions": []}
        before = {state: State("weight"), **more.pop("before", {})}
        return wire(Observed(recording, before, {"weight": after}, [Held(returned)], **more))


def step(scalar: int, first: int = 100, digest: int = 5, seed: int = 12345, rates: Any = None, **more: Any) -> Wiring:
    """weight, loss = f(weight, batch, number, seed)"""
    recording = Recording(first)
    weight = recording.value(**more)
    batch = recording.upload(digest, **more)
    number = recording.upload(scalar=scalar, **more)
    drawn = recording.upload(scalar=seed, dtype="s64", **more)
    new, loss = recording.run(weight, batch, number, drawn, results=2, donated=(0,), **more)
    return recording.wiring(weight, new, loss, digests={0: digest}, seeds={0: seed}, rates=rates or {})


def test_a_step_that_repeats_is_explained() -> None:
    one = step(1, seed=12345)
    other = step(1, first=500, digest=6, seed=seed_after(12345, 1))
    merged = merge(one, other)
    (op,) = merged.ops
    assert op.arguments[0] == State("weight")
    assert isinstance(op.arguments[1], Upload) and op.arguments[1].feed() == Feed(0)
    assert isinstance(op.arguments[2], Number) and op.arguments[2].bits == 1
    assert isinstance(op.arguments[3], Seed) and (op.arguments[3].multiplier, op.arguments[3].addend) == (1, 0)
    assert merged.written == {"weight": Result(0, 0)} and merged.returned == (Result(0, 1),)


def test_a_number_that_follows_an_option_becomes_an_argument_once_the_option_changes() -> None:
    def at(rate: float, first: int) -> Wiring:
        bits = number_bits(-rate, "f32")
        assert bits is not None
        return step(bits, first, rates={"lr": rate, "-lr": -rate})

    same = merge(at(0.1, 100), at(0.1, 200))
    assert isinstance(same.ops[0].arguments[2], Number) and not same.free
    changed = merge(same, at(0.05, 300))
    assert changed.ops[0].arguments[2] == Rate("f32", ("-lr",)) and changed.free == {"lr", "-lr"}
    assert merge(changed, at(0.02, 400)).ops[0].arguments[2] == Rate("f32", ("-lr",))


def two_groups(first: float, second: float, number: float, start: int) -> Wiring:
    bits = number_bits(number, "f32")
    assert bits is not None
    return step(bits, start, rates={"0.lr": first, "1.lr": second})


def test_options_that_moved_together_are_not_taken_for_one() -> None:
    merged = merge(two_groups(0.5, 0.5, 0.5, 100), two_groups(0.25, 0.25, 0.25, 300))
    rate = merged.ops[0].arguments[2]
    assert rate == Rate("f32", ("0.lr", "1.lr"))
    assert rate.bits({"0.lr": 0.125, "1.lr": 0.125}) == number_bits(0.125, "f32")
    assert rate.bits({"0.lr": 0.125, "1.lr": 0.0}) is None
    parted = merge(merged, two_groups(0.125, 0.0625, 0.0625, 500))
    assert parted.ops[0].arguments[2] == Rate("f32", ("1.lr",))
    with pytest.raises(Different, match=r"no longer follows 0\.lr or 1\.lr"):
        merge(merged, two_groups(0.125, 0.0625, 0.75, 500))


def test_an_option_that_changes_by_less_than_the_numbers_precision_is_followed() -> None:
    """As under a cosine of very many steps, at first."""
    merged = merge(two_groups(0.1, 0.2, 0.1, 100), two_groups(0.1 * (1 - 1e-10), 0.2, 0.1, 300))
    assert merged.ops[0].arguments[2] == Rate("f32", ("0.lr",)) and merged.free == {"0.lr"}


def test_a_number_that_nothing_explains_is_named_with_both_values() -> None:
    first, second = (number_bits(value, "f32") for value in (0.5, 0.25))
    assert first is not None and second is not None
    with pytest.raises(Different, match=r"was 0\.5 at first and 0\.25 then"):
        merge(step(first), step(second, 300))


def test_a_tensor_made_on_the_client_anew_is_no_argument() -> None:
    one, other = Recording(), Recording(500)
    wirings = []
    for recording, digest in ((one, 3), (other, 4)):
        weight = recording.value()
        new, loss = recording.run(weight, recording.upload(digest), results=2)
        wirings.append(recording.wiring(weight, new, loss))
    with pytest.raises(Different, match="makes on the CPU anew"):
        merge(*wirings)


def test_a_seed_set_to_the_same_value_each_time_is_a_number_still() -> None:
    one = step(1, seed=99)
    merged = merge(one, step(1, first=500, seed=99))
    assert isinstance(merged.ops[0].arguments[3], Seed)


def test_waiting_for_a_value_is_refused() -> None:
    recording = Recording()
    weight = recording.value()
    new, loss = recording.run(weight, results=2)
    recording.events.append({"kind": "fetch", "value": loss, "own": True, "source": "train.py:3"})
    with pytest.raises(Uncapturable, match=r"waits for a value.*item\(\).* at train.py:3"):
        recording.wiring(weight, new, loss)


def test_waiting_for_what_was_there_is_refused_too() -> None:
    """All that the call does may depend on it."""
    recording = Recording()
    weight = recording.value()
    recording.events.append({"kind": "fetch", "value": weight, "own": True, "source": ""})
    new, loss = recording.run(weight, results=2)
    with pytest.raises(Uncapturable, match="waits for a value"):
        recording.wiring(weight, new, loss)


def test_what_another_thread_fetches_does_not_matter() -> None:
    recording = Recording()
    weight = recording.value()
    recording.events.append({"kind": "fetch", "value": recording.value(), "own": False, "source": ""})
    new, loss = recording.run(weight, results=2)
    assert recording.wiring(weight, new, loss).ops


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0])
def test_what_pytorch_xla_makes_part_of_the_computation(value: float) -> None:
    assert is_baked(value) and not is_baked(value + 0.5)


def test_numbers_as_bits() -> None:
    assert number_bits(1.0, "f32") == 0x3F800000
    assert number_bits(1.0, "bf16") == 0x3F80
    assert number_bits(1.0, "f16") == 0x3C00
    assert number_bits(1.0, "f64") == 0x3FF0000000000000
    assert number_bits(-1, "s64") == 2**64 - 1 and number_bits(3, "s32") == 3
    assert number_bits(1e300, "f16") is None and number_bits(None, "f32") is None and number_bits(1.5, "s32") is None


def test_what_was_drawn_since_a_cut_does_not_count_at_the_next() -> None:
    multiplier, addend = 214013, 2531011
    for cuts in (0, 1, 7):
        began = now = seed_after(12345, cuts)
        for _ in range(3):
            assert seed_at_cut(12345, now) == began
            now = (multiplier * now + addend) & MASK
    assert seed_at_cut(12345, 99) == 99  # somebody has set it


def test_seeds_of_a_step_with_several_cuts_and_draws() -> None:
    chain = seed_chain(5)
    for cuts in range(3):
        multiplier, addend = chain[seed_after(5, cuts)]
        assert (multiplier * 5 + addend) % 2**64 == seed_after(5, cuts)
    assert chain[5 * 214013 + 2531011] == (214013, 2531011)


def test_replicas_are_refused() -> None:
    recording = Recording()
    weight = recording.value()
    new, loss = recording.run(weight, results=2)
    recording.events.append({"kind": "gang", "what": "function 'g'"})
    with pytest.raises(Uncapturable, match="runs function 'g' as replicas"):
        recording.wiring(weight, new, loss)


def twins(first: int, digests: tuple[int, int]) -> Wiring:
    """A step whose two arguments have these contents."""
    recording = Recording(first)
    weight = recording.value()
    new, loss = recording.run(weight, *map(recording.upload, digests), results=2)
    return recording.wiring(weight, new, loss, digests=dict(enumerate(digests)))


def test_arguments_of_equal_contents_are_one_as_long_as_they_are_equal() -> None:
    merged = merge(twins(100, (5, 5)), twins(500, (6, 6)))
    _, *batches = merged.ops[0].arguments
    assert [batch.feed() for batch in batches if isinstance(batch, Upload)] == [Feed(0, (1,))] * 2
    assert len(lower(merged, {0: 0}).inputs) == 2
    parted = merge(merged, twins(900, (7, 8)))
    assert [batch.feed() for batch in parted.ops[0].arguments[1:] if isinstance(batch, Upload)] == [Feed(0), Feed(1)]


SLICE: dict[str, Any] = {"devices": (0, 1, 2, 3), "tiling": ((2,), (0, 1, 0, 1))}


def test_a_step_on_a_slice_is_as_one_on_a_device() -> None:
    merged = merge(step(1, **SLICE), step(1, first=500, digest=6, seed=seed_after(12345, 1), **SLICE))
    (op,) = merged.ops
    assert op.arguments[0] == State("weight") and op.argument_types[0].devices == (0, 1, 2, 3)
    assert isinstance(op.arguments[1], Upload) and op.arguments[1].feed() == Feed(0)
    assert isinstance(op.arguments[3], Seed)
    lowered = lower(merged, {0: 0, 1: 0, 2: 1, 3: 1})
    assert [plan["host"] for plan in lowered.plans] == [0, 1]
    for plan, devices in zip(lowered.plans, ([0, 1], [2, 3]), strict=True):
        assert [step["kind"] for step in plan["steps"]] == ["execute"]
        assert plan["steps"][0]["donated"] == [0] and plan["channels"] == 0
        assert all(slot["devices"] == devices == slot["shards"] for slot in plan["slots"])
        assert [slot["dims"] for slot in plan["slots"]] == [[2], [2], [], [], [2], [2]]
        assert -1 not in plan["inputs"] and -1 not in plan["outputs"]
    assert [port["devices"] for port in lowered.input_ports()] == [[0, 1, 2, 3]] * 4
    assert [given.donated for given in lowered.inputs] == [True, False, False, False]


def test_a_tensor_that_lies_another_way_makes_another_step() -> None:
    with pytest.raises(Different, match="lying another way"):
        merge(step(1, **SLICE), step(1, first=500, **{**SLICE, "tiling": ((4,), (0, 1, 2, 3))}))
    with pytest.raises(Different, match="on other devices"):
        merge(step(1, **SLICE), step(1, first=500, **{**SLICE, "devices": (0, 1, 2, 7)}))


def two_hosts() -> Wiring:
    recording = Recording()
    weight, batch = recording.value(device=0), recording.value(device=0)
    (hidden,) = recording.run(weight, batch)
    moved = recording.copy(hidden, 3)
    (loss,) = recording.run(moved, device=3)
    back = recording.copy(loss, 1)
    (new,) = recording.run(back, device=1)
    (again,) = recording.run(weight, recording.copy(new, 0), donated=(0,))
    return recording.wiring(weight, again, loss, before={batch: Feed(0)})


def test_a_plan_per_host_with_transfers_between_them() -> None:
    wiring = two_hosts()
    lowered = lower(wiring, {0: 0, 1: 0, 2: 1, 3: 1})
    here, there = lowered.plans
    assert [given.source for given in lowered.inputs] == [State("weight"), Feed(0)]
    assert [given.donated for given in lowered.inputs] == [True, False]
    kinds = [step["kind"] for step in here["steps"]]
    assert kinds.count("send") == 1 and kinds.count("receive") == 1 and kinds.count("copy") == 1
    assert [step["kind"] for step in there["steps"]][:2] == ["receive", "execute"]
    assert {step["channel"] for step in here["steps"] if step["kind"] == "send"} == {0}
    assert here["channels"] == there["channels"] == 2
    assert there["inputs"] == [-1, -1] and -1 not in here["inputs"]
    # The loss is kept at the second host, the weight at the first; everything in between is freed.
    assert [slot >= 0 for slot in here["outputs"]] == [True, False]
    freed = [slot for step in here["steps"] if step["kind"] == "free" for slot in step["slots"]]
    kept = {*here["outputs"], *here["inputs"]}
    assert sorted({*freed, *kept} - {-1}) == list(range(len(here["slots"])))


def test_copies_that_a_computation_only_passes_on_are_not_computed() -> None:
    def lowered(passed: tuple[int, ...], used_again: bool = False) -> list[list[str]]:
        recording = Recording()
        here, there = recording.value(device=0), recording.value(device=2)
        copies = [recording.copy(here, 2) for _ in range(2)]
        new, loss = recording.run(*copies, results=2, passed=passed, device=2)
        if used_again:
            recording.run(copies[0], device=2)
        wiring = recording.wiring(there, new, loss, before={here: Feed(0)})
        plans = lower(wiring, {0: 0, 2: 1}).plans
        slots = plans[1]["outputs"]
        assert len(set(slots)) == 2 and -1 not in slots
        return [[step["kind"] for step in plan["steps"]] for plan in plans]

    for order in ((0, 1), (1, 0)):
        assert lowered(order) == [["send", "send"], ["receive", "receive"]]
    computed: tuple[tuple[int, ...], ...] = ((), (0, -1), (0, 0))
    for passed in computed:
        assert lowered(passed)[1].count("execute") == 1
    assert lowered((0, 1), used_again=True)[1].count("execute") == 2


HOSTS = {device: device // 2 for device in range(8)}


def tensor(dims: tuple[int, ...], devices: tuple[int, ...], tiling: Tiling | None) -> Type:
    parts = tiling[0] if tiling is not None else (1,) * len(dims)
    shard = tuple(-(-size // count) for size, count in zip(dims, parts, strict=True))
    return Type("f32", dims, 0, devices, shard, tiling)


def carry_out(source: Type, target: Type) -> dict[int, np.ndarray[Any, Any]]:
    """The target's shards after a movement, by shard; as the hosts do it, who take a piece alone for all of a shard."""
    whole = np.arange(1, 1 + int(np.prod(source.dims)), dtype=np.int64).reshape(source.dims)
    movement = plan_movement(source, target, HOSTS)
    given = []
    for shard in range(len(source.devices)):
        box = tile_box(source, source.tiling[1][shard] if source.tiling else 0)
        padded = np.full(source.shard_dims, -1, dtype=np.int64)
        padded[tuple(map(slice, box.size))] = whole[box.slices()]
        given.append(padded)
    sent = []
    for send in movement.sends:
        sent.append(given[send.shard] if send.box == WHOLE else given[send.shard][send.box.slices()])
    made: dict[int, np.ndarray[Any, Any]] = {}
    for copy in movement.copies:
        assert HOSTS[source.devices[copy.source]] == HOSTS[target.devices[copy.target]]
        made[copy.target] = given[copy.source]
    for shard, pieces in movement.receives.items():
        host = HOSTS[target.devices[shard]]
        assert all(movement.sends[piece.channel].host == host for piece in pieces)
        assert all(HOSTS[source.devices[movement.sends[p.channel].shard]] == p.host for p in pieces)
        if len(pieces) == 1:
            made[shard] = sent[pieces[0].channel].reshape(target.shard_dims)
            continue
        made[shard] = np.full(target.shard_dims, -1, dtype=np.int64)
        for piece in pieces:
            made[shard][piece.box.slices()] = sent[piece.channel]
    for copy in movement.spreads:
        assert HOSTS[target.devices[copy.source]] == HOSTS[target.devices[copy.target]]
        made[copy.target] = made[copy.source]
    for shard, values in made.items():
        box = tile_box(target, target.tiling[1][shard] if target.tiling else 0)
        assert values.shape == target.shard_dims
        assert np.array_equal(values[tuple(map(slice, box.size))], whole[box.slices()])
    assert sorted(made) == list(range(len(target.devices)))
    return made


def layouts(rank: int) -> list[tuple[tuple[int, ...], Tiling | None]]:
    """Devices and tilings of a tensor with that many dimensions."""
    found: list[tuple[tuple[int, ...], Tiling | None]] = [((3,), None), ((0, 2, 4, 6), ((1,) * rank, (0, 0, 0, 0)))]
    if rank >= 1:
        found += [((0, 1, 2, 3), ((4, *(1,) * (rank - 1)), (0, 1, 2, 3)))]
        found += [((4, 5, 0, 1), ((2, *(1,) * (rank - 1)), (0, 1, 0, 1)))]
        found += [((6, 4, 2), ((*(1,) * (rank - 1), 3), (2, 0, 1)))]
    if rank >= 2:
        found += [((0, 1, 2, 3), ((2, 2, *(1,) * (rank - 2)), (0, 1, 2, 3)))]
        found += [((7, 5, 3, 1), ((1, 2, *(1,) * (rank - 2)), (0, 0, 1, 1)))]
    return found


@pytest.mark.parametrize("dims", [(), (1,), (5,), (8,), (4, 6), (5, 7), (1, 2), (3, 2, 5), (0, 4)])
def test_movements_between_any_two_ways_to_lie(dims: tuple[int, ...]) -> None:
    """Also uneven ones, with shards that are all padding."""
    for source in layouts(len(dims)):
        for target in layouts(len(dims)):
            carry_out(tensor(dims, *source), tensor(dims, *target))


def test_what_lies_right_is_copied_and_what_is_alike_is_sent_once() -> None:
    divided = tensor((8,), (0, 1, 2, 3), ((4,), (0, 1, 2, 3)))
    same = plan_movement(divided, divided, HOSTS)
    assert not same.sends and not same.receives and [tuple(copy) for copy in same.copies] == [(i, i) for i in range(4)]
    everywhere = tensor((8,), (4, 5, 6, 7), ((1,), (0,) * 4))
    gathered = plan_movement(divided, everywhere, HOSTS)
    assert len(gathered.sends) == 8 and sorted(gathered.receives) == [0, 2]
    assert [tuple(copy) for copy in gathered.spreads] == [(0, 1), (2, 3)]
    spread = plan_movement(everywhere, tensor((8,), (0, 1), ((2,), (0, 1))), HOSTS)
    assert {everywhere.devices[send.shard] // 2 for send in spread.sends} == {2, 3}  # in turn


def test_a_copy_between_slices_is_in_the_plans_of_their_hosts() -> None:
    """A step that spans slices: from halves on two devices of the first host to thirds on three of two others."""
    recording = Recording()
    weight = recording.value(devices=(0, 1), tiling=((2,), (0, 1)))
    thirds = recording.copy(weight, 1, devices=(2, 4, 5), tiling=((3,), (0, 1, 2)))
    (loss,) = recording.run(thirds, device=1, devices=(2, 4, 5), tiling=((3,), (0, 1, 2)))
    (new,) = recording.run(weight, devices=(0, 1), tiling=((2,), (0, 1)), donated=(0,))
    wiring = recording.wiring(weight, new, loss)
    lowered = lower(wiring, HOSTS)
    assert [plan["host"] for plan in lowered.plans] == [0, 1, 2]
    first, second, third = ([step for step in plan["steps"] if step["kind"] != "free"] for plan in lowered.plans)
    assert [step["kind"] for step in first] == ["send"] * len(first[:-1]) + ["execute"]
    assert [step["kind"] for step in third] == ["receive", "receive", "execute"]
    sends: dict[int, int] = {}
    pieces: dict[int, int] = {}
    for step in first[:-1]:
        sends[step["channel"]] = step["host"]
    for host, steps in ((1, second), (2, third)):
        for step in steps:
            pieces.update((piece["channel"], host) for piece in step.get("pieces", ()))
    assert sends == pieces and sorted(sends) == list(range(lowered.plans[0]["channels"]))
    assert [slot["dims"] for slot in lowered.plans[2]["slots"]] == [[2], [2]]
    assert lowered.plans[2]["slots"][0]["shards"] == [1, 2]
