"""A controller that was started as in the README, with workers and programs that join it, and what they say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ptpathways import native
from ptpathways.testing import is_running, wait_until

COMMAND = [sys.executable, "-m", "ptpathways.cli"]
WAIT_S = 60.0


class Standing:
    """A controller with its standby, workers, and what they say; a context that ends all of them."""

    def __init__(self, folder: Path, *arguments: str, bind: str = "tcp://127.0.0.1:*") -> None:
        self._stack = ExitStack()
        self._runtime = folder / "runtime"
        self._runtime.mkdir(mode=0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self._runtime)}
        self._log = folder / "log"
        self.process = self._start([*COMMAND, "controller", "--bind", bind, *arguments], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"cluster (\S+) at (\S+)", line)
        assert found is not None, line + self.said()
        self.name, self.address = found[1], found[2]
        (self._token_file,) = self.token_files()
        self.token = self._token_file.read_text().strip()
        self.pids: set[int] = {self.process.pid}
        self.workers: list[subprocess.Popen[str]] = []

    def _start(self, command: list[str], **more: Any) -> subprocess.Popen[str]:
        with open(self._log, "a") as errors:
            process = subprocess.Popen(command, stderr=errors, text=True, env=self.environment, **more)
        self._stack.callback(_end, process)
        return process

    def learn_token(self) -> None:
        """The one that its programs find now."""
        self.token = self._token_file.read_text().strip()

    def start_workers(self, *names: str) -> None:
        for name in names:
            self.workers.append(self._start([*COMMAND, "worker", "--join", self.address, "--name", name]))
        wait_until(lambda: len(self.status()["hosts"]) == len(self.workers), WAIT_S)

    def start_program(self, text: str) -> subprocess.Popen[str]:
        return self._start([sys.executable, "-c", text, self.address], stdout=subprocess.PIPE, stdin=subprocess.PIPE)

    def session(self) -> native.Session:
        return native.Session.connect(self.address, "client", 20.0, token=self.token)

    def status(self) -> dict[str, Any]:
        with self.session() as session:
            found: dict[str, Any] = json.loads(session.status_json(WAIT_S))
        self.pids |= {found["controller"]["pid"], found["controller"]["standby"]} - {0}
        return found

    def serving(self) -> int:
        pid: int = self.status()["controller"]["pid"]
        return pid

    def kill_controller(self) -> None:
        os.kill(self.serving(), signal.SIGKILL)

    def said(self) -> str:
        return self._log.read_text()

    def token_files(self) -> list[Path]:
        return list(self._runtime.rglob("*.token"))

    def end(self) -> None:
        """In order; nothing is left."""
        self.process.terminate()
        assert self.process.wait(WAIT_S) == 0, self.said()
        for worker in self.workers:
            assert worker.wait(WAIT_S) == 0, self.said()
        assert not [path for path in self._runtime.rglob("*") if path.is_file()]
        assert not [pid for pid in self.pids if is_running(pid)]
        assert not [each for each in os.listdir("/dev/shm") if each.startswith(f"ptpathways-{self.name}-")]

    def __enter__(self) -> Standing:
        return self

    def __exit__(self, *unused: object) -> None:
        for pid in self.pids:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        self._stack.close()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
    if process.stdin is not None:
        process.stdin.close()


CAPTURED = """
import sys
import torch
from torch import nn
import ptpathways as pw

pw.init(**({"hosts": 2} if sys.argv[1] == "-" else {"address": sys.argv[1]}))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
batches = [(torch.randn(8, 32), torch.randn(8, 1)) for _ in range(60)]
def step(x, y):
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
model, optimizer, batches, step = pw.prepare(model, optimizer, batches, step, capture=True)
for x, y in batches:
    print(step(x, y).item().hex(), flush=True)
    if sys.argv[1] != "-":
        sys.stdin.readline()
"""

PIPELINE = """
import sys
import torch
from torch import nn
import ptpathways as pw

cluster = pw.init(**({"hosts": 2} if sys.argv[1] == "-" else {"address": sys.argv[1]}))
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)))
pipe = pw.pipeline(
    model, stages=2, microbatches=4, schedule="1f1b", slices=[cluster.slice((1,)) for _ in range(2)],
    loss=nn.functional.mse_loss, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
)
for _ in range(20):
    print(float(pipe.step(torch.randn(8, 16), torch.randn(8, 16)).result(60)).hex(), flush=True)
    if sys.argv[1] != "-":
        sys.stdin.readline()
"""
