"""Operators whose results hang on the types of their arguments. Run by `operator_scenarios.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.proc.operator_basis import INFINITY, NAN, scenario


@scenario
def biases_of_convolutions_in_16_bits(device: str | torch.device) -> Any:
    gradients: list[Any] = []
    for dtype in (torch.bfloat16, torch.float16):
        for layer, shape in (
            (torch.nn.Conv1d(3, 4, 3), (16, 3, 64)),
            (torch.nn.Conv2d(2, 4, 1, bias=False), (4, 2, 16, 16)),
            (torch.nn.ConvTranspose2d(3, 2, 3), (4, 3, 16, 16)),
        ):
            torch.nn.init.constant_(layer.weight, 0.5)
            # Without AVX-512, torch's CPU rounds each product of a weight's gradient to bfloat16, and loses some.
            computed = torch.float32 if torch.device(device).type == "cpu" else dtype
            layer = layer.to(device, computed)
            layer(torch.ones(shape, dtype=computed).to(device)).sum().backward()
            gradients += [item.grad.to(dtype) for item in layer.parameters() if item.grad is not None]
    layer = torch.nn.Conv1d(3, 4, 3).to(device)
    kind = torch.device(device).type
    with torch.autocast(kind, torch.bfloat16, enabled=kind != "cpu"):
        result = layer(torch.ones(16, 3, 64).to(device))
    result.sum().backward()
    return [*gradients, *(item.grad for item in layer.parameters())]


@scenario
def parts_of_histograms_are_those_of_the_type(device: str | torch.device) -> Any:
    """Values beside the bounds of parts, whose places are rounded as the values are."""
    found: list[Any] = []
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        values = (torch.arange(200.0) / 33 - 3).to(dtype).to(device)
        for low, high in ((-1.0, 1.0), (0.1, 0.9), (0.0, 3.3), (0.0, 0.0)):
            found += [torch.histc(values, bins, low, high) for bins in (3, 100)]
        found.append(torch.histc(torch.ones(400).to(dtype).to(device), 2, 0.0, 2.0))  # past 256, where bfloat16 skips
    return found


@scenario
def integers_are_added_by_whole_factors(device: str | torch.device) -> Any:
    """As torch's, which cuts factors off where it takes them."""
    added, matrix = torch.ones(3, 1, dtype=torch.int64).to(device), torch.arange(9).reshape(3, 3).to(device)
    batch = matrix.expand(2, 3, 3)
    results: list[Any] = []
    factors: dict[str, Any]
    for beta, alpha in ((0.6, 0.2), (2.9, 1), (1, -1.5)):
        factors = {"beta": beta, "alpha": alpha}
        results.append(torch.addmv(added.flatten(), matrix, matrix[0], **factors))
        results += [torch.addbmm(added, batch, batch, **factors), torch.baddbmm(added, batch, batch, **factors)]
    return results


@scenario
def indices_of_several_types(device: str | torch.device) -> Any:
    x = torch.arange(12.0).reshape(3, 4).to(device)
    one, other = torch.tensor([0, 2], dtype=torch.int32).to(device), torch.tensor([1, 3]).to(device)
    written = x.clone()
    written[one, other] = -1.0
    return [x[one, other], written, x[torch.tensor([True, False, True]).to(device), other]]


@scenario
def comparisons_with_numbers(device: str | torch.device) -> Any:
    results: list[torch.Tensor] = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool):
        x = torch.tensor([0.1, 1.0, 2.5, 3.0]).to(dtype).to(device)
        for number in (0.1, 1, 2.5, 3.0, -1):
            results += [x == number, x != number, x < number, x <= number, x > number, x >= number]
    bounds = torch.tensor([-0.1, 0.1, 0.2]).to(device).requires_grad_()
    F.hardtanh(bounds, -0.1, 0.1).sum().backward()
    return [*results, bounds.grad, F.threshold(bounds.detach(), 0.1, 5.0)]


@scenario
def reductions_of_integers_in_other_types(device: str | torch.device) -> Any:
    whole, mask = torch.tensor([[1, 2, 3]]).to(device), torch.tensor([True, False, True]).to(device)
    short = torch.tensor([1.7, 0.7, -0.7, 0.6], dtype=torch.bfloat16).to(device)
    return [
        mask.mean(dtype=torch.float32),
        whole.mean(1, dtype=torch.float64),
        short.sum(dtype=torch.int32),
        (torch.eye(3) * 200).to(torch.uint8).to(device).trace(),
        mask.cumsum(0),
    ]


