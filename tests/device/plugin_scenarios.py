"""What PyTorch/XLA does through our plugin, in one process per group: ``python plugin_scenarios.py GROUP``.

Prints one JSON object: scenario -> its result, or ``{"error": traceback}``. The plugin is used as any PJRT plugin would
be, without the front end, so that a failure here is the plugin's or the cluster's.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from ptpathways import core, native
from ptpathways.launch import local

GROUPS: dict[str, tuple[int, int, list[Callable[[], Any]]]] = {}
"""Group -> hosts, devices per host, scenarios."""

CLIENT_OPTIONS: dict[str, dict[str, Any]] = {
    "lonely replica": {"gang_timeout_seconds": 2},
    "slice": {"devices": [3, 2]},
}
"""Options of the plugin's client, by group."""

cluster: local.LocalCluster


def xlac() -> Any:
    """PyTorch/XLA's binding, which its annotations do not mention."""
    import torch_xla

    return vars(torch_xla)["_XLAC"]


def memory(device: str) -> dict[str, int]:
    """PyTorch/XLA's memory information; its annotations say other keys than it has."""
    return dict(xlac()._xla_memory_info(device))


def group(name: str, hosts: int, devices: int) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Adds a scenario to a group of scenarios that share a process."""

    def add(scenario: Callable[[], Any]) -> Callable[[], Any]:
        GROUPS.setdefault(name, (hosts, devices, []))[2].append(scenario)
        return scenario

    return add


def refused(action: Callable[[], Any]) -> str:
    """The message of the error that ``action`` raises."""
    try:
        action()
    except Exception as error:  # any kind: the callers look at the text
        return f"{type(error).__name__}: {error}"
    raise AssertionError("expected an error, got none")


# --- two devices of one host


@group("basic", 1, 2)
def donation() -> Any:
    """An update in place takes its argument's memory: bytes in use, and their peak. First in its group."""
    import torch
    import torch_xla

    device = torch.device("xla:0")
    weight = torch.zeros(1000, 1000, device=device)
    torch_xla.sync()
    for _ in range(30):
        weight.add_(1.0)
        torch_xla.sync()
    value = weight[3, 4].item()
    info = memory("xla:0")
    return {"value": value, "used": info["bytes_used"], "peak": info["peak_bytes_used"]}


@group("basic", 1, 2)
def conformance() -> Any:
    """The conformance suite of pypjrt over the plugin's table."""
    from pypjrt import conform
    from pypjrt._loader import Plugin

    report = conform.run(Plugin(native.library_path))
    return {check.id: [check.result.value, check.detail] for check in report.checks}


@group("basic", 1, 2)
def element_types() -> Any:
    """Every dtype goes there and back: contiguous, strided, scalar and empty."""
    import torch

    wrong = []
    integers = ("bool", "uint8", "int8", "int16", "int32", "int64")
    reals = ("float16", "bfloat16", "float32", "float64", "complex64")
    for name in integers + reals:
        dtype = getattr(torch, name)
        array = (torch.arange(24) % 5).to(dtype).reshape(2, 3, 4)
        for view in (array, array.permute(2, 0, 1), array[:, ::2], array[1, 2, 3], array[:0]):
            if not torch.equal(view.to("xla").cpu(), view):
                wrong.append([name, list(view.shape), list(view.stride())])
    return wrong


@group("basic", 1, 2)
def computations() -> Any:
    """Differences from eager of a few computations."""
    import torch

    torch.manual_seed(0)
    a = torch.randn(16, 16)
    cases: list[Callable[[Any], Any]] = [
        lambda t: t @ t.T,
        lambda t: torch.softmax(t, -1),
        lambda t: t.sort(-1).values,
        lambda t: torch.linalg.qr(t).R.abs(),
        lambda t: t.cumsum(0)[::2],
    ]
    return [float((case(a.to("xla")).cpu() - case(a)).abs().max()) for case in cases]


