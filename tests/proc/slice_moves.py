"""Slices that go to other devices, with their values. Run by `slice_device_scenarios.py`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ptpathways as pw
from ptpathways.frontend.slices import _slice, _transfer
from tests.proc.cluster_scenarios import equal, refused
from tests.proc.slice_basis import data, model_of, same, stats, train


def a_slice_moves_in_mid_training(cluster: pw.Cluster) -> None:
    wanted = train(model_of(), data())
    with cluster.slice((2,), hosts=1) as s:
        model, x = model_of().to(s.device), data().to(s.device)
        before = list(s.devices)
        parameters = list(model.parameters())
        other = next(host for host in cluster.hosts if not set(host.devices) & set(before))

        def between(number: int) -> None:
            if number == 2:
                sent = stats()
                assert s.move(hosts=[other.name]) > 0
                now = stats()
                assert now["bytes_fetched"] == sent["bytes_fetched"]
                assert now["bytes_uploaded"] - sent["bytes_uploaded"] < 64  # a probe, and no value of the model

        same(train(model, x, between=between), wanted)
        assert set(s.devices) == set(other.devices) != set(before)
        assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
        assert set(_transfer.value_of(parameters[0]).devices) == set(other.devices)
        refused(pw.SliceUnavailable, "no live host 'nobody'", lambda: s.move(hosts=["nobody"]))
        assert set(s.devices) == set(other.devices)
        refused(pw.InvalidOption, "stays where it is", lambda: _slice.whole().move())


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], torch.Tensor]:
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        return loss

    return step


def a_captured_step_goes_on_after_a_move(cluster: pw.Cluster) -> None:
    def loop(model: nn.Module, x: torch.Tensor, wrap: Any, between: Callable[[int], None]) -> list[torch.Tensor]:
        step = wrap(step_of(model, torch.optim.SGD(model.parameters(), lr=0.1)))
        losses = []
        for number in range(12):
            losses.append(step(x).detach())
            between(number)
        return losses

    wanted = loop(model_of(), data(), lambda step: step, lambda number: None)
    with cluster.slice((2,), hosts=1) as s:
        names = [host.name for host in cluster.hosts]

        def between(number: int) -> None:
            if number in (3, 5, 6):  # before the first audit, and in the middle
                s.move(hosts=[names[number % 2]])

        with pytest.warns(pw.CaptureWarning) as told:
            same(loop(model_of().to(s.device), data().to(s.device), pw.program, between), wanted)
        assert len(told) == 1 and "was moved to other devices" in str(told[0].message), [
            str(one.message) for one in told
        ]


def state_follows_a_model_to_another_slice(cluster: pw.Cluster) -> None:
    def loop(model: nn.Module, places: list[torch.device], wrap: Any) -> list[torch.Tensor]:
        model.to(places[0])
        step = wrap(step_of(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)))
        losses = []
        for number in range(8):
            if number == 4:
                model.to(places[1])
            losses.append(step(data().to(places[number // 4])).detach())
        return losses

    wanted = loop(model_of(), [torch.device("cpu")] * 2, lambda step: step)
    with cluster.slice((1,)) as one, cluster.slice((1,)) as other, warnings.catch_warnings():
        warnings.simplefilter("ignore", pw.CaptureWarning)
        for wrap in (lambda step: step, pw.program):
            same(loop(model_of(), [one.device, other.device], wrap), wanted)


def functions_and_futures_follow_a_slice(cluster: pw.Cluster) -> None:
    with cluster.slice(2, hosts=1) as s:

        @pw.function(slice=s, in_placements=("x",), out_placements=("x",))
        def double(v: torch.Tensor) -> torch.Tensor:
            return v * 2

        @pw.program
        def twice(v: Any) -> Any:
            return double(double(v))

        x = torch.arange(4.0)
        here, future = x.to(s.device), double(x)
        equal(twice(here), x * 4)
        for host in cluster.hosts:
            s.move(hosts=host.name)
            assert set(s.devices) == set(host.devices)
            equal(double(here), x * 2)
            equal(twice(x), x * 4)
            equal(double(future), x * 4)
            equal((double(future).tensor() + here).cpu(), x * 5)


def what_has_no_value_does_not_keep_a_slice_from_moving(cluster: pw.Cluster) -> None:
    with cluster.slice(2, hosts=1) as s, cluster.slice(1) as t:
        take = pw.function(lambda v: v * 2, slice=s, donate=(0,))
        given, failed, good = (torch.ones(4).to(s.device) for _ in range(3))
        take(given).wait()
        elsewhere = torch.ones(4).to(t.device)
        mistake = threading.Thread(target=lambda: failed.add_(elsewhere))  # refused at once where it is looked at
        mistake.start()
        mistake.join()
        refused(RuntimeError, "one slice", failed.cpu)
        other = next(host for host in cluster.hosts if not set(host.devices) & set(s.devices))
        s.move(hosts=[other.name])
        equal((good + 1).cpu(), torch.full((4,), 2.0))


def copies_between_slices_do_not_pass_the_client(cluster: pw.Cluster) -> None:
    x = torch.arange(48.0 * 8).reshape(48, 8)
    with cluster.slice((4,)) as s, cluster.slice((2,)) as t, cluster.slice((1,)) as one:
        rows = x.to(s.device)
        columns = pw.shard(x.to(t.device), (None, "x"))
        alone = torch.zeros(48, 8, device=one.device)
        source, target = model_of(1).to(s.device), model_of(2).to(t.device)
        pw.wait()
        before = stats()
        made = [rows.to(t.device), pw.transfer(columns, s.device), rows.to(one.device), pw.transfer(rows, pw.device())]
        alone.copy_(columns)
        columns.copy_(rows * 2)
        target.load_state_dict(source.state_dict())
        pw.wait()
        now = stats()
        assert now["bytes_fetched"] == before["bytes_fetched"]
        assert now["bytes_uploaded"] - before["bytes_uploaded"] < 64  # numbers of the program, such as the 2
        assert [tensor.device for tensor in made] == [t.device, s.device, one.device, pw.device()]
        for tensor in (*made, alone):
            equal(tensor.cpu(), x)
        equal(columns.cpu(), x * 2)
        parts, _ = _transfer.value_of(columns).tiling or ((), ())
        assert parts == (1, 2)  # what is written over keeps its layout
        for mine, its in zip(target.parameters(), source.parameters(), strict=True):
            equal(mine.cpu(), its.cpu())
