"""Slices of real clusters: granted at once, spread, released, and taken back from a client that is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from ptpathways import native
from ptpathways.launch import local
from ptpathways.testing import kill, wait_until
from tests.proc.conftest import StartCluster

WAIT_S = 30.0


def status(cluster: local.LocalCluster) -> dict[str, Any]:
    return dict(json.loads(cluster.controller.status_json()))


def test_slices_are_spread_and_shared_and_released(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2, devices_per_host=2, islands=2)
    session = cluster.session
    first = session.request_slice(2, timeout_s=WAIT_S)
    second = session.request_slice(2, timeout_s=WAIT_S)
    assert {tuple(first["devices"]), tuple(second["devices"])} == {(0, 1), (2, 3)}
    shared = session.request_slice(1, island="island1", timeout_s=WAIT_S)
    assert shared["devices"] == [2]
    assert [host["device_slices"] for host in status(cluster)["hosts"]] == [[1, 1], [2, 1]]
    session.release_slice(second["slice"])
    wait_until(lambda: status(cluster)["hosts"][1]["device_slices"] == [1, 0], WAIT_S)


def test_what_cannot_be_given_says_what_there_is(start_cluster: StartCluster) -> None:
    session = start_cluster(hosts=2, devices_per_host=2, islands=2, memory_per_device="64MiB").session
    with pytest.raises(native.NativeError) as caught:
        session.request_slice(4, timeout_s=WAIT_S)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert "4 devices" in str(caught.value) and "the largest" in str(caught.value)
    assert "island 'island0': 1 host x 2 cpu devices, 64.00 MiB each, 0 slices bound" in str(caught.value)
    assert "0 slices bound, 2 of 2 devices in no slice" in str(caught.value)
    session.request_slice(1, island="island0", timeout_s=WAIT_S)
    holder = rf"1 slice bound \(1 by client '[^']+' \(pid {os.getpid()}\)\), 1 of 2 devices in no slice"
    with pytest.raises(native.NativeError, match=holder):
        session.request_slice(4, timeout_s=WAIT_S)
    with pytest.raises(native.NativeError, match=r"at least 1\.00 GiB"):
        session.request_slice(1, min_memory_bytes=1 << 30, timeout_s=WAIT_S)
    with pytest.raises(native.NativeError) as caught:
        session.request_slice(3, hosts=2, timeout_s=WAIT_S)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_a_lost_host_is_not_granted(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2)
    kill(cluster, "host0")
    wait_until(lambda: not status(cluster)["hosts"][0]["alive"], WAIT_S)
    assert cluster.session.request_slice(1, timeout_s=WAIT_S)["devices"] == [1]


def test_a_client_that_is_gone_leaves_no_slices(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2)
    program = f"""
        import os
        from ptpathways import native
        native.load()
        session = native.Session.connect({cluster.address!r}, "short", 30.0)
        session.request_slice(1, timeout_s=30.0)
        session.request_slice(1, timeout_s=30.0)
        print("bound", flush=True)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.stdout == "bound\n", done.stderr
    wait_until(lambda: status(cluster)["slices"] == [], WAIT_S)
