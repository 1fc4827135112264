"""Operators whose results PyTorch/XLA has wrong, on a device and on the CPU. Prints what differs, by scenario."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import ptpathways as pw
from ptpathways import frontend
from tests.proc import (
    operator_basis,
    operator_gradients,
    operator_indices,
    operator_integers,
    operator_layers,
    operator_masks,
    operator_memory,
    operator_operands,
    operator_shapes,
    operator_types,
)
from tests.proc.operator_basis import INFINITY, NAN, Scenario, matrix, scenario

SCENARIOS = operator_basis.SCENARIOS
"""Those below, and those that the other modules have added."""
MODULES = (
    *(operator_gradients, operator_indices, operator_integers, operator_layers, operator_masks, operator_memory),
    *(operator_operands, operator_shapes, operator_types),
)


@scenario
def celu_does_not_run_another_alphas_computation(device: str | torch.device) -> Any:
    results = []
    for alpha in (2.0, 0.5, 1.0):
        values = matrix(device).requires_grad_()
        result = F.celu(values, alpha)
        results += [result, torch.autograd.grad(result.sum(), values)[0]]
    return results


@scenario
def formulas_that_use_their_inputs_in_other_places_are_two_computations(device: str | torch.device) -> Any:
    """PyTorch/XLA's hash had only the operations, the types, and in which order inputs are met first."""
    x, w, v = (torch.full((2,), number).to(device) for number in (6.0, 1.0, 3.0))

    def made(formula: Callable[[], Any]) -> Any:
        found = formula()
        if device != "cpu":
            pw.step()
        return found

    def inner(second: bool) -> torch.Tensor:
        one, other = torch.sin(x), torch.sin(w)
        return one * other + (other if second else one)

    def results(second: bool) -> list[torch.Tensor]:
        one, other = torch.cos(x), torch.cos(w)
        return [one, other, one.max(0).values, (other if second else one).clone()]

    formulas: tuple[Callable[[], Any], ...] = (
        lambda: x * w + v + w,
        lambda: x * w + w + v,
        lambda: (x - w) * v + w,
        lambda: (x - w) * w + v,
        lambda: torch.where(x > w, x, v) * x,
        lambda: torch.where(x > w, w, v) * x,
        lambda: inner(False),
        lambda: inner(True),
        lambda: results(False),
        lambda: results(True),
        lambda: x.max(0).values + x.max(0).indices * v,
    )
    return [made(formula) for formula in formulas]


@scenario
def compiled_graphs_keep_torchs_running_variance(device: str | torch.device) -> Any:
    values, ones = (matrix(device) + 100) ** 2, torch.ones(4).to(device)
    mean, variance = torch.zeros(4).to(device), torch.ones(4).to(device)
    alone = torch.ops.aten._native_batch_norm_legit.no_stats(values, ones, None, True, 0.1, 1e-5)
    kept = torch.ops.aten._native_batch_norm_legit(values, ones, None, mean, variance, True, 0.1, 1e-5)
    return [*alone, *kept, mean, variance]


@scenario
def a_diagonal_of_the_first_dimensions_is_written(device: str | torch.device) -> Any:
    values = torch.arange(16.0).reshape(4, 2, 2).to(device)
    diagonal = values.diagonal()
    diagonal.add_(100)
    return [values, diagonal, values.diagonal(1, 2, 0)]


@scenario
def pooling_does_not_run_another_divisors_computation(device: str | torch.device) -> Any:
    image = torch.arange(36.0).reshape(1, 1, 6, 6).to(device)
    return [F.avg_pool2d(image, 2, divisor_override=divisor) for divisor in (None, 2, 3)]


@scenario
def shuffled_pixels_are_not_those_of_another_factor(device: str | torch.device) -> Any:
    image = torch.arange(576.0).reshape(1, 16, 6, 6).to(device)
    return [F.pixel_shuffle(image, factor) for factor in (4, 2)] + [F.pixel_unshuffle(image, n) for n in (3, 2)]


