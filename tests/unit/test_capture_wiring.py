"""What recordings of a step have in common, and the plans that replay it: on recordings written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ptpathways.frontend._capture_plan import lower
from ptpathways.frontend._capture_wiring import (
    Different,
    Feed,
    Number,
    Observed,
    Rate,
    Result,
    Seed,
    State,
    Uncapturable,
    Upload,
    Wiring,
    is_baked,
    merge,
    number_bits,
    seed_after,
    seed_chain,
    wire,
)


class Recording:
    """Values with numbers of their own, and the events that made them."""

    def __init__(self, first: int = 100) -> None:
        self.values: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self._next = first

    def value(self, device: int = 0, scalar: int | None = None, dtype: str = "f32") -> int:
        self._next += 1
        dims: list[int] = [] if scalar is not None else [4]
        self.values[self._next] = {"dtype": dtype, "dims": dims, "device": device, "scalar": scalar, "value": object()}
        return self._next

    def upload(self, digest: int = 0, **more: Any) -> int:
        token = self.value(**more)
        self.events.append({"kind": "upload", "value": token, "digest": digest})
        return token

    def run(self, *arguments: int, results: int = 1, device: int = 0, donated: tuple[int, ...] = ()) -> list[int]:
        made = [self.value(device) for _ in range(results)]
        self.events.append(
            {
                "kind": "run",
                "function": 0,
                "identity": 7,
                "what": "function 'f'",
                "devices": [device],
                "whole": True,
                "arguments": [list(arguments)],
                "results": [made],
                "donated": list(donated),
            }
        )
        return made

    def copy(self, source: int, device: int) -> int:
        made = self.value(device)
        self.events.append({"kind": "copy", "source": source, "result": made})
        return made

    def wiring(self, state: int, after: int, returned: int, **more: Any) -> Wiring:
        """Of a step with one state tensor and one returned one."""
        recording = {"events": self.events, "values": self.values, "functions": []}
        before = {(state,): State("weight"), **more.pop("before", {})}
        return wire(Observed(recording, before, {"weight": (after,)}, [((returned,),)], **more))


def step(scalar: int, first: int = 100, digest: int = 5, seed: int = 12345, rates: Any = None) -> Wiring:
    """weight, loss = f(weight, batch, number, seed)"""
    recording = Recording(first)
    weight = recording.value()
    batch = recording.upload(digest)
    number, drawn = recording.upload(scalar=scalar), recording.upload(scalar=seed, dtype="s64")
    new, loss = recording.run(weight, batch, number, drawn, results=2, donated=(0,))
    return recording.wiring(weight, new, loss, parts=lambda dims: {0: [digest]}, seeds={0: seed}, rates=rates or {})


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
    recording.events.append({"kind": "fetch", "value": loss})
    with pytest.raises(Uncapturable, match=r"waits for a value.*item\(\)"):
        recording.wiring(weight, new, loss)


def test_a_fetch_of_something_else_does_not_matter() -> None:
    recording = Recording()
    weight = recording.value()
    recording.events.append({"kind": "fetch", "value": recording.value()})
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


def test_seeds_of_a_step_with_several_cuts_and_draws() -> None:
    chain = seed_chain(5)
    for cuts in range(3):
        multiplier, addend = chain[seed_after(5, cuts)]
        assert (multiplier * 5 + addend) % 2**64 == seed_after(5, cuts)
    assert chain[5 * 214013 + 2531011] == (214013, 2531011)


def two_hosts() -> Wiring:
    recording = Recording()
    weight, batch = recording.value(device=0), recording.value(device=0)
    (hidden,) = recording.run(weight, batch)
    moved = recording.copy(hidden, 3)
    (loss,) = recording.run(moved, device=3)
    back = recording.copy(loss, 1)
    (new,) = recording.run(back, device=1)
    (again,) = recording.run(weight, recording.copy(new, 0), donated=(0,))
    return recording.wiring(weight, again, loss, before={(batch,): Feed(0)})


def test_a_plan_per_host_with_transfers_between_them() -> None:
    lowered = lower(two_hosts(), {0: 0, 1: 0, 2: 1, 3: 1})
    here, there = lowered.plans
    assert [source for source, _, _ in lowered.inputs] == [State("weight"), Feed(0)]
    assert [donated for _, _, donated in lowered.inputs] == [True, False]
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


def gang(
    first: int, *, shards: tuple[int, ...] = (1, 2, 3, 4), parts: tuple[int, ...] = (1, 2, 3, 4), seed: int = 9
) -> Wiring:
    """weight, loss = f(weight, batch, seed) over four devices; the batch is uploaded in ``shards``, by digest, and the
    step's argument consists of ``parts``."""
    recording = Recording(first)
    rows = [
        (
            recording.value(device),
            recording.upload(digest, device=device),
            recording.upload(scalar=seed, dtype="s64", device=device),
        )
        for device, digest in enumerate(shards)
    ]
    results = [[recording.value(device) for _ in range(2)] for device in range(4)]
    run = {"kind": "run", "function": 0, "identity": 7, "what": "f", "whole": True, "donated": [0]}
    recording.events.append({**run, "arguments": [list(row) for row in rows], "results": results})
    before: dict[tuple[int, ...], Any] = {tuple(row[0] for row in rows): State("weight")}
    after, loss = (tuple(row[index] for row in results) for index in range(2))
    observed = Observed({"events": recording.events, "values": recording.values}, before, {"weight": after}, [(loss,)])
    observed.parts = lambda dims: {0: parts} if dims == (4,) else {}
    observed.seeds = dict.fromkeys(range(4), seed)
    return wire(observed)


