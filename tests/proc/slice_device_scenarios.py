"""Slices as torch devices: loops on them, copies between them, moving them, functions beside them, and misuse."""

from __future__ import annotations

import copy
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ptpathways as pw
from ptpathways.frontend.slices import _slice
from tests import inside
from tests.proc.cluster_scenarios import equal, refused, run
from tests.proc.slice_basis import STEPS, data, model_of, same, stats, train
from tests.proc.slice_moves import (
    a_captured_step_goes_on_after_a_move,
    a_slice_moves_in_mid_training,
    copies_between_slices_do_not_pass_the_client,
    functions_and_futures_follow_a_slice,
    state_follows_a_model_to_another_slice,
    what_has_no_value_does_not_keep_a_slice_from_moving,
)


def a_plain_loop_trains_on_every_kind_of_slice(cluster: pw.Cluster) -> None:
    wanted = train(model_of(), data())
    with cluster.slice((2,)) as pair, cluster.slice((2, 2), ("a", "b")) as grid, cluster.slice((1,)) as one:
        for device in (pw.device(), pair.device, grid.device, one.device, pw.device(3)):
            same(train(model_of().to(device), data().to(device)), wanted)


def two_models_train_side_by_side(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s, cluster.slice((2,)) as t:
        models = [model_of(1).to(s.device), model_of(2).to(t.device)]
        inputs = [data().to(s.device), data().to(t.device)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
        losses: list[list[torch.Tensor]] = [[], []]
        for _ in range(STEPS):
            for model, x, optimizer, found in zip(models, inputs, optimizers, losses, strict=True):
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), x)
                loss.backward()
                optimizer.step()
                found.append(loss.detach())
            pw.step()
        for seed, found in zip((1, 2), losses, strict=True):
            model = model_of(seed)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            wanted = []
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = F.mse_loss(model(data()), data())
                loss.backward()
                optimizer.step()
                wanted.append(loss.detach())
            same(found, wanted)


def threads_train_on_a_slice_each(cluster: pw.Cluster) -> None:
    def loop(seed: int, device: torch.device | None, losses: list[torch.Tensor]) -> None:
        torch.manual_seed(seed)
        model, x = models[seed], data()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if device is not None:
            pw.prepare(model, optimizer, slice=_slice.of_device(device))
            x = x.to(device)
        for _ in range(30):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), x)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())

    with cluster.slice((2,)) as s, cluster.slice((2,)) as t:
        models = [model_of(seed) for seed in range(2)]
        wanted: list[list[torch.Tensor]] = [[], []]
        for seed in range(2):
            loop(seed, None, wanted[seed])
        models = [model_of(seed) for seed in range(2)]
        found: list[list[torch.Tensor]] = [[], []]
        threads = [
            threading.Thread(target=loop, args=(seed, slice.device, found[seed])) for seed, slice in enumerate((s, t))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for mine, its in zip(found, wanted, strict=True):
            same(mine, its)


def modules_keep_their_ties_and_copies_their_buffers(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        model.to(s.device)
        assert model[0].weight is model[1].weight
        p, x = torch.ones(4, 4).to(s.device), torch.full((4, 4), 2.0).to(s.device)
        for _ in range(3):  # what is copied from must outlive what is done to the copy
            p.copy_(x)
            pw.step()
            p.add_(1.0)
            pw.step()
        equal(x.cpu(), torch.full((4, 4), 2.0))
        equal(p.cpu(), torch.full((4, 4), 3.0))


def an_optimizer_made_before_its_model_moves_goes_on_with_it(cluster: pw.Cluster) -> None:
    def train(device: torch.device, kind: Any, held: bool) -> list[torch.Tensor]:
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = kind(model.parameters())
        graph = model(torch.ones(1, 4)) if held else None
        model.to(device)
        x = torch.sin(torch.arange(32.0)).reshape(8, 4).to(device)
        for _ in range(4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        del graph
        assert {id(p) for p in optimizer.param_groups[0]["params"]} == {id(p) for p in model.parameters()}
        return [parameter.detach().cpu() for parameter in model.parameters()]

    kinds = (
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True, amsgrad=True),
        lambda parameters: torch.optim.Adam(parameters, lr=0.1, fused=True, weight_decay=0.1, maximize=True),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, fused=True, momentum=0.9, nesterov=True),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, fused=True, weight_decay=0.1),
    )
    with cluster.slice((2,)) as s:
        for place, kind in enumerate(kinds):
            for mine, its in zip(
                train(s.device, kind, place == 1), train(torch.device("cpu"), kind, False), strict=True
            ):
                assert torch.allclose(mine, its, rtol=1e-3, atol=1e-4), (place, mine, its)