@scenario
def loss_scales_grow_by_their_own_factor(device: str | torch.device) -> Any:
    results = []
    for growth, backoff in ((2.0, 0.5), (3.0, 0.1)):
        for overflow in (0.0, 1.0):
            scale, steps = torch.tensor(8.0).to(device), torch.tensor(4, dtype=torch.int32).to(device)
            torch._amp_update_scale_(scale, steps, torch.tensor(overflow).to(device), growth, backoff, 5)
            results += [scale, steps]
    return results


@scenario
def gradients_of_elu_selu_and_in_place(device: str | torch.device) -> Any:
    results = []
    for function in (F.elu, F.selu, lambda values: F.elu_(values * 1.0)):
        values = matrix(device).requires_grad_()
        results.append(torch.autograd.grad(function(values).square().sum(), values)[0])
    return results


@scenario
def roll_of_nothing(device: str | torch.device) -> Any:
    return torch.roll(torch.zeros(0, 3).to(device), 1, 0)


@scenario
def extremes_of_nan_and_infinity(device: str | torch.device) -> Any:
    rows = torch.tensor([[1.0, NAN, 3.0], [-INFINITY] * 3, [INFINITY] * 3, [2.0, 2.0, 0.0]]).to(device)
    pairs = [rows.max(1), rows.min(1), rows.cummax(1), rows.cummin(1)]
    one = [rows.amax(1), rows.amin(1), rows.argmax(1), rows.argmin(1), rows.max(), rows[1].max(), rows[2].min()]
    return [*pairs, *one, rows.logsumexp(1), torch.maximum(rows, rows.flip(1))]


@scenario
def masks_hide_no_nan_and_no_infinity(device: str | torch.device) -> Any:
    results: list[Any] = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        values = torch.tensor([INFINITY, -INFINITY, NAN, NAN, 2.0, -3.0], dtype=dtype).to(device)
        mask = torch.tensor([True, False, True, False, True, False]).to(device)
        results += [mask * values, values * (values > 0), mask.to(dtype) * values, mask * INFINITY, mask * NAN]
        results += [values.clone().mul_(mask), (mask | mask).to(dtype)[:, None] * values, mask.to(dtype) @ values]
    return results


@scenario
def extremes_of_columns_with_nans_of_either_sign(device: str | torch.device) -> Any:
    results: list[Any] = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for number in (NAN, -NAN, INFINITY, -INFINITY, -0.0):
            rows = torch.arange(24.0).reshape(8, 3).sub(7).to(dtype)
            rows[5, 1] = number
            rows = rows.to(device)
            results += [rows.max(), rows.min(), rows.amax(0), rows.amin(0), *rows.max(0), *rows.min(0)]
    return results


@scenario
def thresholds_of_nan(device: str | torch.device) -> Any:
    values = torch.tensor([NAN, 2.0, -3.0, INFINITY, 1.0]).to(device).requires_grad_()
    results: list[Any] = []
    for function in (
        F.relu,
        lambda given: F.threshold(given, 1.0, -7.0),
        lambda given: F.threshold(given * 1, 0.0, 2.0, inplace=True),
    ):
        found = function(values)
        results += [found, torch.autograd.grad(found.sum(), values)[0]]
    return [*results, F.threshold(torch.arange(5).to(device), 2, -1)]


@scenario
def zero_dimensional_tensors(device: str | torch.device) -> Any:
    value = torch.tensor(2.5).to(device)
    index = torch.tensor([0]).to(device)
    softs = [value.softmax(0), value.log_softmax(-1), value.logsumexp(0), value.cumsum(0), value.sum(0), value.mean(-1)]
    indexed = [value.index_select(0, index), value.index_fill(0, index, 3.0), value.gather(0, index)]
    added = value.index_add(0, index, torch.tensor(1.0).to(device))
    return [*softs, *indexed, added, value.sort(), value.topk(1), value.squeeze(0)]


@scenario
def diagonals_of_any_dimensions(device: str | torch.device) -> Any:
    cube = torch.arange(60.0).reshape(3, 4, 5).to(device)
    results = [cube.diagonal(offset, *dims) for offset in (-1, 0, 2) for dims in ((0, 1), (1, 0), (0, 2), (2, 1))]
    changed = cube.clone()
    changed.diagonal(1, 0, 1).zero_()
    return [*results, changed]


