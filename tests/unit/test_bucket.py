"""Padding to a few sizes."""

from __future__ import annotations

import collections
import pickle
from typing import Any

import pytest

import ptpathways as pw

torch = pytest.importorskip("torch")


def test_the_next_size_is_taken_and_the_padding_is_on_the_right() -> None:
    padded = pw.bucket(torch.ones(2, 5))
    assert padded.tolist() == [[1.0] * 5 + [0.0] * 3] * 2
    assert pw.bucket(torch.ones(2, 8)).shape == (2, 8)
    assert pw.bucket(torch.ones(2, 9), sizes=(64, 12)).shape == (2, 12)
    assert pw.bucket(torch.ones(2, 9, 3), dim=-2, pad_value=-1)[0, 9].tolist() == [-1.0] * 3
    assert [pw.bucket(torch.ones(size, 1), dim=0).shape[0] for size in (1, 2, 3, 4, 5, 1000)] == [1, 2, 4, 4, 8, 1024]


def test_a_batch_keeps_its_structure_and_what_is_not_as_long() -> None:
    tokens = torch.ones(2, 3, dtype=torch.int64)
    batch = {"tokens": tokens, "labels": tokens, "class": torch.ones(2), "size": torch.ones(2, 7), "id": "a"}
    made = pw.bucket(batch, pad_value={"labels": -100}, mask="attention_mask")
    assert made["tokens"][0].tolist() == [1, 1, 1, 0] and made["labels"][0].tolist() == [1, 1, 1, -100]
    assert made["tokens"].dtype is torch.int64
    assert made["class"] is batch["class"] and made["size"] is batch["size"] and made["id"] == "a"
    assert made["attention_mask"].tolist() == [[True, True, True, False]] * 2
    own = {"tokens": tokens, "mask": tokens}
    assert pw.bucket(own, mask=True)["mask"][0].tolist() == [1, 1, 1, 0], "a mask of its own is padded"
    kind: Any = collections.namedtuple("kind", "x y")
    pair = kind(tokens, tokens)
    assert pw.bucket(pair, pad_value={1: 5}).y[0].tolist() == [1, 1, 1, 5]
    x, y, mask = pw.bucket((tokens, torch.ones(2)), mask=True)
    assert x.shape == (2, 4) and y.shape == (2,) and mask.shape == (2, 4)
    rows, mask = pw.bucket(tokens.T, dim=0, mask=True)
    assert rows.shape == (4, 2) and mask.tolist() == [True, True, True, False]
    assert type(pw.bucket(collections.UserDict(tokens=tokens))) is dict, "such as a tokenizer's"


def test_what_cannot_be_padded_is_refused() -> None:
    with pytest.raises(ValueError, match="length 9 does not fit into the largest bucket, 8"):
        pw.bucket(torch.ones(2, 9), sizes=[4, 8])
    with pytest.raises(ValueError, match="dimension 1, and no tensor of the batch has it"):
        pw.bucket([torch.ones(2), "text"])
    wrong: Any
    kind: Any = collections.namedtuple("kind", "x y")
    for wrong in ("pow3", (), (0,), (True,), ("8",)):
        with pytest.raises(ValueError, match="sizes must be"):
            pw.bucketed(sizes=wrong)
    with pytest.raises(TypeError, match="a mask can be added to"):
        pw.bucket(kind(torch.ones(2, 3), 1), mask=True)
    with pytest.raises(TypeError, match="pad_value by key"):
        pw.bucket(torch.ones(2, 3), pad_value={0: 1})


def test_a_loader_collates_into_buckets() -> None:
    collate = pickle.loads(pickle.dumps(pw.bucketed(sizes=(4, 8), mask=True)))
    samples = [(torch.ones(5), 1), (torch.ones(5), 2)]
    loader = torch.utils.data.DataLoader(samples, batch_size=2, collate_fn=collate)
    ((x, y, mask),) = loader
    assert x.shape == (2, 8) and y.tolist() == [1, 2] and mask.sum() == 10
