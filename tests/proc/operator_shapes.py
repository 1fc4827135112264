"""Scenarios of operators: shapes and numbers that torch refuses are refused when the operator is called."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from tests.proc.operator_basis import scenario


@scenario
def what_is_refused_is_refused_in_torchs_words(device: str | torch.device) -> Any:
    """Each refusal is of torch's kind, with its text; where PyTorch's kernels and references say it differently, its
    beginning."""

    def ones(*shape: int) -> torch.Tensor:
        return torch.ones(shape).to(device)

    x, index = ones(4, 3), torch.zeros(9, 9, dtype=torch.int64).to(device)
    sizes = "The size of tensor a (3) must match the size of tensor b (5) at non-singleton dimension 1"
    expanded = "The expanded size of the tensor"
    part = "expected src to have a size equal to the slice of self. src size = "
    vector = "Dimension out of range (expected to be in range of [-1, 0], but got "
    refused: tuple[tuple[Callable[[], object], type[Exception], str], ...] = (
        (lambda: x + ones(5), RuntimeError, sizes),
        (lambda: x.add_(ones(5)), RuntimeError, sizes),
        (lambda: x.copy_(ones(5)), RuntimeError, sizes),
        (lambda: torch.maximum(x, ones(5)), RuntimeError, sizes),
        (lambda: x > ones(5), RuntimeError, sizes),
        (lambda: torch.atan2(x, ones(2, 4, 5)), RuntimeError, sizes.replace("dimension 1", "dimension 2")),
        (lambda: x.view(3), RuntimeError, "shape '[3]' is invalid for input of size 12"),
        (lambda: x.view(-1, 5), RuntimeError, "shape '[-1, 5]' is invalid for input of size 12"),
        (lambda: x.t().reshape(5, 5), RuntimeError, "shape '[5, 5]' is invalid for input of size 12"),
        (lambda: x.view(-1, -1), RuntimeError, "only one dimension can be inferred"),
        (lambda: x.__setitem__(0, ones(5)), RuntimeError, expanded),
        (lambda: x.expand(3, 3), RuntimeError, expanded),
        (lambda: F.linear(x, ones(2, 3), ones(5)), RuntimeError, f"{expanded} (2) must match the existing size (5)"),
        (lambda: F.linear(x, ones(2, 5)), RuntimeError, "mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)"),
        (lambda: F.linear(x, ones(2, 5), ones(2)), RuntimeError, "mat1 and mat2 shapes cannot be multiplied (4x3 and"),
        (lambda: torch.addmm(ones(7), x, ones(3, 2)), RuntimeError, f"{expanded} (2) must match the existing size (7)"),
        (
            lambda: x.transpose(0, 5),
            IndexError,
            "Dimension out of range (expected to be in range of [-2, 1], but got 5)",
        ),
        (
            lambda: x.softmax(-3),
            IndexError,
            "Dimension out of range (expected to be in range of [-2, 1], but got -3)",
        ),
        (lambda: x.norm(dim=4), IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 4)"),
        (lambda: x.std(4), IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 4)"),
        (lambda: x.prod(4), IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 4)"),
        (lambda: x[x], IndexError, "tensors used as indices must be long, int, byte or bool tensors"),
        (lambda: x.long().mean(), RuntimeError, "mean(): could not infer output dtype."),
        (lambda: ones(3).transpose(0, 2), IndexError, f"{vector}2)"),
        (lambda: ones(3).transpose(5, 5), IndexError, f"{vector}5)"),
        (lambda: ones(3).transpose_(0, 1), IndexError, f"{vector}1)"),
        (lambda: torch.transpose_copy(ones(3), -2, 0), IndexError, vector),
        (lambda: ones().swapaxes(1, 1), IndexError, f"{vector}1)"),
        (lambda: ones().transpose(0, 1), IndexError, f"{vector}1)"),
        (lambda: ones().mean(2), IndexError, f"{vector}2)"),
        (lambda: ones().mean((0, -1)), RuntimeError, "d"),
        (lambda: ones().bfloat16().mean(-2), IndexError, f"{vector}-2)"),
        (lambda: x.sum(5), IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 5)"),
        (lambda: x.unsqueeze(5), IndexError, "Dimension out of range (expected to be in range of [-3, 2], but got 5)"),
        (lambda: x.select_scatter(ones(2), 0, 0), RuntimeError, f"{part}[2], slice size = [3]"),
        (lambda: x.select_scatter(ones(1, 3), 0, 0), RuntimeError, f"{part}[1, 3], slice size = [3]"),
        (
            lambda: x.select_scatter(ones(3), 0, 7),
            IndexError,
            "select(): index 7 out of range for tensor of size [4, 3]",
        ),
        (lambda: x.select_scatter(ones(3), 4, 0), IndexError, "Dimension out of range (expected to be in range of [-2"),
        (lambda: ones().select_scatter(ones(), 0, 0), IndexError, "select() cannot be applied to a 0-dim tensor."),
        (lambda: x.slice_scatter(ones(2, 2), 0, 0, 1), RuntimeError, f"{part}[2, 2], slice size = [1, 3]"),
        (lambda: x.diagonal_scatter(ones(2)), RuntimeError, f"{part}[2], slice size = [3]"),
        (lambda: x.as_strided_scatter(ones(3), (2,), (1,)), RuntimeError, f"{part}[3], slice size = [2]"),
        (lambda: ones(0).take(index[0]), IndexError, "take(): tried to take"),
        (lambda: F.pad(ones(2, 0), (1, 1), "replicate"), RuntimeError, "Expected 2D or 3D (batch mode) tensor with"),
        (lambda: F.pad(ones(2, 0, 3), (1, 1), "reflect"), RuntimeError, "Expected 2D or 3D (batch mode) tensor with"),
        (lambda: F.pad(ones(2, 3), (-4, 1), "replicate"), RuntimeError, "input "),
        (lambda: x.permute(0, 0), RuntimeError, "permute(): duplicate dims are not allowed."),
        (lambda: torch.bmm(x, x), RuntimeError, "batch1 must be a 3D tensor"),
        (lambda: torch.cat([x, ones(2, 2)]), RuntimeError, "Sizes of tensors must match except in dimension 0."),
        (lambda: torch.stack([x, ones(2, 2)]), RuntimeError, "stack expects each tensor to be equal size"),
        (lambda: x.gather(1, index), RuntimeError, "Size does not match at dimension 0 expected index"),
        (lambda: x.repeat(2), RuntimeError, "Number of dimensions of repeat dims can not be smaller"),
        (lambda: torch.full((2**62,), 0.0, device=device), RuntimeError, "Storage size calculation overflowed"),
    )
    bits: tuple[Callable[[], object], ...] = (lambda: x & x, lambda: x | 1)
    for call in bits:
        try:
            call()
        except NotImplementedError:  # the CPU's text names its kernel
            continue
        raise AssertionError("bits of floats")
    for operation, kind, text in refused:
        try:
            operation()
        except Exception as error:
            assert type(error) is kind and str(error).startswith(text), f"{text}: got {error!r}"
        else:
            raise AssertionError(f"not refused: {text}")
    for running in (torch.cummax, torch.cummin):
        try:
            running(x.to(torch.complex64), 0)
        except RuntimeError:  # of the CPU's kernel
            continue
        raise AssertionError("complex numbers in order")
    nothing = F.pad(ones(0, 2, 3), (1, 1), "replicate"), F.pad(x, (-1, 2), "replicate"), ones(0).take(index[:0])
    written = x.select_scatter(x[0] * 2, 0, -1), x.slice_scatter(ones(1, 3), 0, 3), x.diagonal_scatter(ones(3) * 3)
    return [x, ones(3).transpose(0, -1), ones().transpose(-1, 0), ones().mean(-1), *nothing, *written]


@scenario
def an_index_of_a_tensor_without_dimensions_is_refused(device: str | torch.device) -> Any:
    """Torch compares a number with the first size, which there is none of."""
    loss = torch.ones((), device=device)
    given = (loss, loss * 2, torch.nn.Parameter(loss), (torch.nn.Parameter(loss) * 2), torch.ones(3, device=device)[1])
    for tensor in given:
        for index in (0, 1, -1, 2**62, -(2**63), (0,), (0, 0), slice(0, 1)):
            kept = tensor.detach().clone()
            for call in (functools.partial(tensor.__getitem__, index), functools.partial(kept.__setitem__, index, 2)):
                try:
                    call()
                except IndexError as error:
                    assert "0-dim" in str(error) or "dimension 0" in str(error), error
                else:
                    raise AssertionError(f"not refused: {index}")
    calls: tuple[Callable[[], object], ...] = (
        *(lambda: loss.max(1), lambda: loss.min(1), lambda: loss.amax(1), lambda: loss.argmax(-2), lambda: loss.any(1)),
        *(lambda: loss.logsumexp(1), lambda: loss.sum(1), lambda: loss.softmax(1)),
    )
    for reduce in calls:
        try:
            reduce()
        except IndexError as error:
            assert str(error).startswith("Dimension out of range (expected to be in range of [-1, 0], but got "), error
        else:
            raise AssertionError("a dimension that is not there")
    return [loss[None], loss[...], loss[True], loss[()], loss.max(0)[0], loss.amax(-1), loss.any(0), loss.cummax(0)[1]]


@scenario
def a_refused_call_keeps_none_of_its_tensors(device: str | torch.device) -> Any:
    """Also before the garbage collector runs: what is alive at a step's end is computed with it."""
    refused: tuple[Callable[[torch.Tensor], object], ...] = (
        lambda x: x.scatter(0, torch.zeros(9, 9, dtype=torch.int64).to(device), x),
        *(lambda x: x @ x, lambda x: x.softmax(-7), lambda x: x.std(9), lambda x: x & x, lambda x: x.view(7)),
        *(lambda x: x.add_(torch.ones(5).to(device)), lambda x: x[x], lambda x: torch.linalg.inv(x)),
    )
    gc.collect()
    gc.disable()
    try:
        for call in refused:
            given = torch.ones(2, 3).to(device) * 1
            alive = weakref.ref(given)
            with contextlib.suppress(RuntimeError, IndexError, NotImplementedError):
                call(given)
            del given
            assert alive() is None, call
    finally:
        gc.enable()
    return []


