"""The loops of training_scenarios.py, in processes of their own, on PyTorch/XLA's CPU client and on our cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from ptpathways import core
from ptpathways.frontend.slices import _slice
from tests.proc import training_scenarios as scenarios
from tests.scenarios import ROOT, limited, needs_native, outcome_of

BACKENDS = ["xla-cpu", pytest.param("pathways", marks=needs_native)]


def outcome(mode: str, backend: str) -> Any:
    return outcome_of(Path(scenarios.__file__), mode, backend)


CASES = [(mode, scenario.__name__) for mode, group in scenarios.SCENARIOS.items() for scenario in group]


@limited
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("mode", "name"), CASES)
def test_the_numbers_are_those_of_plain_pytorch(mode: str, name: str, backend: str) -> None:
    result = outcome(mode, backend)[name]
    assert "error" not in result, result["error"]
    assert len(result["eager"]) > 0
    assert result["cluster"] == pytest.approx(result["eager"], rel=2e-4, abs=1e-5)


@needs_native
@limited
def test_an_even_batch_is_split_and_an_uneven_one_is_copied() -> None:
    even, uneven, weight = outcome("together", "pathways")["shardings"]
    assert even == [4, 1, 1, 1]
    assert uneven == [1] * 4 and weight == [1, 1]


@needs_native
@limited
def test_single_devices_slices_and_all_devices_are_used_side_by_side() -> None:
    assert outcome("together", "pathways")["side by side"] == [56.0, 56.0, 204.0, 240.0, 4.0]


@needs_native
@limited
def test_transfers_go_from_worker_to_worker() -> None:
    result = outcome("one_by_one", "pathways")
    traffic = result["traffic"]
    # halves: 5 batches, forth and back; the others: 4 there and back, and 1 there.
    assert traffic["copies"] == 2 * 5 + 2 * 4 + 1
    # The client fetched 5 losses, 4 times 2 sums and 1 more, all of 4 bytes.
    assert traffic["bytes_fetched"] == 4 * (5 + 8 + 1)


@needs_native
@pytest.mark.timeout(100)
def test_cpu_hosts_of_several_islands_train_together() -> None:
    program = (
        "import copy, torch, ptpathways as pw\n"
        "pw.init(hosts=2, islands=2, devices_per_host=2)\n"
        "torch.manual_seed(0)\n"
        "def train(model, optimizer, batches):\n"
        "    losses = []\n"
        "    for x, y in batches:\n"
        "        optimizer.zero_grad(); loss = ((model(x) - y) ** 2).mean(); loss.backward(); optimizer.step()\n"
        "        losses.append(loss.item())\n"
        "    return torch.tensor(losses + [p.sum().item() for p in model.parameters()])\n"
        "net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))\n"
        "batches = [(torch.randn(16, 8), torch.randn(16, 4)) for _ in range(6)]\n"
        "for strategy in ('ddp', 'fsdp'):\n"
        "    eager, ours = copy.deepcopy(net), copy.deepcopy(net)\n"
        "    expected = train(eager, torch.optim.AdamW(eager.parameters(), lr=1e-2), batches)\n"
        "    adam = torch.optim.AdamW(ours.parameters(), lr=1e-2)\n"
        "    ours, adam, fed = pw.prepare(ours, adam, list(batches), strategy=strategy)\n"
        "    print(torch.allclose(train(ours, adam, fed), expected, rtol=1e-4, atol=1e-5))\n"
        "with pw.cluster().slice((1,), island='island1') as other:\n"
        "    print(pw.prepare(torch.nn.Linear(1, 1), slice=other).weight.device == other.device)\n"
        "both = pw.cluster().slice((4,), hosts=['host0', 'host1'])\n"
        "with both, pw.cluster().slice((1,), hosts='host1') as last:\n"
        "    print(len(both.devices), float(torch.ones(4, device=both.device).sum()), *last.devices)\n"
        "try: pw.cluster().slice((1,), hosts=['host7'])\n"
        "except pw.SliceUnavailable as error: print(str(error).replace(' ', '_'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    *found, refused = done.stdout.split()
    assert found == ["True", "True", "True", "4", "4.0", "2"] or found == ["True", "True", "True", "4", "4.0", "3"]
    assert refused == "there_is_no_live_host_'host7'_in_the_cluster;_it_has_host0,_host1"


def test_devices_that_no_collective_connects_are_not_used_together() -> None:
    hosts = [{"name": f"host{i}", "platform": "cuda", "island": f"island{i}", "alive": True} for i in range(2)]
    said = r"Got host0 \(cuda\) in island island0, host1 \(cuda\) in island island1; .* with the same --island"
    with pytest.raises(core.NotOneIsland, match=said):
        _slice.check_one_island(hosts)
    _slice.check_one_island([{**hosts[0]}, {**hosts[1], "alive": False}])
    _slice.check_one_island([{**host, "platform": "cpu"} for host in hosts])


def test_init_after_the_runtime_has_started_says_so() -> None:
    program = (
        "import torch, torch_xla, os; os.environ['PJRT_DEVICE'] = 'CPU'; torch.zeros(1, device='xla');"
        "import ptpathways as pw\n"
        "try: pw.init(backend='xla-cpu')\n"
        "except pw.RuntimeAlreadyStarted as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "pw.init() must come before PyTorch/XLA starts its runtime" in done.stdout
