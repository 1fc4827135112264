"""``tenancy``: 1 to 16 clients share one device (the paper's Figs. 8 and 11).

Each client is a process that keeps computations of a given duration in flight. A computation occupies the device and
hardly any core, as an accelerator's does, so utilisation says what dispatch and switching between clients cost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ptpathways import core
from ptpathways.bench._child import Child
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

COMPUTE_MS = (0.04, 0.33, 1.04, 2.4)
"""The paper's."""
CLIENTS = (1, 2, 4, 8, 16)
_TOGETHER_S = 0.3
_TIMEOUT_S = 120.0


def together(tenants: Sequence[Child], seconds: float) -> list[dict[str, Any]]:
    """Lets all clients work at the same time; what each answers."""
    start = time.monotonic() + _TOGETHER_S
    for tenant in tenants:
        tenant.send({"start": start, "stop": start + seconds})
    return [tenant.receive(seconds + _TIMEOUT_S) for tenant in tenants]


def tenant(address: str, device: int, compute_s: float, weight: float = 1.0) -> Child:
    """Starts a client's process."""
    return Child("ptpathways.bench._tenant", address, str(device), repr(compute_s), repr(weight))


def _run(options: BenchOptions) -> list[Record]:
    from ptpathways.launch import local

    if (options.hosts or 1) != 1:
        raise core.InvalidOption(f"workload tenancy shares one device of one host, got {options.hosts} hosts")
    records = []
    seconds = options.choose(15, 3) / 10
    with local.serve(core.Options()) as cluster:
        for compute_ms in COMPUTE_MS:
            with ExitStack() as stack:
                tenants: list[Child] = []
                for count in CLIENTS if not options.quick else CLIENTS[:3]:
                    while len(tenants) < count:
                        tenants.append(stack.enter_context(tenant(cluster.address, 0, compute_ms / 1e3)))
                    together(tenants, 0.1)  # everyone has connected and compiled
                    answers = [together(tenants, seconds) for _ in range(options.repeats_or(3, 1))]
                    rates = [sum(each["finished"] for each in answer) / seconds for answer in answers]
                    setting = Setting("tenancy", 1, 1, {"clients": count, "compute_ms": compute_ms})
                    name = f"{compute_ms:g} ms"
                    records.append(setting.record(OURS, f"{name}: all clients", "computations/s", rates))
                    used = [rate * compute_ms / 10 for rate in rates]
                    records.append(setting.record(OURS, f"{name}: device in use", "% of time", used))
    return records


TENANCY = Workload(
    "tenancy",
    "1 to 16 client processes share a device with computations of 0.04 to 2.4 ms: computations per second of all "
    "clients, and how much of the time the device is in use (Figs. 8, 11)",
    _run,
    {("2.4 ms: device in use", 4): Goal(95, at_least=True), ("2.4 ms: device in use", 16): Goal(95, at_least=True)},
    axis="clients",
)