@scenario
def shapes_that_torch_refuses_are_refused(device: str | torch.device) -> Any:
    ones, image = torch.ones(3, 4).to(device), torch.ones(1, 1, 4, 4).to(device)
    cube, volume, flat = torch.ones(2, 3, 4).to(device), torch.ones(1, 1, 4, 4, 4).to(device), torch.ones(4).to(device)
    few, many = torch.zeros(2, 2, dtype=torch.int64).to(device), torch.zeros(9, 9, dtype=torch.int64).to(device)

    def write(place: Any, values: torch.Tensor) -> torch.Tensor:
        made = ones.clone()
        made[place] = values
        return made

    refused: tuple[Callable[[], object], ...] = (
        lambda: ones.scatter(1, many, 1.0),
        lambda: ones.scatter(1, few, torch.ones(1, 1).to(device)),
        lambda: ones.scatter(1, few, torch.ones(2, 2, dtype=torch.float64).to(device)),
        lambda: ones.scatter_add(0, few[0], torch.ones(2).to(device)),
        lambda: ones.scatter_reduce(1, many, torch.ones(9, 9).to(device), "sum"),
        lambda: ones.masked_scatter(ones, ones),
        lambda: F.max_pool2d(image, 2, padding=4),
        lambda: F.max_pool2d(image, 0),
        lambda: F.max_pool1d(flat[None], 2, padding=-1),
        lambda: F.avg_pool2d(image, 2, 0),
        lambda: F.avg_pool2d(image, 2, padding=2),
        lambda: F.avg_pool3d(volume, 2, padding=2),
        lambda: F.adaptive_max_pool2d(image, (-1, 0)),
        lambda: F.adaptive_max_pool3d(volume, (-1, 0, 2)),
        lambda: F.pixel_unshuffle(image, 0),
        lambda: F.softshrink(ones, -0.5),
        lambda: torch.diagonal(cube, 0, 1, 1),
        lambda: torch.diagonal(cube, 0, 10_000, 0),
        lambda: torch.as_strided_scatter(ones, torch.ones(2, 2).to(device), (2, 2), (200, 200)),
        lambda: torch.tril(flat),
        lambda: torch.triu(flat),
        lambda: torch.vdot(ones, flat),
        lambda: ones.scatter(1, torch.zeros(2, 2).to(device), 1.0),
        lambda: ones.index_put((few[0],), flat[:3]),
        lambda: ones.index_put((few[0], few[0]), flat[:3]),
        lambda: write(few[0], torch.ones(3, 4).to(device)),
        lambda: write((slice(None), few[0]), torch.ones(2, 2).to(device)),
        lambda: ones.put(few[0], flat[:3]),
        lambda: ones.put(flat[:2], flat[:2]),
        lambda: torch.take(ones, flat),
        lambda: F.embedding(flat, ones),
        lambda: ones.clone().index_fill_(0, few, 1.0),
        lambda: cube.t(),
        lambda: ones.as_strided((9, 9), (9, 1)),
        lambda: ones.t()[1:].as_strided((5, 2), (4, 1), 0),
        lambda: ones.clamp(),
        lambda: ones.clone().clamp_(),
        lambda: torch.linalg.inv(ones),
        lambda: ones.split([1, 2], 1),
        lambda: F.max_pool2d(image, 5),
        lambda: F.glu(ones[:, :3]),
        lambda: flat.clone().add_(ones),
        lambda: flat.clone().mul_(ones),
        lambda: flat.clone().div_(ones),
        lambda: torch.eye(0, -3, device=device),
        lambda: ones.clone().exponential_(0),
        lambda: ones.clone().normal_(0, -1),
    )
    for place, operation in enumerate(refused):
        try:
            operation()
        except (RuntimeError, IndexError):
            continue
        raise AssertionError(f"operation {place} was not refused")
    # What is near to that is computed.
    return [
        ones.scatter(1, few, 2.0),
        ones.scatter_add(1, few, torch.ones(2, 2).to(device)),
        F.max_pool2d(image, 2, padding=1),
        F.avg_pool2d(image, 2, padding=1),
        F.adaptive_max_pool2d(image, (0, 1)),
        F.adaptive_avg_pool2d(image, (0, 1)),
        torch.diagonal(cube, 1, -1, 0),
        torch.tril(cube, 1),
        F.softshrink(ones, 0.0),
        write(few[0], 2 * flat),
        write((slice(None), few[0]), 2 * torch.ones(3, 1).to(device)),
        write((few[0][:, None], few[0][None]), 2 * torch.ones(1, 2).to(device)),
        ones.clone().add_(flat).mul_(torch.ones(3, 1).to(device)).div_(torch.tensor(2.0)),
        torch.ones(3, 2).to(device).addr_(flat[:3], flat[:2]),
        ones.split([1, 3], 1)[1],
    ]


