"""data: what an input pipeline's process does with a dataset, without the process."""

from __future__ import annotations

import random
from collections import UserDict
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.utils.data import IterableDataset

from ptpathways.data import _process

cloudpickle = pytest.importorskip("cloudpickle")


def pipeline(make: Any, collate: Any = None, batch_size: int = 4) -> _process.Pipeline:
    pickled = cloudpickle.dumps((make, collate))
    return _process.Pipeline({"pickled": pickled, "seed": 3, "batch_size": batch_size})


def drawn(request: dict[str, Any], of: _process.Pipeline) -> list[Any]:
    return [tensor.tolist() for tensor in of.rows({"op": "rows", "batch": 0, **request})]


class Pairs:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, torch.arange(4.0) + 10 * index + random.randrange(2) * 100


class Stream(IterableDataset[torch.Tensor]):
    """Has a ``__getitem__`` by inheritance, and even a length."""

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from (torch.tensor([float(index)]) for index in range(6))


def test_a_process_says_what_its_batches_are_made_of() -> None:
    assert pipeline(Pairs).info == {"length": 6, "leaves": [("int64", ()), ("float32", (4,))], "tree": [0, 1]}
    assert pipeline(Stream).info == {"length": None, "leaves": [("float32", (1,))], "tree": 0}


def test_mappings_of_any_class_become_dicts() -> None:
    def collate(samples: list[Any]) -> Any:
        return UserDict(x=torch.tensor([number for number, _ in samples]), deep=[UserDict(y=torch.zeros(len(samples)))])

    of = pipeline(Pairs, collate)
    assert of.info["tree"] == {"x": 0, "deep": [{"y": 1}]} and type(of.info["tree"]) is dict
    assert drawn({"epoch": 0, "rows": [0, 1], "indices": [4, 2], "takes": [[0, [0], [2]]]}, of) == [[4, 2]]


def test_boxes_of_rows_in_the_middle_of_a_batch() -> None:
    of = pipeline(Pairs)
    request = {"epoch": 0, "rows": [2, 3], "indices": [5, 1]}
    whole = drawn({**request, "takes": [[1, [2, 0], [2, 4]]]}, of)[0]
    takes = [[0, [3], [1]], [1, [2, 1], [1, 2]], [1, [2, 2], [2, 2]]]
    assert drawn({**request, "takes": takes}, of) == [[1], [whole[0][1:3]], [row[2:] for row in whole]]


def test_random_numbers_of_a_sample_do_not_depend_on_what_else_is_made() -> None:
    alone = drawn({"epoch": 1, "rows": [0], "indices": [4], "takes": [[1, [0, 0], [1, 4]]]}, pipeline(Pairs))
    of = pipeline(Pairs)
    others = {"rows": [0, 1, 2], "indices": [2, 3, 4], "takes": [[1, [2, 0], [1, 4]]]}
    assert drawn({"epoch": 1, **others}, of) == alone
    epochs = {str(drawn({"epoch": epoch, **others}, of)) for epoch in range(12)}
    assert len(epochs) == 2


def test_the_mixing_of_seeds_stays_what_it_is() -> None:
    """Resumed runs depend on it."""
    assert _process.mix(0, 0) == 12035550249420947055
    assert (
        len({_process.mix(seed, epoch, index) for seed in range(3) for epoch in range(3) for index in range(99)}) == 891
    )
    assert _process.mix(1, 2) != _process.mix(2, 1)


def test_a_stream_is_counted_and_kept_batch_by_batch() -> None:
    of = pipeline(Stream)
    assert [of.count({"epoch": 0, "batch": batch}) for batch in (0, 1, 2)] == [f'{{"rows": {n}}}' for n in (4, 2, 0)]
    take = {"epoch": 0, "rows": [1], "takes": [[0, [1, 0], [1, 1]]]}
    assert drawn({**take, "batch": 1}, of) == [[[5.0]]]
    assert of.count({"epoch": 1, "batch": 1}) == '{"rows": 2}'  # read and dropped up to there
    assert drawn({**take, "batch": 1}, of) == [[[5.0]]]
    assert of.count({"epoch": 1, "batch": 7}) == '{"rows": 0}'


@pytest.mark.parametrize(
    ("make", "collate", "error", "said"),
    [
        (lambda: [{"name": "a"}], None, TypeError, "every value of a remote batch must be a tensor.*value 0.*is str"),
        (lambda: [1.0], lambda samples: torch.tensor(samples).sum(), TypeError, r"is a tensor \(\)"),
        (lambda: [], None, ValueError, "the dataset has no samples"),
        (lambda: iter([]), None, ValueError, "an iterable that gave nothing"),
    ],
)
def test_datasets_that_cannot_be(make: Any, collate: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        pipeline(make, collate)


def test_samples_of_another_shape_are_told_with_the_remedy() -> None:
    of = pipeline(lambda: [torch.zeros(2), torch.zeros(3)])
    with pytest.raises(ValueError, match=r"value 0 of the batch is torch.float32 \(1, 3\), but.*pad or crop"):
        of.rows({"epoch": 0, "batch": 0, "rows": [0], "indices": [1], "takes": []} | {"takes": [[0, [0, 0], [1, 2]]]})
