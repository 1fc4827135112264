"""``standby``: what a standing controller's standby costs, and how soon it goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from ptpathways import core, native, platforms
from ptpathways.bench._dispatch import Add
from ptpathways.bench._harness import interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload
from ptpathways.launch import WorkerOptions, worker_command, worker_environment

WITH, WITHOUT = "with a standby", "without"
_TIMEOUT_S = 60.0


@contextlib.contextmanager
def _cluster(*arguments: str) -> Iterator[native.Session]:
    """A session with a standing controller, started as users do, and a worker."""
    token = core.make_token()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pw-standby-"))
        command = [sys.executable, "-m", "ptpathways.cli", "controller", "--bind", f"ipc://{folder}/controller"]
        controller = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, text=True, env={**os.environ, core.TOKEN_VARIABLE: token}
        )
        stack.callback(_end, controller)
        assert controller.stdout is not None
        address = controller.stdout.readline().split()[-1]
        options = WorkerOptions(controller=address, name="host0", plugin=platforms.find_plugin(), token=token)
        worker = subprocess.Popen(worker_command(options), env=worker_environment(options))
        stack.callback(_end, worker)
        session = stack.enter_context(native.Session.connect(address, "bench", _TIMEOUT_S, token=token))
        deadline_s = time.monotonic() + _TIMEOUT_S
        while session.device_count == 0:
            if time.monotonic() > deadline_s:
                raise core.DeadlineExceeded(f"the worker must join within {_TIMEOUT_S:g} s, it has not")
            time.sleep(0.02)
        yield session


def _end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(_TIMEOUT_S)
    if process.stdout is not None:
        process.stdout.close()


def _takeover(add: Add) -> float:
    """Milliseconds from killing the controller that serves to a result that was asked for then."""
    controller = json.loads(add.session.status_json(_TIMEOUT_S))["controller"]["pid"]
    os.kill(controller, signal.SIGKILL)
    start = time.perf_counter()
    add.session.run(add.function, [add.argument], 0)[0].wait(_TIMEOUT_S)
    taken = (time.perf_counter() - start) * 1e3
    time.sleep(2.0)  # controllers that live for a shorter time are not replaced for ever
    return taken


def _run(options: BenchOptions) -> list[Record]:
    runs, trips = options.choose(20_000, 2_000), options.choose(3_000, 300)
    with _cluster() as guarded, _cluster("--no-standby") as alone:
        adds = {WITH: Add(guarded, runs, trips), WITHOUT: Add(alone, runs, trips)}
        kinds = {"pipelined, C++": "runs/s", "round trip, C++": "us"}
        variants = {
            (kind, which): add.pipelined_cpp if kind.startswith("pipelined") else add.round_trip_cpp
            for kind in kinds
            for which, add in adds.items()
        }
        names = {f"{kind}: {which}": measure for (kind, which), measure in variants.items()}
        values = interleave(names, repeats=options.repeats_or(9, 2))
        takeovers = [_takeover(adds[WITH]) for _ in range(options.repeats_or(9, 2))]
    setting = Setting("standby", 1, 1)
    records = [setting.record(OURS, name, kinds[name.split(":")[0]], each) for name, each in values.items()]
    for kind in kinds:
        pairs = zip(values[f"{kind}: {WITH}"], values[f"{kind}: {WITHOUT}"], strict=True)
        records.append(setting.record(OURS, f"{kind}: with, of without", "x", [mine / other for mine, other in pairs]))
    return [*records, setting.record(OURS, "from kill -9 to the next result", "ms", takeovers)]


STANDBY = Workload(
    "standby",
    "a scalar addition on a standing cluster whose controller has a standby, or none, side by side; and how long "
    "the next result takes when the controller is killed",
    _run,
    {
        "pipelined, C++: with, of without": Goal(0.8, at_least=True),
        "from kill -9 to the next result": Goal(1000, at_least=False),
    },
)
