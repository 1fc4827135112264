"""A Python process that measures on request: one line of JSON in, one line of JSON out.

Systems that cannot live in one process (each wants to be PyTorch/XLA's only client) are measured side by side this way:
the one that is not asked waits for its next line and costs nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from ptpathways import core
from ptpathways.bench._leftovers import Leftovers

_END_TIMEOUT_S = 20.0
_SHOWN_BYTES = 3000


class Child:
    """A process running a module that answers as ``serve`` does; ended on leaving the context.

    Whatever it leaves behind goes with it: processes that it started, its temporary folder, named semaphores.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        interpreter: str | os.PathLike[str] = sys.executable,
    ) -> None:
        self._name = " ".join((module, *arguments))
        self._leftovers = Leftovers()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        try:
            self._process = subprocess.Popen(
                [interpreter, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, **(environment or {}), **self._leftovers.environment},
            )
        except BaseException:
            self._stderr.close()
            self._leftovers.remove()
            raise
        self._received = b""

    def ask(self, request: Any, timeout_s: float = 300.0) -> Any:
        """Sends ``request`` and waits for the answer.

        Raises:
            PathwaysError: the process ended; the message has the end of what it wrote to stderr.
            DeadlineExceeded: no answer within ``timeout_s``.
        """
        self.send(request)
        return self.receive(timeout_s)

    def send(self, request: Any) -> None:
        """Half of ``ask``, for asking several at the same time. Raises as it does."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self, timeout_s: float = 300.0) -> Any:
        """The answer to the first request that has none yet. Raises as ``ask`` does."""
        return json.loads(self._line(timeout_s))

    def _line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise core.DeadlineExceeded(f"expected an answer of `{self._name}` within {timeout_s:g} s, got none")
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                raise self._ended()
            self._received += piece
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _ended(self) -> core.PathwaysError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        self._stderr.seek(0)
        written = self._stderr.read().decode(errors="replace")[-_SHOWN_BYTES:].strip()
        code = self._process.returncode
        return core.PathwaysError(f"`{self._name}` ended with exit code {code} before it answered:\n{written}")

    def close(self) -> None:
        """Lets the process end by itself (its input closes), and kills it if it does not. Idempotent."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()
        self._leftovers.remove()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def serve(answer: Callable[[Any], Any]) -> None:
    """The child's side: answers each line of stdin until there are no more. What ``answer`` prints goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()
