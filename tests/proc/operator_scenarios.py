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
import torch_xla
from torch import nn
from torch.amp import grad_scaler
from torch.nn.utils import rnn
from torch.utils._pytree import tree_leaves

import ptpathways as pw
from ptpathways import frontend
from ptpathways.frontend.kernels import _normalization
from ptpathways.frontend.xla import _xla

INFINITY, NAN = float("inf"), float("nan")

Scenario = Callable[[str | torch.device], Any]
SCENARIOS: list[Scenario] = []
"""Each computes on a device; all results must be those of the CPU."""


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


def _matrix(device: str | torch.device) -> torch.Tensor:
    return (torch.arange(12.0).reshape(3, 4) - 5).to(device)


@scenario
def celu_does_not_run_another_alphas_computation(device: str | torch.device) -> Any:
    results = []
    for alpha in (2.0, 0.5, 1.0):
        values = _matrix(device).requires_grad_()
        result = F.celu(values, alpha)
        results += [result, torch.autograd.grad(result.sum(), values)[0]]
    return results


@scenario
def compiled_graphs_keep_torchs_running_variance(device: str | torch.device) -> Any:
    values, ones = (_matrix(device) + 100) ** 2, torch.ones(4).to(device)
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
def parameters_that_join_an_optimizer_later_are_trained(device: str | torch.device) -> Any:
    """In one trace: the state of the others is not computed before the rest of their step."""
    first, second = (torch.ones(4).mul(number).to(device).requires_grad_() for number in (1.0, 2.0))
    optimizer = torch.optim.AdamW([first], lr=0.1)
    for number in range(5):
        if number == 2:
            optimizer.add_param_group({"params": [second]})
        optimizer.zero_grad()
        (first * second).square().sum().backward()
        optimizer.step()
    return [first, second]


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
        values = _matrix(device).requires_grad_()
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
def a_frozen_batch_norm_trains_what_is_before_it(device: str | torch.device) -> Any:
    values = _matrix(device).requires_grad_()
    layer = torch.nn.BatchNorm1d(4).to(device).eval()
    return torch.autograd.grad(layer(values).square().sum(), [values, *layer.parameters()])


@scenario
def batch_norm_keeps_the_statistics_that_torch_keeps(device: str | torch.device) -> Any:
    kept: list[Any] = []
    for layer, shape in (
        (torch.nn.BatchNorm1d(4), (3, 4)),
        (torch.nn.BatchNorm2d(4, momentum=None), (2, 4, 3, 2)),
        (torch.nn.InstanceNorm1d(4, track_running_stats=True), (2, 4, 5)),
    ):
        layer = layer.to(device)
        for turn in range(3):
            layer(torch.sin(torch.arange(math.prod(shape)) + turn).reshape(shape).to(device))
        kept += [*layer.buffers(), layer.eval()(torch.ones(shape, device=device))]
    return kept


@scenario
def normalization_of_values_far_from_zero(device: str | torch.device) -> Any:
    layers = [torch.nn.BatchNorm1d(4), torch.nn.LayerNorm(6), torch.nn.GroupNorm(2, 4), torch.nn.InstanceNorm1d(4)]
    values = (torch.sin(torch.arange(48.0)).reshape(2, 4, 6) + 300).to(device)
    near = [(layer.to(device)(values) - layer(values - 300)).abs().max() < 1e-4 for layer in layers]
    return near, layers[0].running_mean


@scenario
def a_normalization_is_one_computation_in_python_and_without_it(device: str | torch.device) -> Any:
    if torch.device(device).type == "cpu":
        return torch.tensor(True)
    values = torch.randn(1, 6, 8, device=device)
    torch_xla.sync()
    words = (values, None, None, None, None, True, 0.0, 1e-5)
    former = _xla.former("native_batch_norm")
    both = (torch.native_batch_norm(*words), _normalization.batch_norm(former, *words))
    one, other = (_xla.binding()._get_xla_tensors_hlo(list(results)) for results in both)
    return torch.tensor(one == other)


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
    values = _matrix(device)
    square = values[:, :3] @ values[:, :3].T + 9 * torch.eye(3).to(device)
    counted = [values.count_nonzero(), values.count_nonzero(1), torch.norm(values, INFINITY), torch.norm(values, 0)]
    return [*counted, torch.linalg.inv_ex(square), torch.linalg.slogdet(square)]


@scenario
def gradients_averaged_over_all_devices_that_could_be_bound(device: str | torch.device) -> Any:
    """As Accelerate does: one program is the only process, whatever it has its devices replicated over."""
    values = [_matrix(device) + 1, _matrix(device) * 2, _matrix(device).sum()]
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
def functions_of_booleans(device: str | torch.device) -> Any:
    values = torch.tensor([True, False]).to(device)
    return [values.exp(), values.sqrt(), values.isneginf(), values.sigmoid(), torch.atan2(values, values)]


