"""Layers and optimizers whose operators PyTorch/XLA has wrong. Run by `operator_scenarios.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch_xla
from torch import nn
from torch.amp import grad_scaler
from torch.func import linearize
from torch.nn.utils import rnn
from torch.utils._pytree import tree_leaves
from torch_xla.experimental import scan

from ptpathways.frontend.kernels.layers import _normalization
from ptpathways.frontend.xla import _xla
from tests import inside
from tests.proc.operator_basis import INFINITY, matrix, scenario


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
def a_frozen_batch_norm_trains_what_is_before_it(device: str | torch.device) -> Any:
    values = matrix(device).requires_grad_()
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
    one, other = (inside.hlo_of(results) for results in both)
    return torch.tensor(one == other)


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


@scenario
def steps_of_parameters_that_share_memory(device: str | torch.device) -> Any:
    results: list[torch.Tensor] = []
    on_device = torch.device(device).type == "xla"
    makes: list[Any] = [torch.optim.SGD, torch.optim.AdamW]
    for make in makes:
        for options in ({}, {"foreach": on_device}, {"fused": True}):  # one by one on the CPU
            for shared in (True, False):
                torch.manual_seed(0)
                first, second = (nn.Parameter(torch.randn(6).to(device)) for _ in range(2))
                flat = torch.randn(12).to(device)
                first.data = flat[:6]
                second.data = first.data if shared else flat[6:]
                optimizer = make([first, second], lr=0.05, **options)
                for _ in range(3):
                    optimizer.zero_grad()
                    (first.sum().square() + second.sin().sum()).backward()
                    optimizer.step()
                    if on_device:
                        torch_xla.sync()
                results += [first.detach(), second.detach()]
    return results


@scenario
def a_gru_has_its_gradients_after_calls_without_them(device: str | torch.device) -> Any:
    """PyTorch/XLA kept what it had traced for an input that needs no gradient."""
    results: list[torch.Tensor] = []
    for before in range(4):
        torch.manual_seed(0)
        embedding, gru = nn.Embedding(9, 3 + before).to(device), nn.GRU(3 + before, 4, 2).to(device)
        tokens = torch.arange(10).remainder(9).view(5, 2).to(device)
        if before == 1:
            with torch.no_grad():
                gru(embedding(tokens))
        elif before == 2:
            gru(embedding(tokens).detach())[0].sum().backward()
            gru.zero_grad()
        elif before == 3:
            with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
                gru(embedding(tokens))
        made, hidden = gru(embedding(tokens))
        (made.square().sum() + hidden.sum()).backward()
        results += [made.detach(), *(p.grad for m in (embedding, gru) for p in m.parameters() if p.grad is not None)]
    return results


@scenario
def sums_over_one_letter_twice(device: str | torch.device) -> Any:
    """Where the result's letters are not given; PyTorch/XLA's gradient had none of its dimensions."""
    found = []
    for equation, *shapes in (("ii", (3, 3)), ("iii", (2, 2, 2)), ("iij", (2, 2, 3)), ("iji,j", (2, 3, 2), (3,))):
        leaves = [torch.arange(float(math.prod(shape))).reshape(shape).to(device).requires_grad_() for shape in shapes]
        read = torch.einsum(equation, *leaves)
        read.sin().sum().backward()
        found += [read, *(leaf.grad for leaf in leaves)]
    return found


@scenario
def many_tensors_of_several_shapes_with_a_tensor_of_their_factors(device: str | torch.device) -> Any:
    found, factors = [], torch.tensor([1.0, 2.0, 3.0])
    for shapes in (((2,), (), (3, 2)), ((),), ((1,), (4,))):
        for name in ("addcmul", "addcdiv"):
            values = [torch.ones(shape).to(device) for shape in shapes]
            others = [torch.full(shape, 2.0).to(device) for shape in shapes]
            given = (others, values, factors[: len(shapes)])
            found += getattr(torch, f"_foreach_{name}")(values, *given)
            getattr(torch, f"_foreach_{name}_")(values, *given)
            found += values
    twice = torch.ones(2).to(device)
    torch._foreach_addcmul_([twice, twice], [twice, twice], [twice, twice], factors[:2])
    refused = [torch.ones(()).to(device)]
    try:
        torch._foreach_addcmul_(refused, [twice], [twice], factors[:1])
    except RuntimeError:
        return [*found, twice, *refused]
    raise AssertionError("a larger result")


@scenario
def images_that_double_or_keep_their_size_by_another_scale(device: str | torch.device) -> Any:
    """Torch takes no notice of the scale then: of images, and in each gradient."""
    found = []
    scales: tuple[Any, ...] = (2.3, 1.2, 2.0, 0.7, 3.1)
    for shape in ((1, 2, 3), (1, 2, 3, 5), (2, 1, 2, 3, 4)):
        of_each = ((2.3, 1.2), (1.2, 2.3), (2.3, 1.0)) if len(shape) == 4 else ()
        for mode in ("nearest", "nearest-exact"):
            for scale in (*scales, *of_each):
                values = torch.arange(float(math.prod(shape))).reshape(shape).to(device).requires_grad_()
                made = F.interpolate(values, scale_factor=scale, mode=mode)
                (made * torch.arange(float(made.numel())).reshape(made.shape).to(device)).sum().backward()
                found += [made, values.grad]
    return [*found, F.interpolate(torch.arange(9).byte().reshape(1, 1, 3, 3).to(device), scale_factor=2.3)]


@scenario
def linear_approximations_of_functions(device: str | torch.device) -> Any:
    """Of tangents that the function did not know, with a name that was imported before there were devices."""

    def both(left: torch.Tensor, more: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sine": (left * more["right"]).sin(), "sum": left.sum()}

    one, right = torch.arange(3.0).to(device), torch.ones(3).to(device)
    found = []
    for function in (torch.sin, lambda values: values * 2, lambda values: values.square().sum()):
        result, tangents_of = linearize(function, one)
        found += [result, tangents_of(right), tangents_of(one), torch.vmap(tangents_of)(torch.eye(3).to(device))]
    result, tangents_of = linearize(both, one, {"right": right})
    found += [result, tangents_of(right, {"right": one})]
    for wrong in ((one[:2], {"right": one}), (one.double(), {"right": one}), (one,)):
        try:
            tangents_of(*wrong)
        except RuntimeError:
            continue
        raise AssertionError(f"not refused: {wrong}")
    return found


@scenario
def a_gru_of_a_sequence_without_a_batch(device: str | torch.device) -> Any:
    """With ``batch_first`` PyTorch/XLA's was transposed, and so were its gradients."""
    results: list[torch.Tensor] = []
    for first, length, hidden in ((True, 4, False), (True, 1, True), (True, 4, True), (False, 4, True)):
        torch.manual_seed(0)
        gru = nn.GRU(2, 3, 2, batch_first=first).to(device)
        values, start = (torch.randn(shape).to(device).requires_grad_() for shape in ((length, 2), (2, 3)))
        made, last = gru(values, start) if hidden else gru(values)
        loss = (made * torch.arange(length * 3.0).reshape(length, 3).to(device)).sum() + last.square().sum()
        leaves = [values, *gru.parameters(), *[start] * hidden]
        results += [made.detach(), last.detach(), *torch.autograd.grad(loss, leaves)]
    return results


