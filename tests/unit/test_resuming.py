"""data: a loop that goes on in the middle sees what it would have seen. No devices."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler
from torch.utils.data import WeightedRandomSampler as Weighted

from ptpathways import frontend
from ptpathways.data import DistributedSamplerWarning, Feed

WHOLE = frontend.BatchLayout(None, {}, ())
SAMPLES = 11


class Numbers(Dataset[torch.Tensor]):
    """Counts which samples were made."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        self.made.append(index)
        return torch.tensor(float(index))


class Augmented(Numbers):
    """Draws from all three generators."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + torch.rand(()) + random.random() + np.random.rand()


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(SAMPLES):
            yield index + torch.rand(())


class Stateful:
    """A loader that keeps its own state, as torchdata's do; its epochs differ."""

    def __init__(self) -> None:
        self.epoch = self.next = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.next < 4:
            self.next += 1
            yield torch.tensor(self.epoch * 10.0 + self.next)
        self.epoch, self.next = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.next = state["epoch"], state["next"]


def own_generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


LOADERS: dict[str, Callable[[], Any]] = {
    "in order": lambda: DataLoader(Numbers(), batch_size=3),
    "shuffled": lambda: DataLoader(Numbers(), batch_size=3, shuffle=True, drop_last=True),
    "augmented": lambda: DataLoader(Augmented(), batch_size=3, shuffle=True),
    "own generator": lambda: DataLoader(Numbers(), batch_size=3, shuffle=True, generator=own_generator()),
    "sampler's generator": lambda: DataLoader(
        Numbers(), batch_size=3, sampler=RandomSampler(range(SAMPLES), True, 70, generator=own_generator())
    ),
    "weighted": lambda: DataLoader(Numbers(), batch_size=2, sampler=Weighted([1.0] * SAMPLES, SAMPLES)),
    "without batches": lambda: DataLoader(Numbers(), batch_size=None, shuffle=True),
    "workers": lambda: DataLoader(Numbers(), batch_size=3, shuffle=True, num_workers=1),
    "augmenting workers": lambda: DataLoader(Augmented(), batch_size=2, shuffle=True, num_workers=2),
    "persistent workers": lambda: DataLoader(
        Numbers(), batch_size=3, shuffle=True, num_workers=1, persistent_workers=True
    ),
    "a stream": lambda: DataLoader(Stream(), batch_size=3),
    "a list": lambda: [torch.tensor(float(index)) for index in range(4)],
    "its own state": Stateful,
}


@pytest.fixture(autouse=True)
def _no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "upload", lambda tensors, layout: tensors)
    monkeypatch.setattr(frontend, "step", lambda: None)
    monkeypatch.setattr(frontend, "cut_count", lambda: 0)


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def run(feed: Feed, epochs: int, save_at: tuple[int, int] | None = None) -> tuple[list[Any], Any]:
    """What the loop saw, and the state after so many batches of an epoch; 0: before it began."""
    seen: list[Any] = []
    state = None
    for epoch in range(epochs):
        if save_at == (epoch, 0):
            state = copy.deepcopy(feed.state_dict())
            seen.clear()
        for number, batch in enumerate(feed, 1):
            seen.append(batch.tolist())
            if save_at == (epoch, number):
                assert feed.position == (epoch, number)
                state = copy.deepcopy(feed.state_dict())
                seen.clear()
    return seen, state


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("save_at", [(0, 1), (1, 0), (1, 2), (1, "last")], ids=str)
def test_a_resumed_loop_sees_the_batches_that_were_left(name: str, save_at: tuple[int, Any]) -> None:
    make = LOADERS[name]
    if save_at[1] == "last":
        save_at = (save_at[0], sum(1 for _ in make()))
    seed(1)
    left, state = run(Feed(make(), WHOLE), 3, save_at)
    assert state is not None and left
    seed(2)
    resumed = Feed(make(), WHOLE)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    again = resumed.state_dict()
    assert (again["epoch"], again["batch"], again["start"]) == (state["epoch"], state["batch"], state["start"])
    assert run(resumed, 3 - save_at[0])[0] == left


def test_the_same_feed_goes_back_to_a_state_of_its_own() -> None:
    for name in ("persistent workers", "augmented"):
        seed(1)
        feed = Feed(LOADERS[name](), WHOLE)
        left, state = run(feed, 2, (0, 2))
        feed.load_state_dict(state)
        assert run(feed, 2)[0] == left


