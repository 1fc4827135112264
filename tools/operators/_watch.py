"""Runs cases in processes; one that ends or hangs is named, and the others go on in a new process."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from tools.operators._database import Case

ROOT = Path(__file__).parents[2]
CASES_PER_PROCESS = 60
"""Executables stay in memory as long as their process."""
LOST_MAX = 4
"""A case that has ended so many processes is given up."""
START_TIMEOUT_S = 120.0
PROCESS = "tools.operators._process"

Row = dict[str, Any]


@dataclass
class _Pending:
    case: Case
    left_out: list[int] = field(default_factory=list)
    problems: list[list[Any]] = field(default_factory=list)


class _Child:
    """A process that checks cases, and what it last said it was doing."""

    def __init__(self, pending: Sequence[_Pending], samples: int, module: str) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as cases:
            json.dump([[p.case.operator, p.case.dtype, p.left_out, samples] for p in pending], cases)
        self._cases = Path(cases.name)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # until close()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, cases.name],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, stream: TextIO) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self, timeout_s: float) -> str | None:
        """What it says next; None at its end. Raises queue.Empty when it says nothing in that time."""
        return self._lines.get(timeout=timeout_s)

    def close(self) -> str:
        """Ends it and what it started; why it had ended before, in a few words."""
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            code = 0
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._errors.seek(0)
        said = [line for line in self._errors.read().strip().splitlines() if line.strip()]
        self._errors.close()
        self._cases.unlink(missing_ok=True)
        if code < 0:
            return f"the process ended by {signal.Signals(-code).name}: {said[-1][:200] if said else ''}"
        return f"the process ended with {code}: {said[-1][:200] if said else ''}"


def run(cases: Sequence[Case], samples: int, timeout_s: float, module: str = PROCESS) -> Iterator[tuple[Case, Row]]:
    """Checks ``cases`` one after the other, of each so many ``samples`` at most (0: all).

    Yields:
        Each case with its ``counts`` of samples by verdict, ``client`` operations and ``problems``
        [verdict, sample, variant, text].
    """
    waiting = [_Pending(case) for case in cases]
    while waiting:
        batch = waiting[:CASES_PER_PROCESS]
        child = _Child(batch, samples, module)
        said, on_device, hangs, now, timeout = "", False, False, 0, START_TIMEOUT_S
        while True:
            try:
                line = child.line(timeout)
            except queue.Empty:
                hangs = True
                break
            if line is None:
                break
            if line.startswith("sample "):
                said, on_device, timeout = line, False, timeout_s
            elif line == "device":
                on_device = True
            elif line.startswith("{"):
                row = json.loads(line)
                yield batch[now].case, _with_lost(row, batch[now])
                now, said = now + 1, ""
        why = child.close()
        waiting = waiting[now:]
        if now == len(batch):
            continue
        if not said:
            raise RuntimeError(f"the process for {batch[now].case} did not begin: {why}")
        current = waiting[0]
        _, number, *variant = said.split(" ", 2)
        what = f"nothing for {timeout_s:.0f} s" if hangs else why
        kind = "not on the CPU" if not on_device else "hang" if hangs else "crash"
        current.problems.append([kind, int(number), variant[0] if variant else "", what])
        current.left_out.append(int(number))
        if sum(kind != "not on the CPU" for kind, *_ in current.problems) >= LOST_MAX:
            yield current.case, _with_lost({"counts": {}, "client": [], "problems": []}, current)
            waiting = waiting[1:]


def _with_lost(row: Row, pending: _Pending) -> Row:
    counts = dict(row["counts"])
    for kind, *_ in pending.problems:
        counts[kind] = counts.get(kind, 0) + 1
    return {"counts": counts, "client": row["client"], "problems": row["problems"] + pending.problems}