@scenario
def numbers_are_those_of_the_type(device: str | torch.device) -> Any:
    exact = torch.full((3,), 0.4, dtype=torch.float64).to(device)
    small = torch.tensor([44, 7, 200], dtype=torch.uint8).to(device)
    results: list[Any] = [exact.eq(0.4), exact >= 0.4, exact.lt(0.4), exact.float().eq(0.4), small.eq(300), small < 300]
    results += [small + 300, small * 300, small % 300, small // 300, 300 - small, small ^ -1, small.clone().add_(300)]
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int32):
        values = torch.tensor([0, 1, 3, -2]).to(dtype).to(device)
        results += [values % number for number in (INFINITY, -INFINITY, 1e10, 2.5)]
        results.append(torch.remainder(values, torch.tensor([2.5, INFINITY, -INFINITY, 0.7]).to(device)))
    return results


@scenario
def edges_of_activations(device: str | torch.device) -> Any:
    edges = torch.tensor([-INFINITY, -4, -3, -0.5, 0, 0.05, 0.5, 1.7, 3, 4, INFINITY, NAN])
    functions: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        F.hardsigmoid,
        F.hardswish,
        F.logsigmoid,
        F.softshrink,
        lambda values: F.softshrink(values, 0.1),
        lambda values: torch.logit(values, eps=0.1),
        lambda values: F.smooth_l1_loss(values, torch.zeros_like(values)),
        lambda values: F.smooth_l1_loss(values, torch.zeros_like(values), reduction="none", beta=0.0),
    )
    results: list[Any] = []
    for dtype in (torch.float32, torch.float64):
        for function in functions:
            values = edges.clone().to(dtype).to(device).requires_grad_()
            result = function(values)
            results += [result, *torch.autograd.grad(result.sum(), values)]
    return results


@scenario
def powers_of_integers_and_complex_numbers(device: str | torch.device) -> Any:
    large = torch.tensor([1, 2, 3, -7]).to(device)
    results: list[Any] = [large**300, large.int() ** 300]
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        values = torch.tensor([1, 2, 3, 7, 0]).to(dtype).to(device)
        exponents = torch.tensor([0, 5, 63, 100, 127]).to(dtype).to(device)
        results += [values**number for number in (0, 1, 2, 31, 64, 120)]
        results += [values**exponents, values ** exponents[3], 3**exponents, values.clone().pow_(77)]
    signed = torch.tensor([1, -1, 2, -3, -1]).to(device)
    results.append(signed ** torch.tensor([-1, -3, -1, -2, -4]).to(device))
    plane = torch.complex(torch.tensor([1.0, 0.0, -2.0]), torch.tensor([0.5, 0.0, 0.0])).to(device)
    for number in (1 + 2j, 0j, 2):
        results += [plane**number, plane.real.abs() ** number]
        results += [number ** plane.real.contiguous()] if number else []
    return results


@scenario
def a_negative_power_of_integers_is_refused(device: str | torch.device) -> Any:
    values = torch.tensor([1, 2]).to(device)
    operations: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: values.pow(-1), "negative integer powers"),
        (lambda: values.bool().pow(values.bool()), "Bool"),
    )
    for operation, word in operations:
        try:
            operation()
        except RuntimeError as error:
            assert word in str(error)
        else:
            raise AssertionError("it was not refused")
    return []


@scenario
def what_a_tensor_cannot_hold_is_refused_in_place(device: str | torch.device) -> Any:
    whole, floats = torch.tensor([1, 2, 3]).to(device), torch.tensor([0.5, 1.5, 2.5]).to(device)
    truth = whole > 1
    refused: tuple[tuple[torch.Tensor, Callable[[torch.Tensor], Any]], ...] = (
        (whole, lambda x: x.div_(2)),
        (whole, lambda x: x.add_(0.5)),
        (whole, lambda x: x.mul_(floats)),
        (whole, lambda x: x.sub_(1j)),
        (whole, lambda x: x.addcmul_(whole, floats)),
        (whole, lambda x: x.sqrt_()),
        (whole, lambda x: x.pow_(0.5)),
        (whole, lambda x: x.clamp_min_(0.5)),
        (whole[0], lambda x: x.add_(floats[0])),
        (truth, lambda x: x.add_(1)),
        (truth, lambda x: x.mul_(whole)),
        (floats, lambda x: x.mul_(1j)),
    )
    for values, operation in refused:
        try:
            operation(values.clone())
        except RuntimeError as error:
            assert "can't be cast to the desired output type" in str(error)
        else:
            raise AssertionError("it was not refused")
    kept = whole.clone().add_(truth).mul_(2).sub_(torch.tensor(1, dtype=torch.int8).to(device))
    half = floats.half().add_(floats.double()).div_(whole).mul_(True)
    return [kept, half, truth.clone().logical_and_(whole), torch.complex(floats, floats).mul_(1j).add_(whole)]


