"""What users see when something is wrong: an error that says so, and a program that ends or goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios import ROOT

SCRIPT = Path(__file__).with_name("user_mistakes.py")

EXPECTED: dict[str, list[str]] = {
    "shape_error": [r"caught: .*(size|shape|mat|dimension)", r"still works: 2\.0"],
    "out_of_memory": [r"caught: .*out of device memory.*64\.00 MiB", r"host 'host0'", r"still works: 4\.0"],
    "fallback": [r"sum of R: 5\.0"],
    "lost_values": [
        r"call: .*Error while lowering",
        *(rf"{what}: (RuntimeError|PathwaysError)" for what in ("forward", "step")),
        r"shape: RuntimeError a tensor has neither a value nor a computation",
        r"read: PathwaysError a tensor has neither .*gelu_backward",
        r"a new model works: True",
    ],
    "late_init": [r"caught: RuntimeAlreadyStarted .*init"],
    "twice": [r"caught: AlreadyInitialized"],
    "no_init": [r"caught: NotInitialized .*init"],
    "wrong_address": [r"caught: ConnectionFailed .*127\.0\.0\.1:9"],
    "missing_plugin": [r"caught: PluginNotFound .*/no/such/plugin\.so"],
    "broken_plugin": [r"caught: ConnectionFailed .*GetPjrtApi"],
    "killed_worker": [r"caught: .*'host1'.*(killed by SIGKILL|connection closed)"],
    "interrupted": [r"caught: KeyboardInterrupt"],
    "held_back": [
        r"call: KeyboardInterrupt at once",
        r"trace: KeyboardInterrupt at once",
        r"values: \[(\d+\.0)(, \1){3}\] \[1\.0, 1\.0, 1\.0, 1\.0\]",
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_mistake_is_answered(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name], capture_output=True, text=True, timeout=100, env=environment
    )
    text = done.stdout
    for pattern in EXPECTED[name]:
        assert re.search(pattern, text, re.DOTALL), f"{pattern!r} not in:\n{text}\n{done.stderr}"
    assert done.returncode == 0, done.stderr
    if name == "fallback":
        assert len(re.findall("ClientFallbackWarning", done.stderr)) == 1, done.stderr
