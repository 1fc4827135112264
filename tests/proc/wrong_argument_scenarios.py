"""What functions say of arguments that they cannot use, where it takes a cluster to tell; and that nothing happened."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ptpathways as pw
from ptpathways.sharding import Mesh
from tests.proc.cluster_scenarios import equal, refused, run


def shapes_and_hosts_of_slices(cluster: pw.Cluster) -> None:
    make: Any = cluster.slice
    for shape in (np.int64(2), (np.int64(2),), np.array([2]), torch.tensor([2]), torch.tensor(2), torch.Size([2])):
        with make(shape) as s:
            assert s.shape == (2,) and type(s.shape[0]) is int
    with make(1, hosts=np.int64(1), min_memory=np.int64(5)) as s:
        assert s.shape == (1,)
    refused(pw.InvalidSharding, "a mesh has at most", lambda: make(2**70))
    refused(pw.InvalidSharding, "a mesh's axis_names is a list", lambda: make(1, 3))
    refused(TypeError, "island must be a text, got 3", lambda: make(1, island=3))
    refused(TypeError, "platform must be a text, got None", lambda: make(1, platform=None))
    refused(TypeError, "name must be a text, got 3", lambda: make(1, name=3))
    refused(TypeError, ("min_memory, bytes or a text", "got nan"), lambda: make(1, min_memory=math.nan))
    refused(ValueError, "min_memory must be less than 2**63 bytes", lambda: make(1, min_memory=2**70))
    refused(TypeError, ("hosts must be how many hosts, or their names", "got 1.5"), lambda: make(1, hosts=1.5))
    refused(ValueError, "hosts must be at least 0, got -1", lambda: make(1, hosts=-1))
    refused(ValueError, ("hosts must be", "got []"), lambda: make(1, hosts=[]))
    refused(pw.SliceUnavailable, "2147483647", lambda: make(1, hosts=2**70))
    with make(1) as s:
        refused(TypeError, ("hosts must be names of hosts", "got 3"), lambda: s.move(3))
        refused(ValueError, ("hosts must be names of hosts", "got []"), lambda: s.move([]))
        refused(ValueError, "timeout_s must be a number of seconds from 0", lambda: s.move(timeout_s=math.nan))
        refused(TypeError, "timeout_s must be a number of seconds", lambda: s.move(timeout_s="a"))


def where_a_transfer_goes(cluster: pw.Cluster) -> None:
    transfer: Any = pw.transfer
    wrong: Any
    x = torch.ones(4, 3).to(pw.device())
    with cluster.slice(2) as s:
        for wrong in (None, [], 1.5, True, nn.Linear(1, 1)):
            with pytest.raises(TypeError, match="transfer goes to a slice, or to its device"):
                transfer(x, wrong)
        for wrong in ("a", "", -1, 200, 2**70, "cpu"):
            with pytest.raises(ValueError, match="transfer goes to a slice, or to its device"):
                transfer(x, wrong)
        for wrong in ("foo", 3, []):
            with pytest.raises(TypeError, match="layout must be 'copy', 'batch'"):
                transfer(x, s, wrong)
        for wrong in ((2, 1), ((2,), (0, 1)), ((3, 1), (0, 1, 2)), ((2, 1), (5, 7)), ((0, 1), (0, 0))):
            with pytest.raises(ValueError, match=r"layout must be \(parts of each"):
                transfer(x, s, wrong)
        equal(transfer(x, np.int64(s.index), ((2, 1), (0, 1))).cpu(), torch.ones(4, 3))


def axes_that_the_mesh_lacks(cluster: pw.Cluster) -> None:
    prepare: Any = pw.prepare
    wrong: Any
    batches = [torch.ones(4, 2)]
    for devices in (1, 2):
        with cluster.slice(devices) as s:
            for wrong in ("foo", 3, ("x", "foo"), ["foo"]):
                with pytest.raises(pw.InvalidSharding, match=r"names mesh axis .* does not exist; there are x"):
                    prepare(batches, slice=s, batch_axis=wrong)
            for wrong in ({}, ([],), 1.5):
                with pytest.raises(pw.InvalidSharding, match="batch_axis must be the name of an axis"):
                    prepare(batches, slice=s, batch_axis=wrong)
            for good in ("x", (), ["x", None], None):
                (batch,) = prepare(batches, slice=s, batch_axis=good)
                equal(batch.cpu(), batches[0])
    refused(pw.InvalidSharding, "over all 4 devices", lambda: prepare(batches, mesh=Mesh((3,), ("data",))))


def seeds_are_those_that_torch_takes(cluster: pw.Cluster) -> None:
    for seed in (-5, 2**64 - 1, -(2**63), 4):
        pw.manual_seed(np.int64(seed) if seed == 4 else seed)  # type: ignore[arg-type]
        assert torch.initial_seed() == seed % 2**64
    for wrong in (2**70, 2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match="a seed is a number from"):
            pw.manual_seed(wrong)
    assert torch.initial_seed() == 4


def any_number_of_seconds_waits(cluster: pw.Cluster) -> None:
    with cluster.slice(2, timeout_s=math.inf) as s:
        for timeout in (math.inf, 2**70, 1e10):
            future = pw.put(torch.ones(4), s)
            future.wait(timeout)
            equal(future.result(timeout), torch.ones(4))
            equal(pw.get([future], timeout)[0], torch.ones(4))
            pw.wait(timeout)
            pw.metrics.flush(timeout)
            s.move(timeout_s=timeout)


def torch_devices_of_freed_slices(cluster: pw.Cluster) -> None:
    kept: list[torch.Tensor] = []
    with pytest.raises(pw.SliceUnavailable, match="has tensors of a released one that are still there"):
        for _ in range(70):  # more than there are torch devices
            with cluster.slice(1) as s:
                kept.append(torch.ones(4).to(s.device))
    assert len(kept) > 40
    first = kept[0].device
    while kept:
        one = kept.pop()
        with pytest.raises(RuntimeError, match="stands for no slice"):
            (one + 1).sum().item()
    del one
    numbers = set()
    for _ in range(64):
        with cluster.slice(1) as s:
            numbers.add(s.device)
            equal((torch.ones(4).to(s.device) + 1).cpu(), torch.full((4,), 2.0))
    assert first in numbers, "free again"


def a_module_is_replayed_as_a_step(cluster: pw.Cluster) -> None:
    with cluster.slice(2) as s, torch.no_grad():
        model: Any = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).to(s.device)
        step = pw.program(model)
        for number in range(6):
            x = torch.full((4, 3), float(number)).to(s.device)
            equal(step(x).cpu(), model(x).cpu())
            model[0].weight.mul_(0.5)
        assert step.replays > 0 and step.name == "Sequential"


SCENARIOS = (
    shapes_and_hosts_of_slices,
    where_a_transfer_goes,
    axes_that_the_mesh_lacks,
    seeds_are_those_that_torch_takes,
    any_number_of_seconds_waits,
    torch_devices_of_freed_slices,
    a_module_is_replayed_as_a_step,
)

if __name__ == "__main__":
    run(SCENARIOS, hosts=2, islands=1)