@scenario
def a_number_given_to_an_operation_of_the_client(device: str | torch.device) -> Any:
    return torch.copysign(_matrix(device), -2.0)


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
def quotients_that_are_rounded(device: str | torch.device) -> Any:
    far = torch.tensor([2**62 + 1, -(2**40) - 1, 123456789, -123456789, -7, 7, 0, -(2**63)]).to(device)
    near = torch.tensor([3, -7, 1, 2, 2, -2, 5, 3]).to(device)
    results: list[Any] = [far // near, far // 1, far // -3, 7 // near, far.reshape(8, 1) // near[:3], far[:0] // 2]
    for mode in ("floor", "trunc", None):
        results += [
            torch.div(far, divisor, rounding_mode=mode) for divisor in (near, 7, near[0], 2.0, near.to(torch.int8))
        ]
    for dtype in (torch.int32, torch.int16, torch.int8, torch.uint8):
        small = torch.tensor([123, 100, 7, 6]).to(dtype).to(device) * (2000 if dtype == torch.int32 else 1)
        results += [small // 7, small // small.flip(0), small.clone().floor_divide_(3)]
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        values = torch.tensor([1.0, -5.5, 0.1, INFINITY, NAN, 0.0], dtype=dtype).to(device)
        results += [values // 0.1, values // -2, values // 0, 7.5 // values, values // values.flip(0)]
    return results


@scenario
def a_quotient_by_the_number_zero_is_refused(device: str | torch.device) -> Any:
    for divide in (
        lambda values: values // 0,
        lambda values: torch.div(values, 0, rounding_mode="trunc"),
        lambda values: values % 0,
        lambda values: torch.fmod(values, 0),
    ):
        try:
            divide(torch.tensor([5, -7]).to(device))
        except RuntimeError as error:
            assert "ZeroDivisionError" in str(error)
        else:
            raise AssertionError("integers were divided by zero")
    return []


@scenario
def shifts_of_integers(device: str | torch.device) -> Any:
    results: list[Any] = []
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        values = torch.tensor([-8, 8, -1, 127, 1]).to(dtype).to(device)
        by = torch.tensor([1, 7, 3, 0, 100]).to(dtype).to(device)
        results += [values >> by, values << by, values >> by[0], values << by.to(torch.int16), 3 << by, -300 >> by]
        for number in (0, 1, 7, 31, 63, 64, -1):
            results += [values >> number, values << number, values.clone().__irshift__(number)]
    return results


@scenario
def slices_that_begin_before_the_first_element(device: str | torch.device) -> Any:
    values = _matrix(device).requires_grad_()
    slices = [values[-100:2], values[-4:], values[-100:-50], values[2:-100], values[-9:3:2, -9:3], values[-2:, :-1]]
    gradient = torch.autograd.grad([(item * item).sum() for item in slices], values)
    written = [_matrix(device) for _ in range(4)]
    written[0][-6:2] = 9
    written[1][:, -9:2] = torch.tensor([[5.0, 6.0]]).to(device)
    written[2][-6:-5].zero_()
    written[3][-6:2].mul_(2)
    scattered = torch.slice_scatter(_matrix(device), torch.zeros(2, 4).to(device), 0, -100, 2)
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
def packed_sequences(device: str | torch.device) -> Any:
    results: list[Any] = []
    for layer, first, lengths in (
        (nn.LSTM, True, [7, 5, 3]),
        (nn.RNN, False, [3, 7, 5]),
        (nn.GRU, True, [3, 7, 5]),
    ):
        torch.manual_seed(0)
        values = torch.randn((3, 7, 4) if first else (7, 3, 4)).to(device).requires_grad_()
        model = layer(4, 5, batch_first=first).to(device)
        in_order = lengths == sorted(lengths, reverse=True)
        packed = rnn.pack_padded_sequence(values, torch.tensor(lengths), batch_first=first, enforce_sorted=in_order)
        outputs, states = model(packed)
        padded, found = rnn.pad_packed_sequence(outputs, batch_first=first, padding_value=0.5, total_length=8)
        (padded.square().sum() + sum(state.sum() for state in tree_leaves(states))).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        results += [packed.data, packed.batch_sizes, padded, found, values.grad, *tree_leaves(states), *gradients]
    return results


@scenario
def forward_gradients(device: str | torch.device) -> Any:
    x = torch.linspace(-1, 1, 6).to(device)
    return [*torch.func.jvp(torch.sin, (x,), (x,)), torch.func.jacfwd(torch.tanh)(x)]


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
def steps_of_fused_optimizers(device: str | torch.device) -> Any:
    results: list[torch.Tensor] = []
    for make in (
        lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, fused=True),
        lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01).to(device), weight_decay=0.1, maximize=True, fused=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1, fused=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    ):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(device)
        optimizer: Any = make(model.parameters())
        scaler = grad_scaler.GradScaler(torch.device(device).type, init_scale=16.0, growth_interval=2)
        for number in range(4):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 5).to(device)).square().mean()
            scaler.scale(loss * math.inf if number == 2 else loss).backward()
            scaler.step(optimizer)
            scaler.update()
        states = [value for slots in optimizer.state.values() for value in slots.values() if value is not None]
        results += [*(parameter.detach() for parameter in model.parameters()), *states]
    return results


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
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.linalg.slogdet(torch.eye(2, device=device))
    found["warnings"] = [str(item.message) for item in told if item.category is frontend.ClientFallbackWarning]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
