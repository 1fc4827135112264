"""Worker processes: their command line, their folder, and who watches them. The children here are small scripts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptpathways import launch, platforms
from ptpathways.launch import _processes, _runtime_dir, _worker_process
from ptpathways.launch._worker_command import worker_arguments

WAIT_S = 30.0
PLUGIN = platforms.Plugin("cuda", "/x/plugin.so", "option")


def test_the_command_line_says_what_the_worker_reads() -> None:
    options = {
        "controller": "ipc:///run/a=b/controller",
        "name": "host0",
        "island": "",
        "memory_limit_bytes": 1 << 40,
        "connect_timeout_s": 0.1,
        "create_options": {"visible_devices": [0, 3], "preallocate": False, "platform_name": "cuda", "count": 2},
    }
    assert _worker_process.parse(worker_arguments(options)) == options


def test_a_worker_is_started_without_site_packages_and_knows_its_paths() -> None:
    worker = launch.WorkerOptions(controller="tcp://127.0.0.1:1", name="host7", plugin=PLUGIN, devices=2)
    command = launch.worker_command(worker)
    assert command[:3] == [sys.executable, "-I", "-S"]
    options = _worker_process.parse(command[4:])
    assert (options["name"], options["plugin"]) == ("host7", "/x/plugin.so")
    assert Path(str(options["extension"])).is_file() and Path(str(options["zmq"])).is_file()
    assert set(options) - {"extension", "zmq"} == set(worker.native_options())


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ``XDG_RUNTIME_DIR`` whose path is as short as a real one's."""
    with tempfile.TemporaryDirectory(prefix="pw", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


_MAKER = """
from ptpathways.launch import _runtime_dir
print(_runtime_dir.create(), flush=True)
input()
"""


def test_folders_of_processes_that_are_gone_are_removed(runtime: Path) -> None:
    """Whether one is gone is not asked of its process number: another container's mean nothing here."""
    stranger = runtime / "ptpathways-notes-abc"
    (stranger / "inside").mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", _MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        theirs = Path(maker.stdout.readline().strip())
        (theirs / "inside").mkdir()
        elsewhere = theirs.rename(runtime / "ptpathways-4194305-abc")  # beyond the greatest number of a process
        mine = _runtime_dir.create()
        assert mine.parent == runtime and mine.stat().st_mode & 0o777 == 0o700
        assert elsewhere.exists() and not _runtime_dir.remove_if_dead(elsewhere)
        assert _runtime_dir.remove_dead() == 0
        maker.kill()
        maker.wait(WAIT_S)
    assert _runtime_dir.remove_dead() == 1
    assert not elsewhere.exists() and stranger.exists() and mine.exists()
    _runtime_dir.remove(mine)
    _runtime_dir.remove(mine)
    assert not _runtime_dir.remove_if_dead(mine)


def test_two_who_make_folders_at_once_keep_them(runtime: Path) -> None:
    """A folder that a third removed before it was locked is made anew."""
    made: list[Path] = []
    both = threading.Barrier(4)

    def make() -> None:
        both.wait(WAIT_S)
        for _ in range(50):
            made.append(_runtime_dir.create())

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(set(made)) == 200 and all(folder.is_dir() for folder in made)
    for folder in made:
        _runtime_dir.remove(folder)


def test_a_folder_too_deep_for_sockets_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert _runtime_dir.base_folder() != deep


def test_a_folder_in_which_nothing_can_be_made_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc")  # root is told that it is writable
    folder = _runtime_dir.create()
    assert folder.is_dir() and folder.parent != Path("/proc")
    _runtime_dir.remove(folder)


def _python(name: str, script: str, folder: Path) -> _processes.Command:
    return _processes.Command(name, [sys.executable, "-c", script], dict(os.environ), folder / f"{name}.log")


def test_notes_of_workers_are_told_as_they_come_and_once(tmp_path: Path) -> None:
    told: list[str] = []
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    notes = _processes.Notes(logs, told.append)
    notes.look()  # before there is a log
    logs[0].write_text("something else\nptpathways worker notes: slow disk\nptpathways worker no")
    logs[1].write_text("ptpathways worker notes: slow disk\n")
    notes.look()
    assert told == ["slow disk"]
    with open(logs[0], "a") as log:
        log.write("tes: no disk\n")
    notes.look()
    notes.look()
    assert told == ["slow disk", "no disk"]


def test_a_death_is_told_at_once_with_the_last_words(tmp_path: Path) -> None:
    told: dict[str, str] = {}
    both = threading.Barrier(2)

    def on_exit(name: str, reason: str) -> None:
        told[name] = reason
        both.wait(WAIT_S)

    failing = _python("failing", "import sys; print('out of milk', file=sys.stderr); sys.exit(4)", tmp_path)
    staying = _python("staying", "import signal; signal.pause()", tmp_path)
    processes = _processes.Processes([failing, staying], on_exit)
    processes.start(WAIT_S)
    both.wait(WAIT_S)
    assert list(told) == ["failing"]
    assert told["failing"].startswith("exited with code 4") and "out of milk" in told["failing"]
    assert processes.exited() == told
    processes.stop(0.05)
    assert list(told) == ["failing"], "an end that was asked for is not told"
    assert _processes.wait_gone(list(processes.pids.values()), WAIT_S) == []


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    processes = _processes.Processes([_python("deaf", deaf, tmp_path)], lambda name, reason: None)
    processes.start(WAIT_S)
    processes.stop(0.5)
    assert processes.exited()["deaf"].startswith(("was killed by SIGKILL", "was killed by SIGTERM"))
    assert _processes.wait_gone(list(processes.pids.values()), WAIT_S) == []


def test_a_command_that_cannot_start_ends_the_others(tmp_path: Path) -> None:
    staying = _python("staying", "import signal; signal.pause()", tmp_path)
    missing = _processes.Command("missing", ["/nowhere/python"], {}, tmp_path / "missing.log")
    processes = _processes.Processes([staying, missing], lambda name, reason: None)
    with pytest.raises(FileNotFoundError):
        processes.start(WAIT_S)
    processes.stop(WAIT_S)
    assert processes.exited()["staying"].startswith("was killed by SIGKILL")


def test_only_the_end_of_a_long_log_is_told(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_text("\n".join(f"line {number}" for number in range(10_000)))
    assert _processes.tail_of(log, 2) == "line 9998\nline 9999"
    log.write_text("early\nF0000 x.h:1] Check failed: a == b\n" + "    @ 0x7f frame\n" * 50)
    assert _processes.tail_of(log, 2).splitlines()[0] == "F0000 x.h:1] Check failed: a == b"
    assert _processes.describe_exit(-6, log).startswith("was killed by SIGABRT; the end of its log:\n")
    assert _processes.describe_exit(-200) == "was killed by signal 200"


def test_what_xla_writes_into_any_log_is_not_told(tmp_path: Path) -> None:
    log = tmp_path / "host0.log"
    noise = [f"E0000 00:00:1 2 cpu_aot_loader.cc:195] Target machine feature {'+x,' * 1000}" for _ in range(30)]
    log.write_text("\n".join([*noise, "out of memory: " + "9" * 1000, *noise[:3]]))
    assert _processes.tail_of(log) == "out of memory: " + "9" * 285 + "..."