@scenario
def sixteen_bits_are_computed_in_thirty_two(device: str | torch.device) -> Any:
    """Of which the results are then rounded, once."""
    if torch.device(device).type == "cpu":
        return []
    for dtype, unit in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
        values = torch.linspace(-4, 4, 96).reshape(4, 24).to(dtype)
        other = torch.linspace(3, -2, 96).reshape(4, 24).to(dtype)
        functions: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
            lambda x, y: F.gelu(x),
            lambda x, y: F.silu(x),
            lambda x, y: F.logsigmoid(x),
            lambda x, y: F.softplus(x),
            lambda x, y: F.elu(x),
            lambda x, y: F.layer_norm(x, (24,), y[0], y[1]),
            lambda x, y: F.group_norm(x, 2, y[0], y[1]),
            lambda x, y: F.log_softmax(x, -1),
            lambda x, y: F.avg_pool2d(x[None], 2),
            lambda x, y: torch.lerp(x, y, 0.3),
            lambda x, y: torch.addcdiv(x, y, y.abs().clamp(min=1), value=0.3),
            lambda x, y: torch.addcmul(x, x, y, value=0.3),
            lambda x, y: x.cumsum(1),
            lambda x, y: x.var(1),
            lambda x, y: x / 0.3,
            lambda x, y: F.mse_loss(x, y),
        )
        for function in functions:
            made = function(values.to(device), other.to(device))
            exact = function(values.float(), other.float())
            assert made.dtype == dtype
            lost = (made.cpu().float() - exact).abs()
            assert (lost <= unit * exact.abs() + 1e-5 * exact.abs().max()).all(), (dtype, functions.index(function))
    return []


@scenario
def windows_are_written_where_they_are(device: str | torch.device) -> Any:
    results: list[Any] = []
    for shape, dim in (((8,), 0), ((7,), 0), ((3, 8), 1), ((8, 3), 0), ((2, 9, 3), -2)):
        for size, step in ((1, 1), (1, 4), (2, 2), (2, 3), (3, 5), (2, 7), (shape[dim], 1), (shape[dim], 9)):
            values = torch.arange(float(torch.Size(shape).numel())).reshape(shape).to(device).requires_grad_()
            changed = values * 2
            windows = changed.unfold(dim, size, step)
            windows.mul_(10).add_(1)
            (changed * changed).sum().backward()
            results += [windows, changed, values.grad]
        results.append(values.detach().unfold(dim, 3, 1))
    return results


@scenario
def strides_are_those_of_the_memory(device: str | torch.device) -> Any:
    values = torch.arange(24.0).reshape(4, 6).to(device)
    results = [values.t().as_strided((3, 2), (6, 1), 1), values.reshape(-1)[:6].as_strided((2, 2), (3, 1))]
    values.t().as_strided((2, 2), (5, 1), 0).mul_(-1)
    return [*results, values]


@scenario
def what_is_set_is_written_where_it_lies(device: str | torch.device) -> Any:
    """Also through what else has that memory; what devices cannot do is refused."""
    memory: Any = torch.arange(12.0).reshape(3, 4).to(device)
    plain: Any = torch.zeros(4).to(device)
    assigned: Any = torch.zeros(4).to(device)
    plain.set_(memory[0])
    plain.add_(5)
    assigned.data = memory[1]
    assigned.data = memory[2]
    assigned.mul_(2)
    made: Any = torch.nn.Parameter(plain.clone())
    same: Any = torch.ones(2).to(device)
    tied: Any = torch.nn.Parameter(memory[2])
    ones: Any = torch.ones(3).to(device)
    with torch.no_grad():
        made.set_(ones)  # as parametrizations do with their original
        made.mul_(3)
        same.set_(same)
        tied.set_(memory[2])
    same.add_(1)
    memory.sub_(1)
    try:
        assigned.set_(memory[1])
    except NotImplementedError:
        assert str(device) != "cpu"
    else:
        assert str(device) == "cpu", "writes of it would go to the memory of before"
    return [memory, plain, made, same, tied]


