"""A device that hangs while its worker lives: `ptpathways status` and the controller's log say so."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptpathways.testing import wait_until
from tests.proc.standing import COMMAND, WAIT_S, Standing
from tests.scenarios import needs_native

pytestmark = [needs_native, pytest.mark.timeout(180)]
HANGS_S = 10
LIMIT_S = 1.5
HANGS = f"""module @hangs {{ func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
  %y = stablehlo.custom_call @pathways.wait(%x) {{api_version = 4 : i32,
    backend_config = {{microseconds = {HANGS_S * 1_000_000} : i64}}}} : (tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}} }}""".encode()


def _status(cluster: Standing, *arguments: str) -> str:
    command = [*COMMAND, "status", "--address", cluster.address, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=cluster.environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _unfinished(status: dict[str, Any]) -> dict[str, Any]:
    return {host["name"]: host["unfinished"] for host in status["hosts"]}


def test_a_device_that_finishes_nothing_is_named_with_what_it_runs_until_it_goes_on(tmp_path: Path) -> None:
    with Standing(tmp_path, "--overdue", str(LIMIT_S)) as cluster:
        cluster.start_workers("a", "b")
        with cluster.session() as session:
            device = next(host["first_device"] for host in session.hosts() if host["name"] == "b")
            hangs = session.register(HANGS, "mlir", name="hangs (train.py:7)", outputs=[("f32", [])], devices=[device])
            assert _unfinished(cluster.status()) == {"a": None, "b": None}
            (value,) = session.run(hangs, [session.put(np.ones((), np.float32), device)], device)
            wait_until(lambda: (_unfinished(cluster.status())["b"] or {}).get("overdue", False), WAIT_S)
            found = _unfinished(json.loads(_status(cluster, "--json")))
            said = _status(cluster)
            assert not value.done(), "the computation was to last until here"
            assert found["a"] is None
            what = found["b"]
            assert (what["device"], what["computations"], what["client"]) == (device, 1, "client")
            assert what["first"] == "function 'hangs (train.py:7)'"
            assert LIMIT_S * 1000 <= what["still_ms"] <= what["sent_ms"] < HANGS_S * 1000
            notice = rf"host 'b' has finished nothing on device {device} for [\d.]+ s, with 1 computation to do; "
            first = r"the first is function 'hangs \(train.py:7\)' of client 'client', sent [\d.]+ s ago; its worker"
            assert re.search(notice + first, said)
            assert re.search(r"\bb\b.* nothing finished for \d+ s", said)
            np.testing.assert_array_equal(value.result(WAIT_S), np.ones(()))
            wait_until(lambda: _unfinished(cluster.status()) == {"a": None, "b": None}, WAIT_S)
            assert "has finished nothing" not in _status(cluster)
        log = "has finished something on device"
        wait_until(lambda: log in cluster.said(), WAIT_S)
        lines = [line for line in cluster.said().splitlines() if "host 'b'" in line and " has finished " in line]
        assert len(lines) == 2, cluster.said()
        assert re.search(r"has finished nothing .*; the first is function 'hangs .* of client 'client'", lines[0])
        assert re.search(rf"{log} {device} again, after \d+ s", lines[1])
        cluster.end()
