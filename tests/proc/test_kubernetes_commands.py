"""The containers' commands of the manifests for Kubernetes, as processes: they make a cluster, and bear its probes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptpathways import core, testing
from ptpathways.launch import kubernetes
from tests.scenarios import needs_native

TIMEOUT_S = 60.0
PROBES = 200


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5.0):
        return True
    return False


@needs_native
@pytest.mark.timeout(240)
def test_the_containers_make_a_cluster_and_bear_its_probes(tmp_path: Path) -> None:
    options = kubernetes.KubernetesOptions(hosts=2, image="x", kind="jobs", token=core.make_token())
    control = free_port()
    ports: dict[str, int] = {"controller": control}
    found: dict[str, Any] = {}
    for one in kubernetes.manifests(options):
        if one["kind"] == "Job":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            found[container["name"]] = container

    def command(name: str, index: int) -> list[str]:
        """As the kubelet would start it, but for names, addresses and ports of this machine."""
        port = ports.setdefault(f"{name}{index}", control if name == "controller" else free_port())
        words = []
        for word in found[name]["command"][1:]:
            for before, after in {
                kubernetes.controller_host(options): "127.0.0.1",
                "0.0.0.0": "127.0.0.1",
                "$(POD_IP)": "127.0.0.1",
                "$(JOB_COMPLETION_INDEX)": str(index),
                str(kubernetes.CONTROL_PORT): str(control),
                str(kubernetes.DATA_PORT): str(port),
            }.items():
                word = word.replace(before, after)
            words.append(word)
        return [sys.executable, "-m", "ptpathways", *words]

    environment = {**os.environ, core.TOKEN_VARIABLE: options.token, "XDG_RUNTIME_DIR": str(tmp_path)}
    status = [sys.executable, "-m", "ptpathways", "status", "--address", f"tcp://127.0.0.1:{control}", "--json"]

    def hosts() -> set[str]:
        done = subprocess.run(status, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
        return {host["name"] for host in json.loads(done.stdout)["hosts"]} if done.returncode == 0 else set()

    with contextlib.ExitStack() as stack:
        stack.enter_context(running(command("controller", 0), environment, tmp_path / "controller"))
        for index in range(2):  # they come while the controller still starts
            stack.enter_context(running(command("worker", index), environment, tmp_path / f"worker{index}"))
        testing.wait_until(lambda: hosts() == {"host0", "host1"}, TIMEOUT_S)
        for _ in range(PROBES):
            assert all(answers(port) for port in set(ports.values()))
        assert hosts() == {"host0", "host1"}
    said = b"".join((tmp_path / name).read_bytes() for name in ("worker0", "worker1"))
    assert len(said.splitlines()) < 10, said.decode()