@scenario
def a_loss_without_a_batch(device: str | torch.device) -> Any:
    scores = torch.tensor([0.1, 0.7, 0.2]).to(device).requires_grad_()
    target, weight = torch.tensor(1).to(device), torch.tensor([1.0, 2.0, 3.0]).to(device)
    loss = F.cross_entropy(scores, target, weight)
    return loss, torch.autograd.grad(loss, scores)[0]


@scenario
def pooling_rounded_up_and_dilated(device: str | torch.device) -> Any:
    image = torch.sin(torch.arange(98.0)).reshape(1, 2, 7, 7).to(device).requires_grad_()
    pooled = [
        F.max_pool2d(image, 3, 2, 1, ceil_mode=True),
        F.max_pool2d(image, 2, 2, 0, 2),
        F.avg_pool2d(image, 3, 2, 1, True, False),
        F.avg_pool2d(image, 3, 2, 1, True, True),
    ]
    weighted = torch.stack([(item * torch.cos(item.detach())).sum() for item in pooled]).sum()
    return [*pooled, torch.autograd.grad(weighted, image)[0]]


@scenario
def images_resampled_by_a_scale(device: str | torch.device) -> Any:
    image = torch.sin(torch.arange(40.0)).reshape(1, 2, 4, 5).to(device).requires_grad_()
    results = []
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        result = F.interpolate(image, scale_factor=1.7, mode=mode)
        results += [result, torch.autograd.grad((result * result.detach()).sum(), image)[0]]
    return results


@scenario
def counts_norms_and_inverses(device: str | torch.device) -> Any:
    values = matrix(device)
    square = values[:, :3] @ values[:, :3].T + 9 * torch.eye(3).to(device)
    counted = [values.count_nonzero(), values.count_nonzero(1), torch.norm(values, INFINITY), torch.norm(values, 0)]
    return [*counted, torch.linalg.inv_ex(square), torch.linalg.slogdet(square)]


@scenario
def gradients_averaged_over_all_devices_that_could_be_bound(device: str | torch.device) -> Any:
    """As Accelerate does: one program is the only process, whatever it has its devices replicated over."""
    values = [matrix(device) + 1, matrix(device) * 2, matrix(device).sum()]
    if torch.device(device).type == "xla":
        import torch_xla.core.xla_model as xm
        import torch_xla.runtime as xr

        everything: Any = xm.get_xla_supported_devices()
        xm.set_replication(torch.device(device), everything)
        xm.all_reduce("sum", values, scale=1.0 / xr.world_size())
        assert xr.world_size() == 1 and xm.all_gather(values[0]).shape == values[0].shape
    return values


@scenario
def complex128_on_the_client_and_to_the_cpu(device: str | torch.device) -> Any:
    values = torch.arange(8.0, dtype=torch.float64).to(device)
    spectrum = torch.fft.rfft(values) * 1j
    kept = torch.zeros(spectrum.shape, dtype=spectrum.dtype).copy_(spectrum)
    return torch.fft.irfft(spectrum), spectrum, kept, spectrum.to("cpu", torch.complex64), spectrum.conj()


@scenario
def complex_numbers(device: str | torch.device) -> Any:
    left = torch.tensor([[1 + 2j, 3 - 4j]]).to(device).requires_grad_()
    right = torch.tensor([[0.5 - 1j, 2 + 1j]]).to(device).requires_grad_()
    results = [left / right, left.tanh(), left.sigmoid(), torch.einsum("ij,ij->i", left, right)]
    weighted = sum((torch.view_as_real(result).square().sum() for result in results), torch.zeros(()).to(device))
    moments = [left.mean(), left.var(), F.pad(left, (1, 0), value=2.0)]
    turned = torch.view_as_real(left).transpose(0, 1)
    return [*results, *torch.autograd.grad(weighted, [left, right]), *moments, turned]