@scenario
def normalization_of_float64_is_computed_in_float64(device: str | torch.device) -> Any:
    """To 1e-12, which the comparison of all results does not ask for; XLA's operation rounds eps to float32."""
    results: list[torch.Tensor] = []
    for layer, shape in (
        *((nn.LayerNorm(6, eps=1e-3), (2, 4, 6)), (nn.GroupNorm(2, 4, eps=1e-3), (2, 4, 6))),
        *((nn.InstanceNorm1d(4, eps=1e-3), (2, 4, 6)), (nn.LayerNorm(2, eps=1e-3, elementwise_affine=False), (1, 2))),
        *((nn.BatchNorm1d(4, eps=1e-3), (3, 4)), (nn.BatchNorm2d(4, eps=1e-3, affine=False), (2, 4, 3, 2))),
    ):
        layer = layer.to(torch.float64).to(device)
        values = (torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape).sin() / 100).to(device)
        for training in (True, False):
            values.requires_grad_()
            made = layer.train(training)(values)
            results += [made, *torch.autograd.grad((made * values.detach().cos()).pow(3).sum(), values)]
        results += layer.buffers()
    return [torch.sin(1e7 * item.detach().cpu()) for item in results]


@scenario
def a_gru_has_second_gradients(device: str | torch.device) -> Any:
    torch.manual_seed(0)
    gru, values = nn.GRU(2, 3, 2).to(device), torch.randn(3, 2, 2).to(device).requires_grad_()
    start = values.mean(0, keepdim=True).expand(2, 2, 2)[..., [0, 1, 0]]  # made of the values
    (first,) = torch.autograd.grad(gru(values, start)[0].square().sum(), values, create_graph=True)
    results = [first.detach(), *torch.autograd.grad(first.square().sum(), [values, *gru.parameters()])]

    def loss(x: torch.Tensor) -> Any:
        return gru(x)[0].square().sum()

    gru.zero_grad()
    loss(values).backward(create_graph=True)
    assert values.grad is not None
    results += [values.grad, *torch.autograd.functional.hvp(loss, values.detach(), values.detach())]
    frozen = gru.requires_grad_(False)(values)[0]
    results += torch.autograd.grad(frozen.sum(), values, create_graph=True)
    return results