@scenario
def what_torch_refuses_is_refused(device: str | torch.device) -> Any:
    ones, mask = torch.ones(2, 3).to(device), torch.tensor([True, False]).to(device)
    whole = torch.arange(4).to(device)

    def write_another_type() -> None:
        ones.clone()[mask] = torch.ones(1, 3, dtype=torch.float64).to(device)

    refused: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: torch.einsum("ij,jk->ik", ones, torch.ones(4, 5).to(device)), "subscript j has size 4"),
        (lambda: torch.einsum("ij,ij->i", ones, torch.ones(2, 4).to(device)), "subscript j has size 4"),
        (lambda: torch.einsum("ij->iij", ones), "more than once in the output"),
        (lambda: torch.linalg.inv(torch.tensor([[1.0, 2.0], [2.0, 4.0]]).to(device)), "singular"),
        (lambda: torch.inverse(torch.ones(3, 3).to(device)), "singular"),
        (lambda: torch.softmax(whole, 0), "softmax"),
        (write_another_type, "dtypes match"),
    )
    for operation, text in refused:
        try:
            operation()
        except (RuntimeError, NotImplementedError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"it was not refused: {text}")
    well = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).to(device)
    soft = whole.softmax(0, dtype=torch.float32)
    return [torch.linalg.inv(well), torch.inverse(well), torch.einsum("ij,kj->ki", ones, ones), soft]


