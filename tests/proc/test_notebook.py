"""Notebooks: Ctrl-C and the kernel's interrupt, cells that run again, another cluster, and the example, executed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from ptpathways.launch._processes import wait_gone
from tests.proc import notebook_scenarios as scenarios
from tests.scenarios import ROOT, limited, needs_native, outcome_of

pytestmark = [needs_native, limited]

WAITS = ["item", "print", "if", "in place fallback", "large", "wait", "back-pressure", "captured back-pressure"]
WAITS += ["audits", "finally", "future"]
VALUES = {
    "item": 128.0,
    "print": 65.0,
    "if": True,
    "in place fallback": [1.0],
    "large": True,
    "wait": 48.0,
    "back-pressure": 16.0,
    "captured back-pressure": True,
    "audits": True,
    "finally": 128.0,
    "future": [42.0],
}


def outcome(kind: str) -> Any:
    return outcome_of(Path(scenarios.__file__), kind)


@pytest.mark.parametrize("kind", ["interrupts", "interrupts-spmd"])
@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_ends_a_wait_and_nothing_else(kind: str, name: str) -> None:
    found = outcome(kind)[name]
    assert isinstance(found["ended"], dict), found["ended"]
    assert found["ended"]["seconds"] < 1.0  # 0.2 on a quiet machine
    assert found["ended"]["line"]
    assert found["value"] == VALUES[name]


def test_ctrl_c_does_not_reach_the_workers() -> None:
    found = outcome("interrupts")
    assert found["alive"] == [True]
    assert found["own group"]
    assert found["in finally"] == "ran"


def test_a_wrapped_backward_does_not_meet_those_of_init() -> None:
    assert outcome("again")["backward passes of init"] == 0


def test_init_again_gives_the_running_cluster_unless_another_is_asked_for() -> None:
    found = outcome("again")
    assert found["same"] == [True, True]
    assert re.match(r"AlreadyInitialized: .*hosts=2 instead of 1.*pw\.shutdown\(\)", found["other options"])
    assert re.fullmatch(r"cluster \S+: 1 host, 2 devices\n  host0  devices 0-1  cpu  island0  alive", found["repr"])
    assert found["html"].count("<tr>") == 2


def test_cells_that_run_again_train_the_same_compile_nothing_and_keep_nothing() -> None:
    found = outcome("again")
    for name in ("first", "second", "third", "after a mistake"):
        assert found[name] == pytest.approx(found["eager"], rel=1e-4), name
    assert found["third compiled"] == 0
    assert found["third kept bytes"] <= 1024


def test_another_cluster_follows_a_shutdown() -> None:
    found = outcome("again")
    assert found["no cluster"].startswith("NotInitialized")
    assert found["other devices"] == 3
    assert found["another cluster"]
    for name in ("on other devices", "in another cluster", "after old", "after a loss"):
        assert found[name] == pytest.approx(found["eager"], rel=1e-4), name
    for name in ("old fetched", "old used", "old captured step", "old state"):
        assert "which this process has left" in found[name], name


def test_after_a_lost_worker_init_says_what_to_do() -> None:
    found = outcome("again")
    assert "host0" in found["lost"]
    assert re.match(r"HostLost: .*pw\.shutdown\(\)", found["init with a lost host"])


def test_the_example_runs_is_interrupted_and_leaves_nothing() -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(ROOT / "examples" / "04_notebook.ipynb", as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code"), "strip the outputs"
    asyncio.run(asyncio.wait_for(_run(nbclient, nbformat, notebook), 240))


COMPILES = """
import torch
import ptpathways as pw
pw.init(compile_notice_s=0.1, cache_dir="off")
x = torch.ones(32, 32).to(pw.device())
for number in range(40):
    x = torch.tanh(x @ x.roll(number, 0)).cumsum(0)
print(x.sum().item() > 0)
pw.shutdown()
"""


def test_a_compilation_that_lasts_is_shown_in_the_cell_that_waits_for_it() -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[_cell(nbformat, COMPILES)])
    client = nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(ROOT)}})
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    (cell,) = notebook.cells
    assert "True" in _text(cell)
    shown = [output.data["text/plain"] for output in cell.outputs if output.output_type == "display_data"]
    assert any(re.match(r"compil(ing|ed) function 'SyncTensorsGraph\.\d+'", text) for text in shown), cell.outputs


async def _run(nbclient: Any, nbformat: Any, notebook: Any) -> None:
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    )
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    async with client.async_setup_kernel(env=where, cleanup_kc=True):
        code = [(index, cell) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
        for index, cell in code[:-1]:
            if "KeyboardInterrupt" in cell.source:
                await _interrupted(client, cell, index, "epoch 1:")
                assert "stopped" in _text(cell)
            else:
                await client.async_execute_cell(cell, index)
        assert re.search(r"epoch 2: loss 0\.\d+", _text(code[3 - 1][1]) + _text(code[3][1]))
        accuracy = re.search(r"([0-9.]+)% of 360", _text(code[-2][1]))
        assert accuracy is not None and float(accuracy[1]) > 75

        # One that nothing catches, while the worker stands still; then the first cell, again.
        asked = _cell(
            nbformat,
            "from tests import inside\n"
            "print('pids', *inside.connection().host_pids(), 'of', __import__('os').getpid())",
        )
        await client.async_execute_cell(asked, 0)
        (pids, kernel) = re.findall(r"pids (.*) of (\d+)", _text(asked))[0]
        worker = int(pids)
        stop = f"__import__('ptpathways.testing', fromlist=['*']).stop_process({worker})"
        waiting = _cell(nbformat, f"loss = epoch()\n{stop}\nprint('waits', flush=True)\nloss.item()")
        waiting.metadata["tags"] = ["raises-exception"]
        await _interrupted(client, waiting, 0, "waits")
        os.kill(worker, signal.SIGCONT)
        (error,) = [output for output in waiting.outputs if output.output_type == "error"]
        assert error.ename == "KeyboardInterrupt", error
        again = _cell(nbformat, code[0][1].source + "\nprint(epoch().item() < 2.5)")
        await client.async_execute_cell(again, 0)
        assert "True" in _text(again)
        assert _text(again).strip() == "True"  # no worker prints into a cell

        os.kill(int(kernel), signal.SIGKILL)
        assert wait_gone([worker], 20.0) == []


async def _interrupted(client: Any, cell: Any, index: int, when: str) -> None:
    """Executes a cell and presses the stop button once it has printed ``when``."""
    running = asyncio.create_task(client.async_execute_cell(cell, index))
    for _ in range(600):
        if when in _text(cell) or running.done():
            break
        await asyncio.wait([running], timeout=0.1)
    await client.km.interrupt_kernel()
    await running


def _cell(nbformat: Any, source: str) -> Any:
    return nbformat.v4.new_code_cell(source)


def _text(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)