def what_shares_memory_does_so_after_it_is_laid_out(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s:
        flat = torch.zeros(1056).to(s.device)
        ahead, behind = nn.Linear(32, 32).to(s.device), nn.Linear(32, 32).to(s.device)
        behind.weight.data = ahead.weight.data
        model = nn.Sequential(ahead, behind)
        model.view_of_flat = nn.Parameter(flat[:1024].view(32, 32))
        seen, kept = ahead.weight.detach(), model.state_dict()
        model, optimizer = pw.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), slice=s, strategy="fsdp")
        flat.add_(1)
        assert torch.equal(model.view_of_flat, torch.ones(32, 32, device=s.device)), "a view of a flat buffer is one"
        pw.shard(model, lambda _, tensor: ("x",) + (None,) * (tensor.dim() - 1))
        model(torch.ones(4, 32, device=s.device)).sum().backward()
        optimizer.step()
        same([behind.weight, seen, kept["1.weight"], kept["view_of_flat"]], [ahead.weight] * 3 + [model.view_of_flat])
        kept["0.weight"].zero_()
        same([ahead.weight, behind.weight], [torch.zeros(32, 32)] * 2)


def recurrent_layers_run_on_any_slice(cluster: pw.Cluster) -> None:
    def gradients(kind: Any, device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(3)
        layer = kind(8, 8, batch_first=True).to(device)
        found, _ = layer(torch.randn(4, 5, 8).to(device))
        assert found.device == device
        found.sum().backward()
        return [found.detach(), *(parameter.grad for parameter in layer.parameters() if parameter.grad is not None)]

    with cluster.slice((2,)) as s:
        # PyTorch/XLA's GRU, which takes the place of torch's, does not run on the CPU.
        for kind, elsewhere in ((nn.GRU, pw.device(0)), (nn.LSTM, torch.device("cpu"))):
            for mine, its in zip(gradients(kind, s.device), gradients(kind, elsewhere), strict=True):
                torch.testing.assert_close(mine.cpu(), its.cpu(), rtol=1e-4, atol=1e-5)


def optimizers_load_the_state_of_another_slice(cluster: pw.Cluster) -> None:
    """Devices that both slices have hold the same memory under two names, which no run may be given."""

    def train(one: torch.device, other: torch.device) -> list[torch.Tensor]:
        models = [model_of().to(one), model_of().to(other)]
        optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
        models[1].load_state_dict(models[0].state_dict())
        for _ in range(3):
            models[0](data().to(one)).sum().backward()
            optimizers[0].step()
            state = optimizers[0].state_dict()
            if one == other:
                state = copy.deepcopy(state)
            else:  # torch shares what need not move
                kept = {key: {**each, "step": each["step"].clone()} for key, each in state["state"].items()}
                state = {**state, "state": kept}
            optimizers[1].load_state_dict(state)
            models[1](data().to(other)).sum().backward()
            optimizers[1].step()
        values = [value for model in models for value in model.state_dict().values()]
        return values + [v for o in optimizers for each in o.state.values() for v in each.values() if v.dim() > 0]

    here = torch.device("cpu")
    with cluster.slice((8,)) as s, cluster.slice((4,)) as t:
        for mine, its in zip(train(s.device, t.device), train(here, here), strict=True):
            torch.testing.assert_close(mine.cpu(), its, rtol=1e-4, atol=1e-5)


def capturable_optimizers_take_no_lists(cluster: pw.Cluster) -> None:
    """Torch refuses both together on these devices; the state says what the user has chosen."""

    def train(place: torch.device, **options: Any) -> tuple[list[torch.Tensor], dict[str, Any]]:
        model = model_of().to(place)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
        for _ in range(3):
            optimizer.zero_grad()
            model(data().to(place)).sum().backward()
            optimizer.step()
        return [value.cpu() for value in model.state_dict().values()], optimizer.state_dict()["param_groups"][0]

    with cluster.slice((4,)) as s:
        mine, group = train(s.device, foreach=True, capturable=True)
    assert group["foreach"] and group["capturable"], group
    for one, other in zip(mine, train(torch.device("cpu"))[0], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def gradients_pass_between_slices(cluster: pw.Cluster) -> None:
    first, second = nn.Linear(8, 16), nn.Linear(16, 8)
    expected = copy.deepcopy((first, second))
    F.mse_loss(expected[1](expected[0](data())), data()).backward()
    with cluster.slice((2,)) as s, cluster.slice((4,)) as t:
        first.to(s.device), second.to(t.device)
        hidden = first(data().to(s.device))
        F.mse_loss(second(hidden.to(t.device)), data().to(t.device)).backward()
        pw.step()
        for mine, its in zip((first, second), expected, strict=True):
            assert mine.weight.grad is not None
            equal(mine.weight.grad.cpu(), its.weight.grad)


def tensors_enter_functions_and_futures_leave_as_tensors(cluster: pw.Cluster) -> None:
    x = data()
    with cluster.slice((4,)) as s, cluster.slice((2,)) as t:

        @pw.function(slice=s, in_placements=("x",), out_placements=("x",))
        def double(v: torch.Tensor) -> torch.Tensor:
            return v * 2

        @pw.function(slice=t)
        def increment(v: torch.Tensor) -> torch.Tensor:
            return v + 1

        @pw.program
        def both(v: torch.Tensor) -> Any:
            return increment(double(v))

        here = x.to(s.device)
        pw.wait()
        before, waited = stats(), pw.wait_stats()
        future = double(here)
        as_tensor = future.tensor()
        result = both(as_tensor).tensor() * 3
        as_tensor += 1  # in place: the future keeps what it was
        pw.step()
        assert stats()["bytes_fetched"] == before["bytes_fetched"]
        assert (pw.wait_stats() - waited).count == 0
        assert as_tensor.device == s.device and result.device == t.device
        equal(future, x * 2)
        equal(as_tensor.cpu(), x * 2 + 1)
        equal(result.cpu(), (x * 4 + 1) * 3)
        equal(here.cpu(), x)


def functions_and_loops_may_come_in_any_order(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s:

        @pw.function(slice=s)
        def double(v: torch.Tensor) -> torch.Tensor:
            return v * 2

        equal(double(torch.ones(2)), torch.full((2,), 2.0))
        x = torch.ones(8, device=pw.device())
        equal((x + 1).cpu(), torch.full((8,), 2.0))
        equal((torch.ones(2, device=pw.device(0)) * 3).cpu(), torch.full((2,), 3.0))
        equal(double(torch.ones(4, device=pw.device(1))), torch.full((4,), 2.0))
        with s.device:
            made = torch.zeros(3) + 1
        assert made.device == s.device


def slices_are_made_freed_and_made_again(cluster: pw.Cluster) -> None:
    for number in range(80):  # more than there are logical devices
        with cluster.slice((1 + number % 2,)) as s:
            equal((torch.full((4,), float(number), device=s.device) + 1).cpu(), torch.full((4,), number + 1.0))
    kept = [cluster.slice((1,)) for _ in range(8)]
    numbers = {s.device.index for s in kept}
    assert len(numbers) == 8 and 0 not in numbers
    for s in kept:
        s.release()


def a_tensor_of_a_freed_slice_says_so(cluster: pw.Cluster) -> None:
    s = cluster.slice((2,))
    device = s.device
    y = data().to(device)
    s.release()
    refused(RuntimeError, ("stands for no slice", "released"), lambda: (y + 1).sum().item())
    refused(RuntimeError, "stands for no slice", lambda: torch.ones(2).to(device))
    refused(pw.SliceUnavailable, "was released", lambda: s.device)
    for hosts in (1, 2):  # also on the same devices
        with cluster.slice((2,), hosts=hosts) as again:
            assert again.device != device, "as long as there are tensors of the slice that was freed"
            refused(RuntimeError, ("stands for no slice", "released"), lambda: (y + 1).sum().item())
            mine = torch.ones(4, device=again.device)
            refused(pw.DifferentSlices, "(released)", lambda m=mine: (y + m).sum().item())  # type: ignore[misc]
    equal(y.cpu(), data())


def a_tensor_that_a_function_took_says_so_wherever_it_is_used(cluster: pw.Cluster) -> None:
    for devices in (1, 2):
        s = cluster.slice(devices)
        taken = torch.ones(4, 4, device=s.device)
        take = pw.function(lambda v: v + 1, slice=s, donate=(0,))
        result = take(taken)
        uses: list[Any] = [lambda t=taken: t.cpu(), lambda t=taken: t.sum().item(), lambda t=taken, f=take: f(t)]
        for use in [*uses, lambda t=taken: print(t)]:
            with pytest.raises(pw.UsedAfterDonation, match="given up"):
                use()
        torch.testing.assert_close(result.tensor().cpu(), torch.full((4, 4), 2.0))
        s.release()
    with pytest.raises(TypeError, match="takes positions of arguments, from 0, got 'v'"):
        pw.function(lambda v: v, slice=cluster.slice(1), donate=("v",))(torch.ones(1))  # type: ignore[arg-type]


def a_view_of_what_was_given_up_says_so(cluster: pw.Cluster) -> None:
    with cluster.slice((1,)) as s:
        written = torch.zeros(4, 4).to(s.device)
        alias = written.detach()
        pw.step()
        written.add_(1)
        pw.step()
        try:
            alias[0, 0].item()
        except pw.PathwaysError as error:
            assert "buffer was given up" in str(error) and "clone()" in str(error), error
        same([written, alias.detach()], [torch.ones(4, 4)] * 2)


def gradients_of_two_slices_are_clipped_and_watched_together(cluster: pw.Cluster) -> None:
    x = data()

    def passes(first: nn.Module, second: nn.Module, devices: Sequence[torch.device | str]) -> None:
        second(first(x.to(devices[0])).to(devices[1])).square().sum().backward()

    torch.manual_seed(3)
    ours, eager = ([nn.Linear(8, 8), nn.Linear(8, 8)] for _ in range(2))
    for mine, plain in zip(ours, eager, strict=True):
        mine.load_state_dict(plain.state_dict())
    with cluster.slice((2,)) as s, cluster.slice((2,)) as t:
        devices = (s.device, t.device)
        both = nn.ModuleList([layer.to(device) for layer, device in zip(ours, devices, strict=True)])
        optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
        watch = pw.watch(both, optimizer)
        passes(ours[0], ours[1], devices)
        passes(eager[0], eager[1], ("cpu", "cpu"))
        norm = torch.nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        right = torch.nn.utils.clip_grad_norm_([one for layer in eager for one in layer.parameters()], 1.0)
        torch.testing.assert_close(norm.cpu(), right, rtol=1e-5, atol=1e-5)
        plain_parameters = [one for layer in eager for one in layer.parameters()]
        for given, wanted in zip(both.parameters(), plain_parameters, strict=True):
            assert given.grad is not None and wanted.grad is not None
            torch.testing.assert_close(given.grad.cpu(), wanted.grad, rtol=1e-4, atol=1e-6)
        optimizer.step()
        watch.check()
        with torch.no_grad():
            ours[1].weight[0, 0] = float("nan")
        optimizer.zero_grad()
        passes(ours[0], ours[1], devices)
        optimizer.step()
        refused(pw.NonFinite, ("1.weight",), watch.check)
        watch.remove()


def metrics_of_two_slices_are_logged_together(cluster: pw.Cluster) -> None:
    found: list[dict[str, float]] = []
    with cluster.slice((2,)) as s, cluster.slice((2,)) as t:
        pw.metrics.to(pw.metrics.Callback(lambda step, values: found.append(values)), every=2)
        for step in range(2):
            pw.log({"s": torch.ones((), device=s.device) + step, "t": torch.ones((), device=t.device) * 3})
            pw.step()
        pw.metrics.flush()
    assert found == [{"s": 1.5, "t": 3.0}], found


def a_slice_larger_than_the_cluster_says_what_there_is(cluster: pw.Cluster) -> None:
    refused(pw.SliceUnavailable, ("a slice of 100 devices", "2 cpu devices"), lambda: cluster.slice((100,)))


def seeds_give_the_same_numbers_on_any_slice(cluster: pw.Cluster) -> None:
    found = []
    with cluster.slice((2,)) as s, cluster.slice((4,)) as t:
        for device in (pw.device(), s.device, t.device, pw.device(2)):
            pw.seed(11)
            layer = nn.Sequential(nn.Linear(8, 16, device=device), nn.Dropout(0.5))
            found.append(layer(data().to(device)).cpu())
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-5, atol=1e-6)


def the_loss_of_a_host_leaves_other_slices_alone(cluster: pw.Cluster) -> None:
    """The last one: it kills a host."""
    last = cluster.hosts[-1]
    s = cluster.slice((2,), hosts=1)
    while set(s.devices) & set(last.devices):
        s = cluster.slice((2,), hosts=1)
    lost = _slice.single(last.devices[0])
    model, x = model_of().to(s.device), data().to(s.device)
    doomed = torch.ones(4, device=lost.device) + 1
    doubted = cluster.slice((2,), hosts=[last.name])
    on_it = torch.ones(4).to(doubted.device)
    pw.wait()
    assert set(doubted.devices) == set(last.devices) and on_it.device == doubted.device

    def between(number: int) -> None:
        if number == 2:
            connection = inside.connection()
            os.kill(connection.host_pids()[-1], signal.SIGKILL)

    same(train(model, x, between=between, steps=12), train(model_of(), data(), steps=12))
    refused(RuntimeError, last.name, lambda: doomed.sum().item())
    # Its slice moves without what was lost, and moves again with what is new.
    alive = [host.name for host in cluster.hosts if host.name != last.name]
    doubted.move(hosts=alive[0])
    assert not set(doubted.devices) & set(last.devices)
    fresh = torch.arange(4.0).to(doubted.device)
    pw.wait()
    assert doubted.move(hosts=alive[1]) > 0
    equal((fresh + 1).cpu(), torch.arange(4.0) + 1)


SCENARIOS = (
    a_plain_loop_trains_on_every_kind_of_slice,
    two_models_train_side_by_side,
    threads_train_on_a_slice_each,
    modules_keep_their_ties_and_copies_their_buffers,
    an_optimizer_made_before_its_model_moves_goes_on_with_it,
    what_shares_memory_does_so_after_it_is_laid_out,
    recurrent_layers_run_on_any_slice,
    optimizers_load_the_state_of_another_slice,
    capturable_optimizers_take_no_lists,
    a_slice_moves_in_mid_training,
    a_captured_step_goes_on_after_a_move,
    state_follows_a_model_to_another_slice,
    functions_and_futures_follow_a_slice,
    what_has_no_value_does_not_keep_a_slice_from_moving,
    copies_between_slices_do_not_pass_the_client,
    gradients_pass_between_slices,
    tensors_enter_functions_and_futures_leave_as_tensors,
    functions_and_loops_may_come_in_any_order,
    slices_are_made_freed_and_made_again,
    a_tensor_of_a_freed_slice_says_so,
    a_tensor_that_a_function_took_says_so_wherever_it_is_used,
    a_view_of_what_was_given_up_says_so,
    gradients_of_two_slices_are_clipped_and_watched_together,
    metrics_of_two_slices_are_logged_together,
    a_slice_larger_than_the_cluster_says_what_there_is,
    seeds_give_the_same_numbers_on_any_slice,
    the_loss_of_a_host_leaves_other_slices_alone,
)


if __name__ == "__main__":
    run(SCENARIOS, hosts=4, islands=1)