@scenario
def types_that_torch_refuses_are_refused(device: str | torch.device) -> Any:
    floats, doubles = torch.ones(2, 2).to(device), torch.ones(2, 2, dtype=torch.float64).to(device)
    whole, small, truth = (floats.to(dtype) for dtype in (torch.int64, torch.int8, torch.bool))
    plane = torch.complex(floats, floats)
    batch, images, kernel = floats.reshape(1, 2, 2), torch.ones(1, 1, 4, 4).to(device), doubles.reshape(1, 1, 2, 2)
    refused: tuple[Callable[[], Any], ...] = (
        lambda: floats @ doubles,
        lambda: truth @ truth,
        lambda: torch.mv(floats.half(), floats[0]),
        lambda: torch.bmm(batch, batch.double()),
        lambda: torch.addmm(doubles, floats, floats),
        lambda: torch.baddbmm(batch, batch, batch.half()),
        lambda: torch.dot(floats[0], doubles[0]),
        lambda: torch.vdot(floats[0], doubles[0]),
        lambda: F.linear(floats, floats, doubles[0]),
        lambda: F.conv2d(images, kernel),
        lambda: F.conv2d(images, kernel.float(), doubles[0, :1]),
        lambda: F.batch_norm(doubles, floats[0], floats[0]),
        lambda: F.batch_norm(floats, doubles[0], doubles[0], training=True),
        lambda: F.batch_norm(floats, None, None, doubles[0], doubles[0], training=True),
        lambda: F.instance_norm(batch, doubles[0], doubles[0]),
        lambda: torch._weight_norm(floats, doubles[:, :1], 0),
        lambda: floats.half().lerp_(floats, 0.5),
        lambda: F.layer_norm(floats, (2,), doubles[0]),
        lambda: torch.cdist(floats, doubles),
        lambda: floats.index_add(0, whole[0], doubles),
        lambda: whole.index_copy(0, whole[0], floats),
        lambda: floats.gather(0, small),
        lambda: F.cross_entropy(floats, whole[0].int()),
        lambda: small.sub_(truth),
        lambda: truth - small,
        lambda: truth - truth,
        lambda: truth - 2,
        lambda: 2 - truth,
        lambda: truth // truth,
        lambda: plane >= 2,
        lambda: plane < plane,
        lambda: torch.maximum(plane, plane),
        lambda: plane.softmax(0),
        lambda: plane % plane,
        lambda: plane.clamp(min=1),
        lambda: F.hardswish(plane),
        lambda: F.hardsigmoid(whole),
        lambda: F.leaky_relu(small),
        lambda: F.smooth_l1_loss(whole, whole),
        lambda: torch._foreach_mul_([whole.clone()], 1.5),
        lambda: torch._foreach_div_([whole.clone()], 2.0),
        lambda: torch._foreach_add_([floats.clone()], 1j),
        lambda: floats.clone().addcmul_(floats, floats, value=1j),
        *(
            lambda: F.gelu(whole),
            lambda: F.elu(whole),
            lambda: F.silu(small),
            lambda: F.mish(whole),
            lambda: F.glu(whole),
        ),
        *(lambda: F.softplus(whole), lambda: F.selu(truth), lambda: whole.frac(), lambda: truth.abs()),
        *(lambda: truth.ceil(), lambda: plane.floor(), lambda: plane.erf(), lambda: plane.real.byte().bernoulli()),
        *(lambda: torch.randn(2, dtype=torch.int64, device=device), lambda: torch.normal(whole, 1.0)),
        *(
            lambda: whole.clone().normal_(),
            lambda: torch.randn_like(whole),
            lambda: plane.sort(),
            lambda: plane.topk(1),
        ),
        *(lambda: F.hardtanh(whole.byte()), lambda: F.softsign(truth)),
        lambda: F.mse_loss(whole, whole),
        lambda: floats.masked_fill(truth, 1j),
        lambda: small.masked_fill(truth, 1000),
        lambda: floats.half().clone().masked_fill_(truth, -1e9),
        lambda: F.pad(small, (1, 1), value=1000),
        lambda: F.dropout(whole),
        lambda: whole[0, 0].mean(dim=0),
        lambda: floats.clone().cumsum_(0, dtype=torch.float64),
        lambda: torch.lerp(floats, floats, floats, out=torch.empty_like(doubles)),
        lambda: torch.addcdiv(whole, whole, whole),
        lambda: torch.linalg.vector_norm(whole),
        lambda: truth.clone().cumsum_(0),
        lambda: whole.clone().clamp_(min=0.5),
        lambda: whole.clone().div_(floats, rounding_mode="floor"),
        lambda: whole.clone().lgamma_(),
        lambda: plane.clone().abs_(),
        lambda: whole.clone().uniform_(),
    )
    for number, operation in enumerate(refused):
        try:
            operation()
        except (RuntimeError, NotImplementedError):
            continue
        raise AssertionError(f"it was not refused: {number}")
    mixed = torch.addmv(doubles[0], floats, floats[0])  # which is of the matrix's type
    return [
        mixed,
        F.layer_norm(floats.half(), (2,), floats[0]),
        torch.addcdiv(floats, whole, floats),
        floats.lerp(floats, 2),
        torch.slice_scatter(floats, doubles[:1] + 1, 0, 0, 1),
        torch.as_strided_scatter(floats, doubles[0] + 1, (2,), (1,)),
        torch.diagonal_scatter(floats, whole[0]),
        torch.einsum("ij,ij->ij", floats, doubles),
        floats[0, 0].std(0, correction=0),
        torch.stack(torch.var_mean(floats[0, 0], 0, correction=0)),
        F.binary_cross_entropy(floats / 2, floats / 4, weight=doubles * 3),
        F.batch_norm(floats.bfloat16(), floats[0], floats[0]),
        F.batch_norm(floats.bfloat16() * 3, floats[0] / 2, floats[0], floats[0], floats[1], training=True),
    ]