@scenario
def transforms_of_a_gru(device: str | torch.device) -> Any:
    torch.manual_seed(0)
    gru, values = nn.GRU(2, 3).to(device), torch.randn(2, 2, 2).to(device)

    def made(x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = gru(x)[0]
        return output

    def loss(parameters: Any) -> torch.Tensor:
        output: torch.Tensor = torch.func.functional_call(gru, parameters, (values,))[0]
        return output.square().sum()

    results = [torch.func.grad(lambda x: made(x).square().sum())(values), torch.func.jacrev(made)(values)]
    results += [*torch.func.grad(loss)(dict(gru.named_parameters())).values()]
    return [*results, torch.func.jacrev(torch.func.grad(lambda x: made(x).sum()))(values)]


@scenario
def second_gradients_of_a_scan_that_may_draw_numbers_are_refused(device: str | torch.device) -> Any:
    if torch.device(device).type == "cpu":
        return torch.tensor(True)
    values = torch.ones(3, 2).to(device).requires_grad_()

    def step(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return carry * x, carry + x

    for pure in (True, False):
        _, made = scan.scan(step, torch.ones(2).to(device), values, is_fn_pure=pure)
        try:
            torch.autograd.grad(made.square().sum(), values, create_graph=True)
        except NotImplementedError as error:
            assert not pure and "is_fn_pure=True" in str(error), error
        else:
            assert pure
    return torch.tensor(True)


@scenario
def gradients_of_many_at_once(device: str | torch.device) -> Any:
    values = torch.linspace(-2, 2, 6).reshape(2, 3).to(device)
    functions: tuple[Any, ...] = (torch.sigmoid, F.leaky_relu, F.softplus, F.hardshrink, F.softshrink, F.silu, F.elu)
    return [torch.func.jacrev(function)(values) for function in functions]


@scenario
def transforms_of_what_torch_makes_of_other_operations(device: str | torch.device) -> Any:
    """PyTorch/XLA has kernels for them, of which a transform took no gradient."""
    values = (torch.arange(9.0).sin().reshape(3, 3) / 4 + torch.eye(3) + 0.3).to(device)
    functions: tuple[Any, ...] = (
        *(F.selu, torch.logdet, torch.diag, lambda x: torch.selu_(x * 1), lambda x: torch.svd(x)[1]),
        *(torch.std, lambda x: x.std(1), lambda x: x.std(unbiased=False), lambda x: torch.qr(x)[1].abs()),
        *(lambda x: torch.cross(x, x.flip(0), dim=1), lambda x: F.kl_div(x, x.flip(0).abs(), reduction="sum")),
    )
    results: list[torch.Tensor] = []
    for function in functions:
        leaf = values.clone().requires_grad_()
        results += [function(values), *torch.autograd.grad(function(leaf).square().sum(), leaf)]
        results.append(torch.func.grad(lambda x, function=function: function(x).square().sum())(values))
    return results


@scenario
def gradients_of_fourier_transforms_in_a_row(device: str | torch.device) -> Any:
    """Torch's formula for ``rfft`` reads freed sizes of a gradient to which a write is pending; ``irfft`` has such a
    gradient."""
    window = torch.ones(8).to(device)

    def short(values: torch.Tensor) -> torch.Tensor:
        return torch.stft(values.flatten(), 8, window=window, return_complex=True)

    functions: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        lambda x: torch.fft.irfft(torch.fft.rfft(x)),
        lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), n=5),
        lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=0), dim=0),
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x)),
        lambda x: torch.fft.hfft(torch.fft.ihfft(x)),
        lambda x: torch.istft(short(x), 8, window=window),
    )
    results: list[Any] = []
    for function in functions:
        values = torch.linspace(-1, 2, 24).reshape(4, 6).to(device).requires_grad_()
        (first,) = torch.autograd.grad(function(values).sin().sum(), values, create_graph=True)
        results += [function(values).detach(), first, *torch.autograd.grad(first.cos().sum(), values)]
        results.append(torch.func.grad(lambda x, function=function: function(x).sin().sum())(values.detach()))
    infinite = torch.tensor([[INFINITY, 1.0, 0.0, -0.0]]).to(device)
    return [*results, torch.fft.rfft(infinite.requires_grad_()).detach().real]


@scenario
def norms_of_views_of_what_was_written(device: str | torch.device) -> Any:
    """Torch's functionalization makes such a view anew when it is used."""
    results: list[Any] = []
    views: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        lambda y: y.view(2, 3, 4),
        lambda y: y[1:5].unsqueeze(0),
        lambda y: y.t()[:2, None],
    )
    for view in views:
        written = torch.arange(24.0).reshape(6, 4).to(device)
        written.add_(1).mul_(0.5)
        trained = torch.linspace(-1, 1, 24).reshape(6, 4).to(device).requires_grad_()
        with torch.no_grad():
            trained.mul_(2)
        for values in (written, torch.zeros(6, 4, device=device), trained):
            part = view(values)
            results.append(F.layer_norm(part, part.shape[-1:]))
            results.append(F.group_norm(view(values), 1))
        (results[-1] * results[-2]).square().sum().backward()
        results.append(trained.grad)
    return results
