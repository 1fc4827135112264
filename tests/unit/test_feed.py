"""data and train: splitting batches, loading ahead, and the plain parts of prepare. No devices."""

from __future__ import annotations

import copy
import dataclasses
import io
import threading
import warnings
import weakref
from collections import UserDict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from ptpathways import core, frontend
from ptpathways.data import _ahead, _batches, _feed
from ptpathways.frontend.slices import _mesh
from ptpathways.train import _move, _strategy, bucket, prepare, watch

SIZES: dict[str | int, int] = {"data": 2, "fsdp": 2, "model": 3}
FOUR = frontend.BatchLayout(None, SIZES, (("data", "fsdp"),))
WHOLE = frontend.BatchLayout(None, {}, ())
PLACE = _strategy.Placement(torch.device("xla", 0))


def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving to the devices makes doubles."""
    monkeypatch.setattr(frontend, "upload", lambda tensors, *where: [tensor.double() for tensor in tensors])
    monkeypatch.setattr(frontend, "size_of", lambda device: 1)


@pytest.mark.parametrize(
    ("shape", "even"), [((8, 3), True), ((7, 3), False), ((2,), False), ((), False), ((0, 3), False), ((4,), True)]
)
def test_a_batch_is_split_only_if_it_divides_evenly(shape: tuple[int, ...], even: bool) -> None:
    rest = (None,) * max(0, len(shape) - 1)
    assert FOUR.spec(shape) == ((("data", "fsdp"), *rest) if even else (None,) * len(shape))
    assert WHOLE.spec(shape) == (None,) * len(shape) and (FOUR.parts, WHOLE.parts) == (4, 1)


def test_a_batch_lies_as_its_axes_say() -> None:
    layout = frontend.BatchLayout(None, {"data": 2, "model": 2}, (("data",),))
    assert layout.tiling((4, 3)) == ((2, 1), (0, 0, 1, 1)) and layout.tiling((3, 3)) is None
    turned = frontend.BatchLayout(None, {"data": 2, "model": 2}, (("data",),), (3, 2, 1, 0))
    assert turned.tiling((4,)) == ((2,), (1, 1, 0, 0))


def test_each_leading_dimension_is_divided_along_its_own_axes() -> None:
    layout = frontend.BatchLayout(None, SIZES, (("data",), (), ("model", "fsdp")))
    assert layout.spec((4, 5, 6, 7)) == (("data",), None, ("model", "fsdp"), None)
    assert layout.spec((3, 5, 6)) == (None, None, ("model", "fsdp")) and layout.spec((2, 5)) == (("data",), None)
    assert layout.parts == 2


@pytest.mark.parametrize(
    ("sizes", "said", "axes"),
    [
        (SIZES, None, (("data", "fsdp"),)),
        ({"dp": 2, "tp": 2}, "dp", (("dp",),)),
        ({0: 2, 1: 2}, 1, ((1,),)),
        (SIZES, ("model", "data"), (("model", "data"),)),
        (SIZES, (), ((),)),
        (SIZES, ["data", None, ("model", "fsdp")], (("data",), (), ("model", "fsdp"))),
    ],
)
def test_the_axes_of_a_batch(sizes: dict[str | int, int], said: object, axes: object) -> None:
    assert _mesh.choose_axes(sizes, said) == axes


@pytest.mark.parametrize(
    ("sizes", "said", "message"),
    [
        ({"dp": 2, "tp": 3}, None, r"none is named data or fsdp, there are dp \(2\), tp \(3\); say batch_axis=NAME"),
        (SIZES, "rows", r"mesh axis 'rows', which does not exist; there are data \(2\)"),
        (SIZES, ["data", "data"], "'data' twice"),
    ],
)
def test_axes_that_cannot_be_are_refused(sizes: dict[str | int, int], said: object, message: str) -> None:
    with pytest.raises(core.InvalidSharding, match=message):
        _mesh.choose_axes(sizes, said)


def test_a_first_batch_that_every_device_computes_is_told_of() -> None:
    with pytest.warns(_batches.UnevenBatchWarning, match="a batch of 6 cannot be divided over 4 devices"):
        _batches.warn_if_uneven({"x": torch.zeros(6, 3), "y": torch.zeros(6), "scale": torch.zeros(())}, FOUR)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _batches.warn_if_uneven((torch.zeros(8, 3), torch.zeros(3)), FOUR)
        _batches.warn_if_uneven([torch.zeros(()), "text"], FOUR)
        _batches.warn_if_uneven(torch.zeros(7), WHOLE)


def test_batches_keep_their_structure_and_what_is_no_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.Size] = []

    def upload(tensors: list[torch.Tensor], layout: frontend.BatchLayout) -> list[torch.Tensor]:
        assert layout is FOUR
        asked.extend(tensor.shape for tensor in tensors)
        return [tensor + 1 for tensor in tensors]

    monkeypatch.setattr(frontend, "upload", upload)
    batch = {"x": torch.zeros(8, 2), "y": (torch.zeros(3), "name"), "z": [7, None, torch.zeros(())]}
    moved = _batches.to_devices(batch, FOUR)
    assert asked == [(8, 2), (3,), ()]
    assert torch.equal(moved["x"], torch.ones(8, 2)) and torch.equal(moved["y"][0], torch.ones(3))
    assert moved["y"][1] == "name" and moved["z"][:2] == [7, None] and moved["z"][2].item() == 1


class Frozen(Mapping[str, Any]):
    def __init__(self, values: dict[str, Any]) -> None:
        self.values_of = values

    def __getitem__(self, key: str) -> Any:
        return self.values_of[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_of)

    def __len__(self) -> int:
        return len(self.values_of)


class Named(dict[str, Any]):
    """Items are attributes, too."""

    x: torch.Tensor
    y: torch.Tensor

    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__ = self


class Noted(dict[str, Any]):
    def __init__(self, note: str, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.note = note


def test_mappings_of_any_class_are_moved_and_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "upload", lambda tensors, layout: [tensor + 1 for tensor in tensors])
    zeros: dict[str, Any] = {"x": torch.zeros(2), "deep": [Named(y=torch.zeros(3)), "text"]}
    batch = (Noted("n", zeros), UserDict(zeros), Frozen(zeros), MappingProxyType(zeros), Named(**zeros), torch.zeros(2))
    moved = _batches.to_devices(batch, FOUR)
    assert [type(part) for part in moved] == [Noted, UserDict, dict, dict, Named, torch.Tensor]
    assert moved[0].note == "n"
    for one in moved[:-1]:
        assert set(one) == {"x", "deep"} and one["deep"][1] == "text" and type(one["deep"][0]) is Named
        assert torch.equal(one["x"], torch.ones(2)) and torch.equal(one["deep"][0].y, torch.ones(3))
    assert torch.equal(moved[4].x, torch.ones(2)) and torch.equal(moved[5], torch.ones(2))
    assert torch.equal(zeros["x"], torch.zeros(2)) and batch[0]["x"] is zeros["x"] is batch[1]["x"]
    plain = Frozen({"a": 1})
    assert _batches.to_devices([plain, torch.zeros(1)], FOUR)[0] is plain
    with pytest.warns(_batches.UnevenBatchWarning, match="a batch of 2 cannot"):
        _batches.warn_if_uneven(UserDict(zeros), FOUR)
    assert torch.equal(bucket(Named(x=torch.ones(2, 3)))["x"][:, 3], torch.zeros(2))


@dataclasses.dataclass(frozen=True)
class Pair:
    x: torch.Tensor
    names: list[str]
    inner: Any = None
    late: torch.Tensor = dataclasses.field(init=False)


def test_data_classes_are_moved_and_keep_what_is_no_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "upload", lambda tensors, layout: [tensor + 1 for tensor in tensors])
    batch = Pair(torch.zeros(2, 3), ["a"], {"deep": Pair(torch.zeros(2), [])})
    moved = _batches.to_devices([batch], FOUR)[0]
    assert type(moved) is Pair and moved is not batch and moved.names == batch.names
    assert torch.equal(moved.x, torch.ones(2, 3)) and torch.equal(moved.inner["deep"].x, torch.ones(2))
    assert torch.equal(batch.x, torch.zeros(2, 3)) and not hasattr(moved, "late")
    plain = Pair("text", [])  # type: ignore[arg-type]
    assert _batches.to_devices([plain, torch.zeros(1)], FOUR)[0] is plain


def test_batches_of_a_tokenizer_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenization = pytest.importorskip("transformers.tokenization_utils_base")
    monkeypatch.setattr(frontend, "upload", lambda tensors, layout: [tensor + 1 for tensor in tensors])
    batch = tokenization.BatchEncoding({"input_ids": torch.zeros(2, 3), "labels": torch.zeros(2)}, n_sequences=1)
    moved = _batches.to_devices(batch, FOUR)
    assert type(moved) is type(batch) and moved.n_sequences == 1
    assert torch.equal(moved.input_ids, torch.ones(2, 3)) and torch.equal(moved["labels"], torch.ones(2))
    assert torch.equal(batch["labels"], torch.zeros(2))


def test_a_batch_without_tensors_is_not_uploaded() -> None:
    assert _batches.to_devices(["text", 3], FOUR) == ["text", 3]


def test_items_come_in_order_and_only_so_many_ahead() -> None:
    worked: list[int] = []
    two_are_done, third_began = threading.Event(), threading.Event()

    def work(item: int) -> int:
        worked.append(item)
        if item == 1:
            two_are_done.set()
        if item == 2:
            third_began.set()
        return item * 10

    source = iter(range(6))
    ahead = _ahead.Ahead(source, next(source), work, 2)
    assert two_are_done.wait(10)
    assert not third_began.is_set() and worked == [0, 1]  # the third needs room, which only the user makes
    assert next(ahead) == 0
    assert third_began.wait(10)
    assert list(ahead) == [10, 20, 30, 40, 50]
    ahead.close()


def test_uploads_are_under_way_before_the_loop_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    third = threading.Event()
    uploaded: list[int] = []

    def upload(tensors: list[torch.Tensor], layout: frontend.BatchLayout) -> list[torch.Tensor]:
        uploaded.append(int(tensors[0][0]))
        if len(uploaded) == 3:
            third.set()
        return tensors

    monkeypatch.setattr(frontend, "upload", upload)
    monkeypatch.setattr(frontend, "cut_count", lambda: 0)
    batches = iter(_feed.Feed([torch.full((1,), number) for number in range(9)], WHOLE))
    next(batches)
    assert third.wait(10), "the loop works on the first batch, and two more are on their way"
    assert uploaded == [0, 1, 2]


def test_an_error_of_the_loader_comes_where_its_batch_would_have() -> None:
    def source() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("disk")

    numbers = source()
    ahead = _ahead.Ahead(numbers, next(numbers), lambda item: item, 2)
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(OSError, match="disk"):
        next(ahead)
    with pytest.raises(StopIteration):
        next(ahead)


def test_leaving_a_loop_early_ends_the_thread() -> None:
    before = threading.active_count()
    ahead = _ahead.Ahead(iter(range(100)), -1, lambda item: item, 2)
    assert next(ahead) == -1
    ahead.close()
    assert threading.active_count() == before


def test_a_feed_cuts_the_trace_only_when_the_loop_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = [0]

    def step() -> None:
        cuts[0] += 1

    monkeypatch.setattr(frontend, "step", step)
    monkeypatch.setattr(frontend, "cut_count", lambda: cuts[0])
    feed = _feed.Feed([1, 2, 3], WHOLE)
    assert list(feed) == [1, 2, 3] and cuts[0] == 3
    for _ in feed:
        step()
    assert cuts[0] == 6
    assert len(feed) == 3 and list(_feed.Feed([], WHOLE)) == []


def test_a_feed_is_otherwise_its_loader() -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(10, 1)), batch_size=4)
    feed = _feed.Feed(loader, FOUR)
    assert feed.batch_size == 4 and len(feed) == 3 and feed.dataset is loader.dataset
    with pytest.raises(AttributeError, match="no_such_thing"):
        feed.no_such_thing  # noqa: B018


def test_moving_keeps_identity_attributes_hooks_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    one_device(monkeypatch)

    class Tagged(nn.Parameter):
        no_decay = False

    model = nn.Module()
    model.weight = Tagged(torch.ones(2, 2))
    model.tied = model.weight
    model.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    model.register_buffer("scale", torch.ones(3))
    weight = model.weight
    weight.no_decay = True
    weight.grad = torch.full((2, 2), 3.0)
    seen: list[torch.dtype] = []
    handle = weight.register_hook(lambda gradient: seen.append(gradient.dtype))  # type: ignore[no-untyped-call]

    _move.move_module(model, PLACE, {})

    assert model.weight is weight and model.tied is weight and type(weight) is Tagged and weight.no_decay
    assert weight.dtype is torch.float64 and weight.requires_grad and weight.grad is not None
    assert weight.grad.dtype is torch.float64 and weight.grad[0, 0] == 3
    assert not model.frozen.requires_grad and model.frozen.dtype is torch.float64
    assert model.scale.dtype is torch.float64 and not isinstance(model.scale, nn.Parameter)
    weight.sum().backward()
    assert seen == [torch.float64]
    handle.remove()
    weight.sum().backward()
    assert seen == [torch.float64]


def test_moving_an_optimizer_moves_its_state_but_not_its_step_count(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    one_device(monkeypatch)
    _move.move_optimizer(optimizer, PLACE, {})
    state = optimizer.state[weight]
    assert weight.dtype is torch.float64 and state["exp_avg"].dtype is torch.float64
    assert state["step"].dtype is torch.float32
    assert not optimizer.param_groups[0]["fused"] and optimizer.param_groups[0]["foreach"]


def test_a_choice_of_the_user_for_the_optimizer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    one_device(monkeypatch)
    weight = nn.Parameter(torch.ones(2))
    for given, kept in ((False, False), (True, True), (None, True)):
        optimizer = torch.optim.SGD([weight], lr=0.1, foreach=given)
        _move.move_optimizer(optimizer, PLACE, {})
        assert optimizer.param_groups[0]["foreach"] is kept
    _move.move_optimizer(torch.optim.Adagrad([weight], lr=0.1), PLACE, {})
    _move.move_optimizer(torch.optim.LBFGS([weight]), PLACE, {})


def test_a_weak_reference_to_a_parameter_sees_what_has_taken_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    one_device(monkeypatch)
    model = nn.Linear(2, 2)
    reference = weakref.ref(model.weight)
    _move.move_module(model, PLACE, {})
    assert reference() is model.weight and model.weight.dtype is torch.float64


@pytest.mark.parametrize("is_referenced", [False, True])
def test_a_parameter_that_cannot_be_replaced_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, is_referenced: bool
) -> None:
    one_device(monkeypatch)
    model = nn.Linear(2, 2)
    references = [weakref.ref(model.weight)] if is_referenced else []
    graph = model(torch.ones(2, 2, requires_grad=True))
    with pytest.raises(RuntimeError, match=r"cannot move weight in place.*before the model's first forward"):
        _move.move_module(model, PLACE, {})
    assert graph.grad_fn is not None and model.weight.dtype is torch.float32
    assert all(reference() is model.weight for reference in references)


@pytest.mark.parametrize("thing", [3, torch.zeros(2), "text", {}, None])
def test_prepare_refuses_what_it_does_not_know(thing: object) -> None:
    with pytest.raises(TypeError, match=r"prepare\(\) takes modules, optimizers, loaders"):
        prepare(thing)


def test_capture_needs_a_function_and_shows_how() -> None:
    with pytest.raises(TypeError, match=r"got only: Linear(.|\n)*train_step = pw\.prepare\(.*capture=True\)"):
        prepare(nn.Linear(1, 1), capture=True)
    with pytest.raises(core.NotInitialized):
        prepare(nn.Linear(1, 1), lambda x: x, capture=True)


def test_prepare_needs_something_and_a_cluster() -> None:
    with pytest.raises(TypeError, match="at least one"):
        prepare()  # type: ignore[call-overload]
    with pytest.raises(core.NotInitialized, match=r"call pw\.init\(\) first"):
        prepare(nn.Linear(1, 1))


def test_a_watched_model_is_copied_and_pickled_without_its_watch() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching = watch(model, optimizer)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    for other in (copy.deepcopy(model), averaged.module, torch.load(file, weights_only=False)):
        other(torch.zeros(1, 2))
        assert watching._passes == 0
    copy.deepcopy(optimizer)
    model(torch.zeros(1, 2))
    assert watching._passes == 1
    watching.remove()
    model(torch.zeros(1, 2))
    assert watching._passes == 1 and not model._forward_pre_hooks