@group("basic", 1, 2)
def two_devices_train() -> Any:
    """A model cut over two devices, forward and backward: losses with their eager twins'."""
    import copy

    import torch
    import torch_xla

    torch.manual_seed(0)
    first, second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    eager = copy.deepcopy((first, second))
    first.to("xla:0")
    second.to("xla:1")
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    eager_optimizer = torch.optim.SGD([p for m in eager for p in m.parameters()], lr=0.1, momentum=0.9)
    losses = []
    for _ in range(5):
        x, y = torch.randn(32, 8), torch.randn(32, 4)
        loss = (second(torch.relu(first(x.to("xla:0"))).to("xla:1")) - y.to("xla:1")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        want = (eager[1](torch.relu(eager[0](x))) - y).square().mean()
        eager_optimizer.zero_grad()
        want.backward()
        eager_optimizer.step()
        losses.append([loss.item(), want.item()])
    return losses


@group("basic", 1, 2)
def threads_on_two_devices() -> Any:
    """Four threads compile, run and fetch on two devices at once."""
    import torch

    sums: list[float] = []

    def work(index: int) -> None:
        value = torch.full((8, 8), float(index)).to(f"xla:{index % 2}")
        for step in range(10):
            value = value * 0.5 + step
            sums.append(float(value.sum().item()))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [len(sums), any(thread.is_alive() for thread in threads)]


@group("basic", 1, 2)
def saved_and_loaded() -> Any:
    """torch.save of a tensor on a device, and back."""
    import torch

    kept = io.BytesIO()
    torch.save({"x": torch.arange(5).to("xla:1")}, kept)
    kept.seek(0)
    loaded = torch.load(kept)["x"]
    return [str(loaded.device), loaded.cpu().tolist()]


@group("basic", 1, 2)
def transfer_and_adoption() -> Any:
    """A value moves between devices without its bytes passing through this process."""
    import torch

    source = torch.arange(100_000, dtype=torch.float32).to("xla:0") * 2
    xlac()._xla_sync_multi([source], [], True)
    before = cluster.session.transfer_stats()
    token = native.transfer(xlac()._unsafe_buffer_pointer(source), 1)
    native.adopt_next_uploads([token])
    (there,) = xlac()._xla_tensors_from_aten([torch.empty(100_000)], ["xla:1"])
    after = cluster.session.transfer_stats()
    moved = {key: after[key] - before[key] for key in ("bytes_uploaded", "bytes_fetched", "copies")}
    wrong_type = native.transfer(xlac()._unsafe_buffer_pointer(source), 1)
    native.adopt_next_uploads([wrong_type])
    mismatch = refused(lambda: xlac()._xla_tensors_from_aten([torch.empty(7)], ["xla:1"]))
    unknown = refused(lambda: native.transfer(12345, 1))
    return {
        "device": str(there.device),
        "equal": bool(torch.equal(there.cpu(), source.cpu())),
        "moved": moved,
        "mismatch": mismatch,
        "unknown": unknown,
    }


@group("basic", 1, 2)
def a_failed_compile_names_its_line() -> Any:
    """The worker's compiler refuses a program; what follows goes on."""
    import torch

    native.set_source_locator(lambda: "train.py:42")
    try:
        x = torch.ones(4, 4).to("xla:0")
        (y,) = xlac()._xla_custom_call([x], "no_such_target", [[4, 4]], [torch.float32], False, "", 1, {})
        message = refused(lambda: y.cpu())
    finally:
        native.set_source_locator(None)
    return [message, float((x + 1).sum().item())]


@group("basic", 1, 2)
def what_cannot_fit_says_so() -> Any:
    """Four TiB on one device."""
    import torch
    import torch_xla

    big = torch.empty(1 << 20, 1 << 20, device="xla:0") + 1
    torch_xla.sync()
    return refused(lambda: big[0, 0].item())


# --- replicas: one thread per device, collectives inside


@group("replicas", 1, 3)
def replicas_average_their_gradients() -> Any:
    """torch_xla's thread per device with all-reduced gradients: weights of every replica, and eager's."""
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr
    from torch_xla._internal import pjrt

    def batches(replica: int) -> Any:
        generator = torch.Generator().manual_seed(10 + replica)
        return [torch.randn(8, 4, generator=generator) for _ in range(5)]

    def model() -> Any:
        made = torch.nn.Linear(4, 2)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
        return made

    def replica() -> Any:
        device = torch_xla.device()
        mine = model().to(device)
        optimizer = torch.optim.SGD(mine.parameters(), lr=0.1, momentum=0.9)
        for batch in batches(xr.global_ordinal()):
            loss = mine(batch.to(device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
            torch_xla.sync()
        return mine.weight.detach().cpu().tolist()

    by_replica = pjrt._run_thread_per_device(0, 1, replica, pjrt.initialize_multiprocess)
    eager = model()
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        optimizer.zero_grad()
        for index in range(3):
            (eager(batches(index)[step]).square().mean() / 3).backward()
        optimizer.step()
    return {"replicas": list(by_replica.values()), "eager": eager.weight.detach().tolist()}


@group("lonely replica", 1, 2)
def an_incomplete_gang_fails_in_time() -> Any:
    """Only one of two replicas executes: an error names the other, and the device goes on."""
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm

    xm.set_replication(torch.device("xla:0"), ["xla:0", "xla:1"])
    x = torch.ones(4).to("xla:0")
    total = xm.all_reduce(xm.REDUCE_SUM, x)
    message = refused(lambda: total.cpu())
    xm.set_replication(torch.device("xla:0"), [])
    y = torch.ones(4).to("xla:0") + 1
    torch_xla.sync()
    return [message, y.cpu().tolist()]


# --- SPMD over four devices


@group("spmd", 1, 4)
def sharded_training() -> Any:
    """A sharded model's losses with their eager twins', and the sharding that an update kept."""
    import copy

    import numpy as np
    import torch
    import torch_xla
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr

    xr.use_spmd()
    mesh = xs.Mesh(np.arange(4), (2, 2), ("data", "model"))
    torch.manual_seed(0)
    eager = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
    model = copy.deepcopy(eager).to("xla")
    xs.mark_sharding(model[0].weight, mesh, ("model", None))
    xs.mark_sharding(model[2].weight, mesh, (None, "model"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    eager_optimizer = torch.optim.AdamW(eager.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        x, y = torch.randn(8, 16), torch.randn(8, 8)
        sharded = x.to("xla")
        xs.mark_sharding(sharded, mesh, ("data", None))
        loss = (model(sharded) - y.to("xla")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        want = (eager(x) - y).square().mean()
        eager_optimizer.zero_grad()
        want.backward()
        eager_optimizer.step()
        losses.append([loss.item(), want.item()])
    return {"losses": losses, "sharding": xlac()._get_xla_sharding_spec(model[0].weight)}


# --- two hosts


@group("hosts", 2, 1)
def across_hosts_goes_worker_to_worker() -> Any:
    """A value of one host's device on another's, and a computation with it there."""
    import torch

    source = torch.arange(50_000, dtype=torch.float32).to("xla:0") + 1
    xlac()._xla_sync_multi([source], [], True)
    token = native.transfer(xlac()._unsafe_buffer_pointer(source), 1)
    native.adopt_next_uploads([token])
    (there,) = xlac()._xla_tensors_from_aten([torch.empty(50_000)], ["xla:1"])
    return float((there * 2).sum().item())


@group("hosts", 2, 1)
def a_lost_host_is_named_and_the_other_goes_on() -> Any:
    """SIGKILL of one worker. Runs last in its group."""
    import torch
    import torch_xla

    here, there = torch.ones(4).to("xla:0"), torch.ones(4).to("xla:1")
    torch_xla.sync()
    name = next(host["name"] for host in cluster.session.hosts() if host["first_device"] == 1)
    os.kill(cluster.worker_pids[name], signal.SIGKILL)
    message = refused(lambda: [(there * step).sum().item() for step in range(2, 1000)])
    again = refused(lambda: (there + 1).cpu())
    return {"name": name, "message": message, "again": again, "other": float((here + 1).sum().item())}


@group("spmd over hosts", 2, 2)
def collectives_across_hosts() -> Any:
    """A sum over a mesh of the devices of two hosts."""
    import numpy as np
    import torch
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr

    xr.use_spmd()
    x = torch.ones(8, 8).to("xla")
    xs.mark_sharding(x, xs.Mesh(np.arange(4), (4,), ("data",)), ("data", None))
    return (x + 1).sum().item()


@group("slice", 2, 2)
def a_slice_of_one_host() -> Any:
    """A client bound to the second host's devices alone, in reverse: its own numbers, and a collective on them."""
    import numpy as np
    import torch
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr

    xr.use_spmd()
    x = torch.arange(64, dtype=torch.float32).reshape(8, 8).to("xla")
    xs.mark_sharding(x, xs.Mesh(np.arange(2), (2,), ("data",)), ("data", None))
    bound = [attributes["cluster_device"] for attributes in xr.global_runtime_device_attributes()]
    return {"sum": float((x @ x.T).sum().item()), "bound": bound}


def main(name: str) -> int:
    """Runs a group; prints its results."""
    global cluster
    hosts, devices, scenarios = GROUPS[name]
    os.environ["PJRT_DEVICE"] = "PATHWAYS"
    os.environ["PJRT_DYNAMIC_PLUGINS"] = "1"
    os.environ.setdefault("XLA_THREAD_POOL_SIZE", "8")
    cluster = local.start(core.Options(hosts=hosts, devices_per_host=devices))
    cluster.session.make_current()

    from torch_xla.experimental import plugins

    class Plugin(plugins.DevicePlugin):
        def library_path(self) -> str:
            return native.library_path

        def client_create_options(self) -> dict[str, Any]:
            return CLIENT_OPTIONS.get(name, {})

    plugins.register_plugin("PATHWAYS", Plugin())
    results = {}
    for scenario in scenarios:
        try:
            results[scenario.__name__] = scenario()
        except Exception:
            results[scenario.__name__] = {"error": traceback.format_exc()}
    print(json.dumps(results), flush=True)
    xlac()._prepare_to_exit()
    cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