@scenario
def a_number_given_to_an_operation_of_the_client(device: str | torch.device) -> Any:
    return torch.copysign(matrix(device), -2.0)


@scenario
def infinities_stay_infinite_beside_one_bound(device: str | torch.device) -> Any:
    results: list[Any] = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for bound in (0.0, 1, INFINITY, -INFINITY, NAN):
            values = torch.tensor([1.0, INFINITY, -INFINITY, NAN, -2.0], dtype=dtype).to(device).requires_grad_()
            bounded = [values.clamp(min=bound), values.clamp(max=bound), values.clamp_min(bound)]
            bounded += [values.clamp_max(bound), values.clamp(bound, 2.0), (values * 1.0).clamp_(min=bound)]
            results += [*bounded, *torch.autograd.grad([item.sum() for item in bounded], values)]
    for numbers in (torch.tensor([1, 5, -3]), torch.tensor([2**62, -(2**63), 2**63 - 1]), torch.tensor([True, False])):
        numbers = numbers.to(device)
        results += [numbers.clamp(min=2), numbers.clamp(max=2), numbers.clamp(min=2.5), numbers.clamp_max(2.5)]
        results += [numbers.clamp_min(2), numbers.clamp(0, 2.5)]
    return results


@scenario
def slices_that_begin_before_the_first_element(device: str | torch.device) -> Any:
    values = matrix(device).requires_grad_()
    slices = [values[-100:2], values[-4:], values[-100:-50], values[2:-100], values[-9:3:2, -9:3], values[-2:, :-1]]
    gradient = torch.autograd.grad([(item * item).sum() for item in slices], values)
    written = [matrix(device) for _ in range(4)]
    written[0][-6:2] = 9
    written[1][:, -9:2] = torch.tensor([[5.0, 6.0]]).to(device)
    written[2][-6:-5].zero_()
    written[3][-6:2].mul_(2)
    scattered = torch.slice_scatter(matrix(device), torch.zeros(2, 4).to(device), 0, -100, 2)
    return [*slices, *gradient, *written, scattered]


@scenario
def replacements_that_are_not_finite(device: str | torch.device) -> Any:
    results: list[Any] = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        values = torch.tensor([INFINITY, NAN, -INFINITY, 1.5], dtype=dtype).to(device).requires_grad_()
        given = [(), (INFINITY,), (NAN, 0.1, -0.1), (0.0, INFINITY, -INFINITY), (1.0, NAN, INFINITY), (0.0, 1e39)]
        replaced = [torch.nan_to_num(values, *numbers) for numbers in given]
        results += [*replaced, torch.autograd.grad(replaced[0].sum(), values)[0]]
    pair = torch.tensor([complex(INFINITY, NAN)]).to(device)
    return [*results, torch.nan_to_num(pair), torch.nan_to_num(torch.tensor([1, 2]).to(device), INFINITY)]


@scenario
def tensors_filled_with_a_complex_number(device: str | torch.device) -> Any:
    return [torch.full((2,), number, device=device) for number in (1j, 1.5, 1, True)]


@scenario
def reductions_that_name_no_dimension(device: str | torch.device) -> Any:
    """Go over all dimensions, but for ``all`` and ``any``, which go over none. PyTorch/XLA took each to go over none:
    the gradient of the largest element was not divided among equal ones, and NaN at the others."""
    values = torch.tensor([[2.0, 5.0, 5.0], [1.0, 1.0, 5.0]]).to(device)
    short, whole, complex_ = values.bfloat16(), values > 1, values + 1j
    results: list[Any] = []
    for keepdim in (False, True):
        for reduce in (torch.sum, torch.mean, torch.std, torch.var, torch.var_mean, torch.std_mean, torch.nanmean):
            results.append(reduce(values, dim=(), keepdim=keepdim))
        results += [torch.sum(each, dim=[], keepdim=keepdim) for each in (short, whole, complex_)]
        results += [reduce(whole, dim=(), keepdim=keepdim) for reduce in (torch.all, torch.any)]
        results += [reduce(each, dim=(), keepdim=keepdim) for reduce in (torch.amax, torch.amin) for each in (short,)]
    results += [torch.mean(short, dim=()), torch.mean(complex_, dim=()), torch.sum(values, (), dtype=torch.float64)]
    for largest in (torch.amax, torch.amin, torch.max, lambda each: torch.linalg.vector_norm(each, math.inf)):
        leaf = values.clone().requires_grad_()
        results += torch.autograd.grad(largest(leaf).sum(), leaf)
    scalar = torch.tensor(3.0).to(device)
    results += [scalar.sum(dim=()), scalar.mean(dim=()), scalar.amax(dim=()), (scalar > 1).all(dim=())]
    vector, scale = values.flatten(), torch.arange(6.0).to(device)
    return [*results, *torch._weight_norm_interface(vector, scale, 0)]


