"""What functions of the door say of arguments that they cannot use, where no cluster is needed to tell."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ptpathways as pw
from ptpathways import core, programs, sharding, train
from ptpathways.checkpoint import _directory
from ptpathways.frontend.base import _devices
from ptpathways.launch import kubernetes
from ptpathways.train import _prepare

_given: Any = object()
_rows = torch.ones(2, 3)


def _same(x: Any) -> Any:
    return x


def _plan() -> pw.pipelines.Plan:
    return pw.pipelines.plan("1f1b", stages=2, microbatches=2)


@pytest.mark.parametrize("value", [None, "a", True, [1], torch.ones(())])
def test_a_number_of_seconds_is_a_number(value: Any) -> None:
    with pytest.raises(TypeError, match="timeout must be a number of seconds, got"):
        pw.get([], timeout=value)


@pytest.mark.parametrize("value", [-1, math.nan])
def test_a_number_of_seconds_ends_a_wait(value: float) -> None:
    with pytest.raises(ValueError, match="timeout_s must be a number of seconds from 0, got"):
        core.check_seconds(value)
    assert core.check_seconds(0) == 0
    assert core.check_seconds(math.inf) == core.check_seconds(2**70) == 1e9, "what clocks of 64 bits can wait for"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pw.seed("a"), TypeError, "a seed must be a whole number, got 'a'"),  # type: ignore[arg-type]
        (lambda: pw.seed(1.5), TypeError, "a seed must be a whole number, got 1.5"),  # type: ignore[arg-type]
        (lambda: pw.seed(-1), ValueError, r"from 0 to 2\*\*63 - 1, got -1"),
        (lambda: pw.manual_seed(_given), TypeError, "a seed must be a whole number"),
        (lambda: pw.step(_given), TypeError, "takes devices of slices"),
        (lambda: pw.step(torch.device("cpu")), TypeError, r"takes devices of slices.*type='cpu'"),
        (lambda: pw.log(3), TypeError, r"values by name, as in pw.log\(\{\"loss\": loss\}\), got 3"),  # type: ignore[arg-type]
        (lambda: pw.log({"a": 1}, step="x"), TypeError, "step must be a whole number"),  # type: ignore[arg-type]
        (lambda: pw.progress(3), TypeError, "pw.progress takes a loader.* got 3"),  # type: ignore[arg-type]
        (lambda: pw.watch(nn.Linear(1, 1), _given), TypeError, "a module and its optimizer, got a Linear and a object"),
        (lambda: pw.bucket(torch.ones(2, 3), dim=_given), TypeError, "dim must be a whole number"),
        (lambda: pw.bucket(torch.ones(2, 3), pad_value=_given), TypeError, "pad_value must be a number"),
        (lambda: pw.bucket({"a": torch.ones(2, 3)}, pad_value={"b": 1}), ValueError, "names 'b'.* has 'a'"),
        (lambda: pw.bucket([torch.ones(2, 3)], pad_value={1: 1}), ValueError, "names 1, and the batch has 0"),
        (lambda: pw.bucketed(3), TypeError, "makes a batch of samples, got 3"),  # type: ignore[arg-type]
        (lambda: _prepare._check_kind(None), TypeError, "step functions, got builtins.NoneType$"),
        (lambda: _prepare._check_kind([nn.Linear(1, 1)]), TypeError, r"one by one.*prepare\(\*objects\)"),
        (lambda: pw.function(_given, slice=_given), TypeError, "slice must be a slice"),
        (lambda: pw.bucket(_rows, sizes=3), TypeError, 'sizes must be "pow2" or some positive integers, got 3'),  # type: ignore[arg-type]
        (lambda: pw.bucketed(sizes=b"x"), TypeError, 'sizes must be "pow2".*got b'),
        (lambda: pw.bucket(_rows, mask=3), TypeError, "mask must be True, False or the name.*got 3"),  # type: ignore[arg-type]
        (lambda: pw.bucketed(mask=None), TypeError, "mask must be True"),  # type: ignore[arg-type]
        (lambda: pw.bucket({"a": _rows, "b": 1}, mask="a"), ValueError, "mask='a' names a key.* which is 'a', 'b'"),
        (lambda: pw.bucketed(pad_value={"a": "b"}), TypeError, "pad_value must be a number"),  # type: ignore[dict-item]
        (lambda: pw.bucket(_rows.long(), pad_value=0.5), ValueError, "pad_value 0.5 is no value of.*int64"),
        (lambda: pw.bucket(_rows.long(), pad_value=math.nan), ValueError, "pad_value nan is no value"),
        (lambda: pw.log({"a": 1}, every="a"), TypeError, "every must be a whole number, got 'a'"),  # type: ignore[arg-type]
        (lambda: pw.log({"a": 1}, every=0), ValueError, "every must be at least 1, got 0"),
        (lambda: pw.log({3: 1.0}), TypeError, "values by name, a text.* got 3"),  # type: ignore[dict-item]
        (lambda: pw.metrics.to(every=1.5), TypeError, "every must be a whole number, got 1.5"),  # type: ignore[arg-type]
        (lambda: pw.metrics.to(pw.metrics.Callback), TypeError, "metrics go to"),  # type: ignore[arg-type]
        (lambda: pw.metrics.Callback(3), TypeError, r"takes a function \(step, values\), got 3"),  # type: ignore[arg-type]
        (lambda: pw.metrics.JsonLines(3), TypeError, "path must be a text or a pathlib.Path, got 3"),  # type: ignore[arg-type]
        (lambda: pw.metrics.TensorBoard(None), TypeError, "log_dir must be a text"),  # type: ignore[arg-type]
        (lambda: pw.progress([1], 3), TypeError, "description must be a text, got 3"),  # type: ignore[arg-type]
        (lambda: pw.program(_same, ignore=3), TypeError, "ignore must be a list of texts, got 3"),  # type: ignore[call-overload]
        (lambda: pw.program(_same, ignore="a"), TypeError, "ignore must be a list of texts, got 'a'"),
        (lambda: pw.program(_same, ignore=[3]), TypeError, "ignore must be a list of texts"),  # type: ignore[list-item]
        (lambda: pw.program(_same, ignore=["a"], kind="dataflow"), ValueError, "leave out ignore"),  # type: ignore[call-overload]
        (lambda: pw.program(_same, donate=3), TypeError, "donate must be a list of positions.* got 3"),  # type: ignore[call-overload]
        (lambda: pw.program(_same, donate=["a"]), TypeError, "donate takes positions.* got 'a'"),  # type: ignore[list-item]
        (lambda: pw.program(_same, donate=[-1]), ValueError, "donate takes positions of arguments, from 0, got -1"),
        (lambda: pw.program(_same, name=3), TypeError, "name must be a text, got 3"),  # type: ignore[call-overload]
        (lambda: pw.program(nn.Linear), TypeError, "@pw.program needs a callable, got <class"),
        (lambda: pw.save(3), TypeError, "path must be a text or a pathlib.Path, got 3"),  # type: ignore[arg-type]
        (lambda: pw.save("", m=1), ValueError, "path must name a file or a folder, got ''"),
        (lambda: pw.save("x", rng=3, m=1), TypeError, "rng must be True or False, got 3"),  # type: ignore[arg-type]
        (lambda: pw.save("x", keep="a", m=1), TypeError, "keep must be a whole number, got 'a'"),  # type: ignore[arg-type]
        (lambda: pw.load(3), TypeError, "path must be a text or a pathlib.Path, got 3"),  # type: ignore[arg-type]
        (lambda: pw.load("x\0y"), ValueError, "path must name a file"),
        (lambda: pw.load("x", strict=3), TypeError, "strict must be True or False, got 3"),  # type: ignore[arg-type]
        (lambda: pw.load("x", allow_pickle="no"), TypeError, "allow_pickle must be True or False"),  # type: ignore[arg-type]
        (lambda: pw.load("x", timeout_s=None), TypeError, "timeout_s must be a number of seconds"),  # type: ignore[arg-type]
        (lambda: pw.prepare(nn.Linear(1, 1).parameters()), TypeError, "takes the module itself.*got parameters"),
        (lambda: pw.prepare(nn.Linear(1, 1).named_parameters()), TypeError, "takes the module itself"),
        (lambda: pw.prepare(list(nn.Linear(1, 1).parameters())), TypeError, r"parameters \(a list\)"),
        (lambda: pw.prepare(nn.Linear(1, 1), capture="no"), TypeError, "capture must be True or False"),  # type: ignore[call-overload]
        (lambda: pw.prepare(nn.Linear(1, 1), strategy=_rows), core.InvalidSharding, "strategy is 'ddp'"),  # type: ignore[call-overload]
        (lambda: pw.transfer(_rows, 0, "foo"), TypeError, "layout must be 'copy', 'batch', or parts and tiles"),
        (lambda: sharding.Mesh(3, ("x",)), core.InvalidSharding, "a mesh's shape is a list.* got 3"),  # type: ignore[arg-type]
        (lambda: sharding.Mesh((2,), "x"), core.InvalidSharding, "a mesh's axis_names is a list.* got 'x'"),
        (lambda: sharding.Mesh((2**70,), ("x",)), core.InvalidSharding, "a mesh has at most"),
        (lambda: pw.Simulated(memory=3), core.InvalidOption, "simulated memory must be a text"),  # type: ignore[arg-type]
        (lambda: pw.pipelines.plan([], stages=1, microbatches=1), core.PipelineError, "schedule must be one of"),  # type: ignore[arg-type]
        (lambda: pw.pipelines.Costs(forward=math.nan), core.PipelineError, "costs: forward must be a number"),
        (lambda: pw.pipelines.Costs(transfer=None), core.PipelineError, "costs: transfer must be a number"),  # type: ignore[arg-type]
        (lambda: _plan().text(1.5), TypeError, "width must be a whole number, got 1.5"),  # type: ignore[arg-type]
        (lambda: _plan().svg(3), TypeError, "path must be a text"),  # type: ignore[arg-type]
        (lambda: pw.data.remote(list, seed="a"), TypeError, "seed must be a whole number, got 'a'"),  # type: ignore[arg-type]
        (lambda: pw.data.remote(list, shuffle=3), TypeError, "shuffle must be True or False, got 3"),  # type: ignore[arg-type]
        (lambda: pw.data.remote(list, collate_fn=3), TypeError, "collate_fn must be a function"),  # type: ignore[arg-type]
        (lambda: pw.data.remote(list, timeout_s=-1), ValueError, "timeout_s must be a number of seconds from 0"),
        (lambda: pw.data.remote(list, device="a"), TypeError, "device must be a slice's"),  # type: ignore[arg-type]
        (lambda: programs.compile_apart("x", 3), core.InvalidOption, "a target is a text"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_that_cannot_be_used_is_named(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_whole_numbers_are_those_of_numpy_too() -> None:
    numpy = pytest.importorskip("numpy")
    assert core.whole_number(numpy.int64(3), "n") == 3
    assert train.bucket(torch.ones(2, 3), dim=numpy.int32(1)).shape == (2, 4)
    assert train.bucket(torch.ones(2, 3), sizes=numpy.array([8, 16])).shape == (2, 8)
    mesh = sharding.Mesh((numpy.int64(2), numpy.int32(3)), ("x", "y"))
    assert mesh == sharding.Mesh((2, 3), ("x", "y")) and type(mesh.shape[0]) is int
    assert core.whole_number(numpy.int64(3), "n", least=3) == 3
    core.check_switch(numpy.bool_(True), "s")


def test_sizes_are_taken_from_anything_that_gives_them() -> None:
    collate = train.bucketed(lambda batch: batch, sizes=(size for size in (4, 8)))  # type: ignore[arg-type]
    assert [collate(torch.ones(2, length)).shape[1] for length in (3, 5, 3)] == [4, 8, 4]


def test_a_mask_of_ones_own_stays_unless_its_name_is_said() -> None:
    own = {"tokens": _rows, "mask": _rows}
    assert pw.bucket(own, mask=True)["mask"].tolist() == [[1, 1, 1, 0]] * 2
    with pytest.raises(ValueError, match="mask='mask' names a key that the batch has"):
        pw.bucket(own, mask="mask")


def test_a_module_is_a_step_of_its_class() -> None:
    step = pw.program(nn.Linear(1, 1))
    assert isinstance(step, pw.CapturedStep) and step.name == "Linear"


@pytest.mark.parametrize("path", ["a{step", "a{step:q}", "a{step}{other}", "{}{step}", "a{step[0]}", "a{step.x}"])
def test_braces_that_a_step_does_not_fill_are_refused(path: str) -> None:
    with pytest.raises(core.CheckpointError, match="cannot be filled in with a step"):
        _directory.series_of(path)


def test_a_path_with_a_step_is_a_series() -> None:
    assert _directory.series_of("a/b") is None
    series = _directory.series_of("a/{step:03d}")
    assert series is not None and series.at(7).name == "007"


def test_a_device_with_tensors_of_a_released_slice_is_not_given_out() -> None:
    table: Any = _devices.LogicalDevices(4)
    one = types.SimpleNamespace(name="one")
    left = {1: _devices.Left.TENSORS, 2: _devices.Left.NUMBERS, 3: _devices.Left.NUMBERS}
    assert [table.bind(one, None, left.__getitem__) for _ in range(3)] == [1, 2, 3]
    for number in (1, 3, 2):
        table.unbind(number)
    assert table.bind(one, None, left.__getitem__) == 3, "the one that was given back first"
    left[2] = _devices.Left.NOTHING
    assert table.bind(one, None, left.__getitem__) == 2
    with pytest.raises(core.SliceUnavailable, match="has tensors of a released one"):
        table.bind(one, None, left.__getitem__)
    left[1] = _devices.Left.NOTHING
    assert table.bind(one, None, left.__getitem__) == 1


@pytest.mark.parametrize("quantity", ["4", "500m", "16Gi", "1e3", "0.5", ".5M", "2E"])
def test_a_quantity_is_one_of_kubernetes(quantity: str) -> None:
    kubernetes.KubernetesOptions(hosts=1, image="i", token="t", resources={"memory": quantity})


@pytest.mark.parametrize("quantity", ["abc", "", "16GiB", "1 Gi", "Gi"])
def test_another_quantity_is_refused(quantity: str) -> None:
    with pytest.raises(core.InvalidOption, match=r"--resource memory must be a quantity.*got"):
        kubernetes.KubernetesOptions(hosts=1, image="i", token="t", resources={"memory": quantity})
