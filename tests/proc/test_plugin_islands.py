"""Islands whose hosts' plugins make one client together, as those of GPUs and TPUs do: real processes.

The plugin is built for tests. It exchanges what such plugins exchange, and runs computations without collectives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptpathways import core, native, platforms, testing
from ptpathways.launch import WorkerOptions, local, worker_command, worker_environment

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
ISLAND_TIMEOUT_S = 1.5


@pytest.fixture(scope="module")
def plugin() -> Iterator[Path]:
    """The plugin's path; the environment names the cpu plugin under it."""
    if shutil.which(os.environ.get("PW_CXX", "g++")) is None:
        pytest.skip("the test plugin is compiled here, and there is no C++ compiler")
    command = [sys.executable, str(ROOT / "tools" / "native_build.py"), "test-plugin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    patch = pytest.MonkeyPatch()
    patch.setenv("PW_TEST_PJRT_PLUGIN", platforms.find_plugin("cpu").path)
    yield Path(done.stdout.split()[-1])
    patch.undo()


def start(plugin: Path, hosts: int) -> local.LocalCluster:
    return local.start(core.Options(hosts=hosts, islands=1, platform="pod", plugin=str(plugin), lease_s=2.0))


def doubled(session: native.Session, devices: Sequence[int]) -> native.Program:
    """A program of one node: twice its argument, split over ``devices``, which are one to a host."""
    count = len(devices)
    split = f"{{devices=[{count}]<=[{count}]}}"
    whole = f"tensor<{2 * count}xf32>"
    module = f"""module @m attributes {{mhlo.num_partitions = {count} : i32}} {{
      func.func public @main(%a: {whole} {{mhlo.sharding = "{split}"}}) -> ({whole} {{mhlo.sharding = "{split}"}}) {{
        %r = stablehlo.add %a, %a : {whole}
        return %r : {whole}
      }}
    }}"""
    function = session.register(module.encode(), "mlir", devices=devices, name="double", outputs=[("f32", [2])])
    plans: list[Any] = []
    for shard, device in sorted(enumerate(devices), key=lambda pair: pair[1]):
        slot = {"dtype": "f32", "dims": [2], "shards": [shard], "devices": [device]}
        step = {"kind": "execute", "node": 0, "function": 0, "arguments": [0], "results": [1], "donated": []}
        plans.append(
            {"host": device, "channels": 0, "nodes": ["only"], "slots": [slot, slot], "inputs": [0], "outputs": [1],
             "steps": [step]}
        )  # fmt: skip
    port: Any = {"dtype": "f32", "dims": [2], "devices": list(devices)}
    return session.register_program("double", plans, [port], [port], functions=[function])


@pytest.mark.parametrize("devices", [[0, 1, 2], [2, 0, 1], [1, 2]])
def test_a_gang_over_hosts_of_one_client(plugin: Path, devices: list[int]) -> None:
    with start(plugin, 3) as cluster:
        session = cluster.session
        assert [device["plugin_id"] for host in session.hosts() for device in host["devices"]] == [0, 1, 2]
        program = doubled(session, devices)
        values = np.arange(2 * len(devices), dtype=np.float32)
        value = session.put_sharded(list(values.reshape(-1, 2)), devices)
        for _ in range(3):
            (value,) = session.run_program(program, [value])
        np.testing.assert_array_equal(np.concatenate(value.fetch(TIMEOUT_S)), values * 8)
    assert not testing.leftovers(cluster)


def test_the_loss_of_a_host_ends_its_island_and_names_it(plugin: Path) -> None:
    with start(plugin, 3) as cluster:
        session = cluster.session
        devices = [0, 1, 2]
        program = doubled(session, devices)
        value = session.put_sharded([np.zeros(2, np.float32)] * 3, devices)
        (value,) = session.run_program(program, [value])
        value.fetch(TIMEOUT_S)
        pids = cluster.worker_pids
        killed = time.monotonic()
        testing.kill(cluster, "host1")
        testing.wait_until(lambda: not any(testing.is_running(pid) for pid in pids.values()), TIMEOUT_S)
        assert time.monotonic() - killed < 5.0
        with pytest.raises(native.NativeError, match="'host1'"):
            (value,) = session.run_program(program, [value])
            value.fetch(TIMEOUT_S)


def test_nobody_hangs_in_a_gang_whose_host_stands_still(plugin: Path) -> None:
    """The others' engines wait inside the plugin, for a key that the host would put."""
    with start(plugin, 3) as cluster:
        session = cluster.session
        program = doubled(session, [0, 1, 2])
        program.wait_ready(TIMEOUT_S)
        value = session.put_sharded([np.zeros(2, np.float32)] * 3, [0, 1, 2])
        value.wait(TIMEOUT_S)
        testing.suspend(cluster, "host1")
        stopped = time.monotonic()
        (value,) = session.run_program(program, [value])
        with pytest.raises(native.NativeError, match="'host1'"):
            value.fetch(TIMEOUT_S)
        others = [cluster.worker_pids[name] for name in ("host0", "host2")]
        testing.wait_until(lambda: not any(testing.is_running(pid) for pid in others), TIMEOUT_S)
        assert time.monotonic() - stopped < 6.0
        testing.kill(cluster, "host1")


class Workers:
    """A controller, and worker processes that ask it for a place in an island."""

    def __init__(self, plugin: Path) -> None:
        self.plugin = plugin
        self.token = core.make_token()
        self.controller = native.Controller({"bind": ["tcp://127.0.0.1:*"], "embedded": False, "token": self.token})
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, name: str, hosts: int, plugin: Path | None = None) -> subprocess.Popen[str]:
        options = WorkerOptions(
            controller=self.controller.endpoints[0],
            name=name,
            plugin=platforms.find_plugin("pod", str(plugin or self.plugin)),
            island="pod",
            island_hosts=hosts,
            island_timeout_s=ISLAND_TIMEOUT_S,
            token=self.token,
        )
        self.processes.append(
            subprocess.Popen(
                worker_command(options), env=worker_environment(options), stderr=subprocess.PIPE, text=True
            )
        )
        return self.processes[-1]

    def close(self) -> None:
        self.controller.close("the test ended")
        for process in self.processes:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)


