"""Whatever waits says for what: notices while it lasts, the same at a deadline, and errors of the project's classes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.scenarios import ROOT, needs_native

pytestmark = [needs_native, pytest.mark.timeout(120)]

PROGRAM = """
import os, signal, sys, threading
import torch
import ptpathways as pw
from ptpathways import testing
from tests import inside

cluster = pw.init(hosts=2, devices_per_host=1)
connection = inside.connection()
value = torch.ones(64, 64).to(pw.device())
(value + 1).sum().item()
pid = connection.host_pids()[1]
"""

STOPPED = """
testing.stop_process(pid)
said = threading.Event()
class Watched:
    def write(self, text):
        if "has waited" in text:
            said.set()
        return plain.write(text)
    def flush(self):
        plain.flush()
plain, sys.stderr = sys.stderr, Watched()
threading.Thread(target=lambda: (said.wait(60), os.kill(pid, signal.SIGCONT)), daemon=True).start()
print((value * 3).sum().item())  # LINE
"""

COMPILES = """
x = torch.ones(32, 32).to(pw.device())
for number in range(40):
    x = torch.tanh(x @ x.roll(number, 0)).cumsum(0)
pw.step()  # LINE
print(x.sum().item() == x.sum().item())
"""

DEADLINE = """
slice = cluster.slice(1)
def slow(x):
    for _ in range(64):
        x = torch.tanh(x @ x)
    return x
slow = pw.function(slow, slice=slice)
future = slow(torch.ones(2000, 2000))
said = ""
while " runs node " not in said:  # before that it is compiled, which a slow machine does for a while
    try:
        future.result(timeout=0.3)
        break
    except pw.DeadlineExceeded as error:
        said = str(error)
print(said)
"""

LEFT = """
signal.signal(signal.SIGINT, signal.default_int_handler)
testing.stop_process(pid)
kept = value * 3
pw.step()
print("leaving", flush=True)
"""

LOST = """
os.kill(pid, signal.SIGKILL)
for read in (lambda: value.sum().item(), lambda: bool(value.sum() > 0), lambda: value.cpu(), lambda: value.to("cpu"),
             lambda: value.tolist(), lambda: str(value)):
    try:
        read()
    except pw.HostLost as error:
        print("HostLost", "host1" in str(error))
"""


UNREAD = """
testing.stop_process(pid)
kept = value * 3
pw.step()
os.kill(pid, signal.SIGKILL)
"""


def _run(program: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """``folder``: where the program is a file, so that its lines have names."""
    given = ["-c", PROGRAM + program]
    if folder is not None:
        (folder / "program.py").write_text(PROGRAM + program)
        given = [str(folder / "program.py")]
    return subprocess.run(
        [sys.executable, *given],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def test_a_long_wait_says_for_what_at_which_line_and_which_host_does_not_answer() -> None:
    done = _run(STOPPED, PTPATHWAYS_WAIT_NOTICE="0.5")
    assert done.stdout.split() == [str(64.0 * 64 * 3)]
    notice = done.stderr[done.stderr.index("ptpathways: ") :]
    assert "has waited" in notice and "function 'SyncTensorsGraph" in notice and "submitted" in notice
    assert "host 'host1'" in notice and "does not answer" in notice


def test_a_compilation_that_lasts_is_shown_with_the_users_line(tmp_path: Path) -> None:
    done = _run(COMPILES, tmp_path, PTPATHWAYS_COMPILE_NOTICE="0.2", PTPATHWAYS_CACHE_DIR="off")
    assert done.stdout.split() == ["True"]
    line = 1 + (PROGRAM + COMPILES).splitlines().index("pw.step()  # LINE")
    said = [text for text in done.stderr.splitlines() if text.startswith("ptpathways: compil")]
    begun, ended = (
        [text for text in said if text.startswith(f"ptpathways: {verb} function 'SyncTensorsGraph")]
        for verb in ("compiling", "compiled")
    )
    assert any(f"program.py:{line}) on host" in text and " s so far" in text for text in begun), done.stderr
    assert any(f"program.py:{line}): about" in text for text in ended), done.stderr


def test_a_process_that_leaves_says_what_it_waits_for_and_control_c_ends_that() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PTPATHWAYS_WAIT_NOTICE": "0.5"}
    command = [sys.executable, "-c", PROGRAM + LEFT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as left:
        assert left.stdout is not None and left.stderr is not None
        said = ""
        for line in left.stderr:
            said += line
            if "does not answer" in line:
                break
        assert "has waited" in said and "before the process leaves the cluster" in said and "host 'host1'" in said
        left.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in left.stderr.read()
        assert left.stdout.read() == "leaving\n"


def test_a_deadline_says_the_same() -> None:
    said = _run(DEADLINE).stdout
    assert "not done: program 'slow'" in said and "host 'host0'" in said and " runs node 'slow" in said


def test_reads_of_lost_values_raise_the_projects_class() -> None:
    assert _run(LOST).stdout.splitlines() == ["HostLost True"] * 6


def test_a_notice_can_be_switched_off_and_a_wrong_number_is_refused() -> None:
    from ptpathways import core

    assert core.Options.from_environment({"PTPATHWAYS_WAIT_NOTICE": "0"}).wait_notice_s == 0
    with pytest.raises(core.InvalidOption, match="PTPATHWAYS_WAIT_NOTICE must be a number, got 'soon'"):
        core.Options.from_environment({"PTPATHWAYS_WAIT_NOTICE": "soon"})
    with pytest.raises(core.InvalidOption, match="wait_notice_s must be a number of seconds"):
        core.Options(wait_notice_s=-1)
    assert core.Options.from_environment({"PTPATHWAYS_COMPILE_NOTICE": "0"}).compile_notice_s == 0
    with pytest.raises(core.InvalidOption, match="compile_notice_s must be a number of seconds"):
        core.Options(compile_notice_s=float("inf"))


def test_wait_raises_once_what_nobody_has_read() -> None:
    waits = """
for _ in range(2):
    try:
        print(pw.wait())
    except pw.HostLost as error:
        print("HostLost", "host1" in str(error))
"""
    assert _run(UNREAD + waits).stdout.splitlines() == ["HostLost True", "None"]
    assert _run(LOST + waits).stdout.splitlines() == ["HostLost True"] * 6 + ["None"] * 2, "it is known already"


def test_a_process_that_ends_says_what_has_failed_and_was_not_read() -> None:
    said = _run(UNREAD).stderr
    assert "what was submitted last has failed, and was not read" in said and "host 'host1'" in said
