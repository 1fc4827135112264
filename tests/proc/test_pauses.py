"""A pause is no death: a client, worker or controller that is stopped for a while goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from ptpathways import testing
from tests.scenarios import needs_native

pytestmark = [needs_native, pytest.mark.timeout(240)]

COMMAND = [sys.executable, "-m", "ptpathways.cli"]
PAUSE_S = 6.0
"""Longer than after what silence is told of; a cluster of before leases gave its members up after 4 s."""

TRAIN = """
import sys
import torch
from torch import nn
import ptpathways as pw
pw.init(**({} if sys.argv[1] == "-" else {"address": sys.argv[1]}), hosts=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
batches = [(torch.randn(8, 32), torch.randn(8, 1)) for _ in range(40)]
model, optimizer, batches = pw.prepare(model, optimizer, batches)
for x, y in batches:
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex(), flush=True)
"""


@contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[str]]:
    with (
        open(log, "a") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
    ):
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()


def _pause(pid: int) -> None:
    testing.stop_process(pid)
    threading.Event().wait(PAUSE_S)  # what is tested is that this time passes
    os.kill(pid, signal.SIGCONT)


def test_a_loop_survives_pauses_of_each_member_with_the_same_losses(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    log = tmp_path / "log"
    alone: list[str] = []
    with _running([sys.executable, "-c", TRAIN, "-"], environment, tmp_path / "alone") as program:
        assert program.stdout is not None
        for line in program.stdout:
            alone.append(line.strip())
            if len(alone) == 10:
                _pause(program.pid)  # its controller, too
        assert program.wait(60) == 0
    assert "refused" not in (tmp_path / "alone").read_text()
    with ExitStack() as stack:
        controller = stack.enter_context(
            _running([*COMMAND, "controller", "--bind", "tcp://127.0.0.1:*"], environment, log)
        )
        assert controller.stdout is not None
        address = next(word for word in controller.stdout.readline().split() if word.startswith("tcp://"))
        workers = [
            stack.enter_context(_running([*COMMAND, "worker", "--join", address, "--name", name], environment, log))
            for name in ("a", "b")
        ]

        def status() -> dict[str, Any]:
            command = [*COMMAND, "status", "--address", address, "--json"]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"hosts": []}
            return found

        testing.wait_until(lambda: len(status()["hosts"]) == 2, 60)
        serving = status()["controller"]["pid"]
        client = stack.enter_context(_running([sys.executable, "-c", TRAIN, address], environment, log))
        assert client.stdout is not None
        losses = []
        paused = {10: workers[1].pid, 20: serving, 30: client.pid}
        for line in client.stdout:
            losses.append(line.strip())
            if len(losses) in paused:
                _pause(paused[len(losses)])
        assert client.wait(60) == 0, log.read_text()
    assert losses == alone and len(losses) == 40
    said = log.read_text()
    assert "heard nothing of host 'b'" in said and "host 'b' is heard of again" in said