@pytest.fixture
def workers(plugin: Path) -> Iterator[Workers]:
    made = Workers(plugin)
    yield made
    made.close()


def said(process: subprocess.Popen[str]) -> str:
    """What a worker that must fail says before it ends."""
    _, text = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1, text
    return text


def test_a_host_that_never_comes(workers: Workers) -> None:
    text = said(workers.start("alone", 2))
    assert "DEADLINE_EXCEEDED: expected 2 hosts of island 'pod' within 1.5 s, got 1: 'alone'" in text


def test_hosts_that_disagree(workers: Workers, tmp_path: Path) -> None:
    other = tmp_path / "other_build.so"
    other.write_bytes(workers.plugin.read_bytes() + b"another build")
    sizes = [workers.plugin.stat().st_size, other.stat().st_size]
    processes = [workers.start("a", 2), workers.start("b", 2, other), workers.start("c", 3)]
    texts = [said(process) for process in processes]
    # Whoever came first is waited for in vain; the others are told at once how they differ from it.
    (first,) = [text for text in texts if "DEADLINE_EXCEEDED" in text]
    assert first.count("refused: ") == 2
    if first == texts[0]:
        assert f"expected the plugin of {sizes[0]} bytes" in texts[1] and f"got of {sizes[1]} bytes" in texts[1]
        assert "expected --island-hosts 2 as on host 'a' of island 'pod', got 3 on host 'c'" in texts[2]


def test_a_worker_that_waits_for_its_island_can_be_ended(workers: Workers) -> None:
    process = workers.start("alone", 2)
    testing.wait_until(lambda: "pw-island" in _threads(process.pid), TIMEOUT_S)
    process.terminate()
    _, text = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, text


def test_a_plugin_that_knows_no_other_hosts(workers: Workers) -> None:
    """The cpu plugin takes no notice of the others, and numbers its devices from 0 on every host."""
    cpu = Path(platforms.find_plugin("cpu").path)
    ends = [workers.start(name, 2, cpu) for name in ("a", "b")]
    testing.wait_until(lambda: all(process.poll() is not None for process in ends), TIMEOUT_S)
    texts = [process.communicate(timeout=TIMEOUT_S)[1] for process in ends]
    assert any("its plugin does not make one client of several hosts" in text for text in texts), texts


def _threads(pid: int) -> list[str]:
    return [task.joinpath("comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]