def test_what_the_loop_draws_is_not_taken_back() -> None:
    """A dataset that draws nothing, and a loop that does (a mixup, say): the loop's generators go on as at the save."""

    def loop(feed: Feed, drawn: list[float]) -> None:
        for _ in feed:
            drawn.append(float(torch.rand(())))

    seed(1)
    feed = Feed(DataLoader(Numbers(), batch_size=3), WHOLE)
    drawn: list[float] = []
    state = None
    for number, _ in enumerate(feed):
        drawn.append(float(torch.rand(())))
        if number == 1:
            state, drawn = feed.state_dict(), []
    seed(2)
    assert state is not None
    again: list[float] = []
    resumed = Feed(DataLoader(Numbers(), batch_size=3), WHOLE)
    resumed.load_state_dict(state)
    loop(resumed, again)
    assert again == drawn and len(drawn) == 2


def test_samples_passed_over_are_not_made() -> None:
    seed(1)
    _, state = run(Feed(DataLoader(Numbers(), batch_size=3, shuffle=True), WHOLE), 1, (0, 2))
    dataset = Numbers()
    feed = Feed(DataLoader(dataset, batch_size=3, shuffle=True), WHOLE)
    feed.load_state_dict(state)
    rest = [int(index) for batch in run(feed, 1)[0] for index in batch]
    assert dataset.made == rest and len(rest) == SAMPLES - 6


def test_leaving_a_loop_begins_the_next_epoch() -> None:
    feed = Feed(DataLoader(Numbers(), batch_size=3), WHOLE)
    for _ in feed:
        break
    assert feed.position == (1, 0)
    assert len(run(feed, 1)[0]) == 4 and feed.position == (2, 0)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_what_is_saved_while_an_error_is_handled_skips_no_sample(error: type[BaseException]) -> None:
    seed(5)
    feed, given = Feed(DataLoader(Numbers(), batch_size=3, shuffle=True), WHOLE), []
    try:
        for batch in feed:
            given.append([int(index) for index in batch])
            if len(given) == 2:
                raise error
    except error:
        assert feed.position == (0, 2)
        state = feed.state_dict()
    assert feed.position == (1, 0)
    assert len(run(feed, 1)[0]) == 4 and feed.position == (2, 0)
    again = Feed(DataLoader(Numbers(), batch_size=3, shuffle=True), WHOLE)
    again.load_state_dict(state)
    rest = [[int(index) for index in batch] for batch in run(again, 1)[0]]
    assert sorted(index for batch in (*given, *rest) for index in batch) == list(range(SAMPLES))
    assert again.position == (1, 0)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: DataLoader(Numbers(), batch_size=4), "batch_size=3, this one has batch_size=4"),
        (lambda: DataLoader(torch.utils.data.TensorDataset(torch.zeros(5)), batch_size=3), "samples=11.*samples=5"),
        (Stateful, "does not keep its own state.*Stateful is the other kind"),
        (lambda: DataLoader(Numbers(), batch_size=3, generator=own_generator()), "0 random generators.*this one has 1"),
    ],
)
def test_a_state_of_another_loader_is_refused(other: Callable[[], Any], message: str) -> None:
    state = Feed(DataLoader(Numbers(), batch_size=3), WHOLE).state_dict()
    with pytest.raises(ValueError, match=message):
        Feed(other(), WHOLE).load_state_dict(state)
    with pytest.raises(ValueError, match="version 1 is needed, got None"):
        Feed(LOADERS["in order"](), WHOLE).load_state_dict({"epoch": 1})


def test_a_distributed_sampler_is_told_of_and_set_epoch_reaches_it() -> None:
    sampler: DistributedSampler[torch.Tensor] = DistributedSampler(Numbers(), num_replicas=4, rank=0)
    with pytest.warns(DistributedSamplerWarning, match="only 1/4 of the data.*leave the sampler out"):
        feed = Feed(DataLoader(Numbers(), batch_size=3, sampler=sampler), WHOLE)
    feed.set_epoch(7)
    assert sampler.epoch == 7
    Feed([1, 2], WHOLE).set_epoch(3)


def test_errors_of_a_dataset_keep_their_traceback() -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index == 7:
                raise OSError("sample 7 cannot be read")
            return super().__getitem__(index)

    for workers in (0, 1):
        seen = []
        with pytest.raises(OSError, match="sample 7") as caught:
            for batch in Feed(DataLoader(Broken(), batch_size=3, num_workers=workers), WHOLE):
                seen.append(batch)
        assert len(seen) == 2
        assert workers or caught.traceback[-1].name == "__getitem__"
        assert not workers or "in __getitem__" in str(caught.value)


def test_batches_of_different_structure_and_no_batches() -> None:
    batches = [torch.zeros(2), (torch.ones(2), {"name": "x"}), {"only": torch.zeros(0, 3)}]
    assert [type(batch) for batch in Feed(batches, WHOLE)] == [torch.Tensor, tuple, dict]
    feed = Feed(DataLoader(Numbers(), batch_size=20, drop_last=True), WHOLE)
    assert list(feed) == [] and feed.position == (1, 0)