@scenario
def what_is_read_out_of_range_is_not_a_number(device: str | torch.device) -> Any:
    """The CPU reads in range, and what would not be is put out there."""
    on_cpu = str(device) == "cpu"
    table, cube = torch.arange(12.0).reshape(3, 4).to(device), torch.arange(24.0).reshape(2, 3, 4).to(device)

    def places(*numbers: int, size: int, negative: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        wanted = torch.tensor(numbers)
        out = (wanted >= size) | (wanted < (-size if negative else 0))
        return (torch.where(out, 0, wanted) if on_cpu else wanted).to(device), out.to(device)

    def put_out(read: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        read = read.masked_fill(out, float("nan")) if on_cpu else read
        return torch.nan_to_num(read.detach(), nan=-7.0)

    rows, bad_rows = places(0, 3, -1, -4, size=3, negative=True)
    columns, bad_columns = places(1, 4, 9, -1, size=4)
    classes, bad_classes = places(0, 4, 1, size=4)
    weight = table.clone().requires_grad_()
    embedded = F.embedding(places(0, 3, 2, size=3)[0], weight)
    loss = F.cross_entropy(table, classes)
    return [
        put_out(table[rows], bad_rows[:, None]),
        put_out(cube[:, rows], bad_rows[None, :, None]),
        put_out(cube[:, rows, places(0, 1, 2, 3, size=4)[0]], bad_rows[None]),
        put_out(
            cube[places(0, 1, 0, 1, size=2)[0], :, places(1, 3, 0, 2, size=4)[0]],
            torch.zeros(1, dtype=torch.bool).to(device),
        ),
        put_out(table.index_select(1, columns), bad_columns[None]),
        put_out(table.gather(1, columns.expand(3, 4)), bad_columns[None]),
        put_out(
            table.take(places(0, 12, -12, -13, size=12, negative=True)[0]), torch.tensor([0, 1, 0, 1]).bool().to(device)
        ),
        put_out(embedded, torch.tensor([[0], [1], [0]]).bool().to(device)),
        put_out(loss, bad_classes.any()),
        put_out(F.cross_entropy(table, classes, reduction="none"), bad_classes),
        put_out(F.cross_entropy(table, torch.tensor([0, -100, 1]).to(device)), torch.tensor(False).to(device)),
        put_out(
            F.cross_entropy(cube, places(0, 3, 1, 2, 0, 1, 2, 1, size=3)[0].reshape(2, 4)),
            torch.tensor(True).to(device),
        ),
        table.long()[rows][~bad_rows],
        F.embedding(places(0, 1, size=3)[0], weight).detach(),
    ]


@scenario
def an_index_of_the_cpu_is_looked_at(device: str | torch.device) -> Any:
    table = torch.ones(3, 4).to(device)
    try:
        return table[torch.tensor([0, 3])]
    except IndexError as error:
        assert "index 3 is out of bounds for dimension 0 with size 3" in str(error), error
        return [table[torch.tensor([0, -3, 2])], table[:, torch.tensor([True, False, True, True])]]


@scenario
def elements_that_a_view_shows_several_times_are_filled_once(device: str | torch.device) -> Any:
    found = []
    writes: tuple[Callable[[torch.Tensor], object], ...] = (
        lambda view: view.fill_(2.0),
        lambda view: view.zero_(),
        lambda view: view[:, :2].zero_(),
        lambda view: view.t().fill_(3.0),
        lambda view: view[1].fill_(4.0),
    )
    for write in writes:
        values = torch.arange(1.0, 5.0).to(device)
        view = values.expand(3, 4)
        write(view)
        found += [values, view.clone()]
    return found


@scenario
def views_that_show_an_element_several_times_are_not_written(device: str | torch.device) -> Any:
    """As torch refuses it. A part of one that shows each element once is written."""
    numbers, places = torch.ones(3).to(device), torch.tensor([0, 2]).to(device)
    writes: tuple[Callable[[torch.Tensor], object], ...] = (
        *(lambda view: view.add_(1), lambda view: view.mul_(numbers), lambda view: view.relu_()),
        *(lambda view: view.neg_(), lambda view: view.copy_(numbers), lambda view: view.sqrt_()),
        *(lambda view: view.clamp_(0, 1), lambda view: view.cumsum_(0), lambda view: view.uniform_()),
        *(lambda view: view.index_add_(0, places, numbers[:2]), lambda view: view.scatter_(0, places, numbers)),
        *(lambda view: view.__setitem__(slice(2), 5.0), lambda view: torch.add(numbers, 1, out=view)),
        *(lambda view: torch._foreach_add_([view], 1), lambda view: F.silu(view, inplace=True)),
        *(lambda view: view[1:].lerp_(numbers[1:], 0.5), lambda view: view.eq_(1)),
    )
    values = torch.arange(1.0, 5.0).to(device)
    for place, write in enumerate(writes):
        try:
            write(values[:1].expand(3))
        except RuntimeError as error:
            assert "Please clone() the tensor before" in str(error), (place, error)
        else:
            raise AssertionError(f"number {place} was not refused")
    try:
        windows = values.unfold(0, 2, 1)
        windows.add_(1)
    except RuntimeError as error:  # torch writes shared elements once or several times
        assert "windows that share elements" in str(error), error
    else:
        assert values.device.type == "cpu"
        values = torch.arange(1.0, 5.0)
    values[1:2].expand(3)[0] = 7.0
    values[2:].expand(1, 2).add_(1)
    values.expand(3, 4)[1].mul_(2)
    return [values]


@scenario
def classes_that_are_bytes_are_compared_with_more_than_a_byte_holds(device: str | torch.device) -> Any:
    found = []
    classes = torch.tensor([3, 156, 255], dtype=torch.uint8).to(device)
    for reduction in ("none", "mean", "sum"):
        scores = torch.arange(900.0).reshape(3, 300).sin().to(device).requires_grad_()
        loss = F.nll_loss(scores, classes, reduction=reduction)
        found += [loss.detach(), torch.autograd.grad(loss.sum(), scores)[0]]
    return found


@scenario
def the_gradient_of_a_class_that_is_not_there_is_not_a_number(device: str | torch.device) -> Any:
    found = []
    for shape in ((3, 4), (1, 4, 3), (1, 4, 3, 1)):
        scores = torch.arange(12.0).reshape(shape).sin().to(device).requires_grad_()
        classes = torch.tensor([3, 1 if str(device) == "cpu" else 4, -100]).to(device).reshape(shape[:1] + shape[2:])
        (gradient,) = torch.autograd.grad(F.cross_entropy(scores, classes, reduction="sum"), scores)
        rows = gradient.reshape(3, 4) if len(shape) == 2 else gradient.reshape(4, 3).t()
        out = torch.tensor([[False], [True], [False]]).to(device)
        found.append(torch.nan_to_num(rows.masked_fill(out, float("nan")) if str(device) == "cpu" else rows, nan=-7.0))
    return found


@scenario
def indices_that_are_filled_count_from_the_end(device: str | torch.device) -> Any:
    table = torch.arange(12.0).reshape(3, 4).to(device)
    index = torch.tensor([-1, 0]).to(device)
    written = table.clone()
    written.index_fill_(0, index[:1], torch.tensor(5.0).to(device))
    return [table.index_fill(1, index, -9.0), table.index_fill(-1, index.to(torch.int32).long(), 3.0), written]


@scenario
def elements_of_a_source_go_where_a_mask_says(device: str | torch.device) -> Any:
    """As language models put the features of an image in the place of its tokens; also by more than are asked for."""
    found: list[Any] = []
    cases: list[Any] = [((3, 4), (3, 4), (30,)), ((3, 4), (4,), (2, 8)), ((), (), (1,)), ((4,), (2, 4), (9,))]
    for shape, of_mask, of_source in [*cases, ((0, 3), (3,), (2,))]:
        mask = torch.arange(math.prod(of_mask)).reshape(of_mask).remainder(3).ne(1).to(device)
        values, source = torch.zeros(shape).to(device), torch.arange(1.0, 1 + math.prod(of_source)).reshape(of_source)
        values, source = values.requires_grad_(), source.to(device).requires_grad_()
        result = values.masked_scatter(mask, source)
        (result * torch.arange(1.0, 1 + result.numel()).reshape(result.shape).to(device)).sum().backward()
        whole = torch.zeros(shape, dtype=torch.int64).to(device).masked_scatter(mask, source.detach().long())
        found += [result, values.grad, source.grad, whole]
    return found


@scenario
def places_of_pooled_elements_are_whole_numbers(device: str | torch.device) -> Any:
    values = torch.arange(32.0).reshape(1, 2, 4, 4).to(device).requires_grad_()
    found: list[Any] = []
    for pool in (F.max_pool2d, F.adaptive_max_pool2d):
        pooled, places = pool(values, 2, return_indices=True)
        found += [places, -places, places.max(), places / 2, places.to(torch.int32), places.to(torch.float64)]
        found += [values.flatten(2).gather(2, places.flatten(2)), F.max_unpool2d(pooled, places, (2, 2))]
        found[-1].square().sum().backward()
    found += [F.max_pool1d(values[0], 2, return_indices=True)[1].float()]
    return [*found, F.max_pool3d(values, 2, return_indices=True)[1].float(), values.grad]


@scenario
def what_is_written_in_place_keeps_its_shape(device: str | torch.device) -> Any:
    """Also with an operand that is larger, which torch refuses; and what is not larger is computed."""

    def vector() -> torch.Tensor:
        return torch.tensor([1.0, 2.0, 3.0]).to(device)

    larger, smaller = torch.full((3, 3), 2.0).to(device), torch.tensor(2.0).to(device)
    by_one: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
        "lerp by a number": lambda to, of: to.lerp_(of, 0.5),
        "lerp by a tensor": lambda to, of: to.lerp_(of, smaller / 4),
        "masked fill": lambda to, of: to.masked_fill_(of > 1, 7.0),
        "masked fill by a tensor": lambda to, of: to.masked_fill_(of > 1, smaller),
        "masked scatter": lambda to, of: to.masked_scatter_(of > 1, larger[0]),
        "ldexp": lambda to, of: to.ldexp_(of),
        "product into itself": lambda to, of: torch.mul(to, of, out=to),
        "heaviside": lambda to, of: to.heaviside_(of),
        **{
            name: lambda to, of, name=name: getattr(to, f"{name}_")(of)  # type: ignore[misc]
            for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")
        },
        **{
            f"many, {name}": lambda to, of, name=name: getattr(torch, f"_foreach_{name}_")([to], [of])  # type: ignore[misc]
            for name in ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "clamp_min", "clamp_max", "copy")
        },
        "many, lerp": lambda to, of: torch._foreach_lerp_([to], [of], 0.5),
        "many, addcmul": lambda to, of: torch._foreach_addcmul_([to], [of], [of], 0.5),
        "many, addcdiv": lambda to, of: torch._foreach_addcdiv_([to], [of], [of], [0.5]),
        "many, by one tensor": lambda to, of: torch._foreach_mul_([to], of),
    }
    found = []
    for name, operation in by_one.items():
        to = vector()
        try:
            operation(to, larger)
        except RuntimeError:
            pass
        else:
            raise AssertionError(f"{name} was not refused")
        operation(to, smaller)
        found.append(to)
    matrix = torch.ones(3, 3).to(device)
    products: tuple[Callable[[torch.Tensor], object], ...] = (
        lambda to: to.addmm_(matrix, matrix),
        lambda to: to.addr_(matrix[0], matrix[1]),
    )
    for product in products:
        try:
            product(vector())
        except RuntimeError:
            continue
        raise AssertionError("a product was not refused")
    return [*found, matrix.clone().addmm_(matrix, matrix), matrix.clone().addr_(matrix[0], matrix[1])]