def test_a_gang_takes_tensors_by_all_their_shards() -> None:
    merged = merge(gang(100), gang(500, shards=(5, 6, 7, 8), parts=(5, 6, 7, 8), seed=seed_after(9, 1)))
    (op,) = merged.ops
    weight, batch, seed = op.arguments
    assert weight == State("weight") and merged.written == {"weight": Result(0, 0)}
    assert isinstance(batch, Upload) and batch.feed() == Feed(0, (4,), (0, 1, 2, 3))
    assert isinstance(seed, Seed) and op.argument_types[0].devices == (0, 1, 2, 3)


def test_a_batch_that_every_device_gets_whole_is_the_argument_itself() -> None:
    merged = merge(gang(100, shards=(7,) * 4, parts=(7,)), gang(500, shards=(8,) * 4, parts=(8,)))
    batch = merged.ops[0].arguments[1]
    assert isinstance(batch, Upload) and batch.feed() == Feed(0)


def test_parts_of_equal_contents_are_told_apart_by_another_recording() -> None:
    alike = gang(100, shards=(7,) * 4, parts=(7,) * 4)
    with pytest.raises(Different, match="cannot be told which part of argument 0"):
        merge(alike, gang(500, shards=(8,) * 4, parts=(8,) * 4))
    batch = merge(alike, gang(500, shards=(2, 1, 4, 3))).ops[0].arguments[1]
    assert isinstance(batch, Upload) and batch.feed() == Feed(0, (4,), (1, 0, 3, 2))


def test_a_gang_over_several_hosts_is_in_the_plan_of_each() -> None:
    lowered = lower(gang(100), {0: 0, 1: 0, 2: 1, 3: 1})
    assert [plan["host"] for plan in lowered.plans] == [0, 1]
    for plan, devices in zip(lowered.plans, ([0, 1], [2, 3]), strict=True):
        assert [step["kind"] for step in plan["steps"]] == ["execute"]
        assert plan["steps"][0]["donated"] == [0] and plan["channels"] == 0
        assert all(slot["devices"] == devices == slot["shards"] for slot in plan["slots"])
        assert -1 not in plan["inputs"] and -1 not in plan["outputs"]
    assert [port["devices"] for port in lowered.input_ports()] == [[0, 1, 2, 3]] * 3
    assert [donated for _, _, donated in lowered.inputs] == [True, False, False]