@scenario
def results_are_written_where_they_can_be_held(device: str | torch.device) -> Any:
    floats, whole = torch.tensor([[0.5, 1.5], [2.5, -3.5]]).to(device), torch.tensor([[1, 2], [3, 4]]).to(device)
    refused: tuple[Callable[[], Any], ...] = (
        lambda: torch.add(floats, floats, out=whole.clone()),
        lambda: torch.div(whole, whole, out=whole.clone()),
        lambda: torch.mul(floats, 1j, out=floats.clone()),
        lambda: torch.mm(floats, floats, out=floats.double()),
        lambda: torch.argmax(floats, out=floats.clone()),
        lambda: torch.cumsum(floats, 0, out=floats.bool()),
        lambda: torch.nonzero(floats, out=floats.clone()),
        lambda: torch.neg(floats, out=floats.double()),
        lambda: torch.linalg.det(floats, out=whole[0, 0].clone()),
    )
    for number, write in enumerate(refused):
        try:
            write()
        except RuntimeError:
            continue
        raise AssertionError(f"it was not refused: {number}")
    if torch.device(device).type != "cpu":  # which makes the tensor longer than what it is a part of
        parts = floats.clone()
        for write in (lambda: torch.mul(floats, 2, out=parts[1]), lambda: torch.mul(floats, floats, out=parts[1])):
            try:
                write()
            except RuntimeError as error:
                assert "keeps its shape" in str(error), error
            else:
                raise AssertionError("a part of a tensor changed its shape")
        assert torch.equal(parts.cpu(), floats.cpu())
    results: list[Any] = []
    for dtype in (torch.float32, torch.float64, torch.complex64):
        results += [torch.mul(values, 2.5, out=torch.zeros(2, 2, dtype=dtype).to(device)) for values in (floats, whole)]
        results.append(torch.mul(2, whole, out=torch.zeros(2, 2, dtype=dtype).to(device)))
    held = floats.clone()
    torch.add(floats[0], whole[1], out=held[1])
    truth = torch.gt(floats, whole, out=torch.empty(0).to(device))
    added = torch.cumsum(floats, 0, out=whole.clone())
    return [*results, held, truth, added, torch.mul(floats, floats, out=torch.empty(0).to(device))]


@scenario
def means_and_norms_are_of_the_type_that_is_named(device: str | torch.device) -> Any:
    results: list[Any] = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        values = (torch.arange(1, 13).reshape(3, 4) / 10).to(dtype).to(device)
        wide: dict[str, Any] = {"dtype": torch.float64}
        exact = [values.mean(**wide), values.mean(1, **wide), values.sum(**wide), values.sum(0, **wide)]
        results += [(1e6 * item).frac() for item in exact]
        results += [torch.norm(values, **wide), torch.norm(values, dim=1, **wide), values.norm(3, dim=0, **wide)]
    return results


@scenario
def constants_are_float64_among_float64(device: str | torch.device) -> Any:
    """To 1e-12 of the largest, which the comparison of all results does not ask for."""
    values = torch.linspace(-3, 3, 25, dtype=torch.float64)
    results: list[torch.Tensor] = []
    functions: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        *(F.gelu, lambda x: F.gelu(x, approximate="tanh"), lambda x: (x.abs() + 0.1).log2()),
        lambda x: (x.abs() + 0.1).log10(),
    )
    for function in functions:
        given = values.clone().to(device).requires_grad_()
        function(given).square().sum().backward()
        made = function(given).detach()
        assert given.grad is not None
        results += [(item * 1e6).cpu() for item in (made, given.grad)]
    return results


@scenario
def numbers_of_unsigned_types_keep_them(device: str | torch.device) -> Any:
    values = torch.arange(12.0).reshape(3, 4).to(device)
    unsigned = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    numbers = [torch.tensor(3, dtype=dtype).to(device) for dtype in unsigned]
    made = [torch.full(size, 3, dtype=dtype, device=device) for dtype in unsigned for size in ((), (2,))]
    assert [item.dtype for item in (*numbers, *made[::2], *made[1::2])] == 3 * [*unsigned]
    found = torch.hash_tensor(values)
    assert found.dtype is torch.uint64
    return [*(item.to(torch.int64) for item in (*numbers, *made)), found.cpu().view(torch.int64)]


@scenario
def the_inverse_of_cosh_of_complex_numbers_is_the_principal_one(device: str | torch.device) -> Any:
    """PyTorch/XLA's had a negative real part to the left of the imaginary axis."""
    values = [complex(x, y) for x in (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0) for y in (-2.0, 0.0, 0.25)]
    found: list[torch.Tensor | None] = []
    for dtype in (torch.complex64, torch.complex128):
        x = torch.tensor(values, dtype=dtype).to(device)
        leaf = x[x.imag != 0].detach().requires_grad_()
        leaf.acosh().abs().sum().backward()
        found += [x.acosh(), leaf.grad]
    return [*found, torch.tensor([1.0, 2.0, 0.5]).to(device).acosh(), torch.tensor([1, 2]).to(device).acosh()]


@scenario
def frequencies_of_a_transform(device: str | torch.device) -> Any:
    return [torch.fft.fftfreq(n, 0.5, dtype=torch.float64, device=device) for n in range(7)] + [
        torch.fft.fftfreq(5, device=device),
        torch.fft.rfftfreq(5, device=device),
    ]