@scenario
def forward_gradients(device: str | torch.device) -> Any:
    x = torch.linspace(-1, 1, 6).to(device)
    torch.manual_seed(0)
    gru, steps = nn.GRU(3, 4).to(device), x.reshape(2, 1, 3)
    made = torch.func.jvp(lambda values: gru(values)[0], (steps,), (steps,))
    return [*torch.func.jvp(torch.sin, (x,), (x,)), torch.func.jacfwd(torch.tanh)(x), *made]


@scenario
def indices_that_devices_do_not_divide(device: str | torch.device) -> Any:
    tokens = torch.arange(8).to(device)
    embedding = nn.Embedding(16, 4)
    with torch.no_grad():
        embedding.weight.copy_(torch.arange(64.0).reshape(16, 4) / 64)
    embedding = embedding.to(device)
    embedding(tokens[:5]).pow(2).sum().backward()
    rows, ones = torch.ones(5, 4).to(device), torch.ones(5).to(device)
    added = torch.zeros(10, 4).to(device).index_add(0, tokens[:5], rows)
    return [embedding.weight.grad, added, torch.zeros(10).to(device).scatter_add(0, tokens[:5], ones)]


def difference(function: Scenario, device: torch.device) -> str:
    """What differs from the CPU; empty if nothing does."""
    expected, found = tree_leaves(function("cpu")), tree_leaves(function(device))
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{number}: {other.dtype} {tuple(other.shape)} instead of {one.dtype} {tuple(one.shape)}"
        exact = not (one.is_floating_point() or one.is_complex())
        rtol, atol = (0.0, 0.0) if exact else (1e-4, 1e-5)
        left, right = (item.detach().cpu().resolve_conj() for item in (one, other))
        if not torch.allclose(left, right, rtol=rtol, atol=atol, equal_nan=True):
            return f"{number}: {other.cpu()} instead of {one}"
    return ""


def randomised(device: torch.device) -> str:
    """Whether shapes of their own are drawn after others were."""
    for shape in ((10,), (3, 5), (2, 2, 2)):
        for drawn in (
            torch.empty(shape, device=device).exponential_(),
            torch.ones(shape, device=device).bernoulli_(0.5),
        ):
            if drawn.cpu().shape != shape:
                return f"{tuple(drawn.cpu().shape)} instead of {shape}"
    return ""


def seeded(device: torch.device) -> str:
    """Whether ``torch.manual_seed`` seeds the devices, also with the seed that they had."""
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        drawn.append([torch.rand(8, device=device).tolist(), torch.randn(3, device=device).tolist()])
    if drawn[0] != drawn[1]:
        return f"{drawn[0]} and then {drawn[1]}"
    return f"{drawn[0]} of another seed" if drawn[0] == drawn[2] else ""


def main() -> None:
    pw.init(hosts=1, devices_per_host=int(sys.argv[1]))
    device = pw.device()
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for function in SCENARIOS:
        try:
            found[function.__name__] = difference(function, device)
        except Exception as error:
            found[function.__name__] = f"{type(error).__name__}: {error}"
    found["randomised"] = randomised(device)
    found["seeded"] = seeded(device)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.linalg.slogdet(torch.eye(2, device=device))
    found["warnings"] = [str(item.message) for item in told if item.category is frontend.ClientFallbackWarning]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