@scenario
def parts_of_nothing_are_nothing(device: str | torch.device) -> Any:
    """PyTorch/XLA found their offsets in no memory when it compiled, and all that was traced with them was lost."""
    nothing, few = torch.zeros(0, 12).to(device), torch.arange(12.0).to(device)
    results = [*torch.unsafe_chunk(nothing, 4, 1), *torch.unsafe_split_with_sizes(nothing, [3, 9], 1)]
    results += [nothing.as_strided((0, 3), (12, 1), 5), few.as_strided((0, 3), (12, 1), 50), nothing.narrow(1, 3, 4)]
    results = [part + 1 for part in results]
    results.append(F.pad(torch.zeros(0, dtype=torch.complex64).to(device), (1, 0)))
    for make, shape in ((nn.LSTM, (3, 0, 2)), (nn.GRU, (3, 0, 2)), (nn.LSTMCell, (0, 2)), (nn.GRUCell, (0, 2))):
        layer, values = make(2, 3).to(device), torch.ones(shape).to(device).requires_grad_()
        made = tree_leaves(layer(values))
        results += [*made, torch.autograd.grad(made[0].sum(), values)[0]]
    few.as_strided((0, 3), (1, 1), 2).add_(1)
    return [*results, few]


@scenario
def a_diagonal_without_elements_is_written_nowhere(device: str | torch.device) -> Any:
    results: list[torch.Tensor] = []
    writes: tuple[Callable[[torch.Tensor], object], ...] = (
        *(lambda part: part.add_(1), torch.Tensor.zero_, lambda part: part.fill_(2), lambda part: part.mul_(part)),
    )
    for shape, offset in (((0, 3), -1), ((0, 3), 0), ((1, 4), -1), ((1, 4), 5), ((2, 0, 3), 0), ((2, 3, 3), 3)):
        for write in writes:
            values = torch.ones(shape).to(device)
            write(values.diagonal(offset))
            results.append(values)
        results.append(torch.diagonal_scatter(values, values.diagonal(offset) + 1, offset))
    square = torch.ones(3, 3).to(device).requires_grad_()
    results.append(square.diagonal_scatter(square.detach().diagonal(5), 5))
    results += torch.autograd.grad(results[-1].sin().sum(), square)
    for source in (square[:0, 0], square[:0]):
        try:
            torch.diagonal_scatter(square, source)
        except RuntimeError:
            continue
        raise AssertionError("a diagonal with elements took none")
    return results
