"""What a user sees who makes a mistake at the terminal: one line, an exit code, and never a traceback."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptpathways import core, launch

COMMAND = [sys.executable, "-m", "ptpathways.cli"]
NOBODY = "tcp://127.0.0.1:9"
WAIT_S = 60.0
TOKEN = core.make_token()


def _environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PTPATHWAYS_")}
    return {**kept, "PTPATHWAYS_CACHE_DIR": "off", **more}


def _run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=_environment(**variables),
    )


def _check(done: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    for text in said:
        assert re.search(text, done.stderr), (text, done.stderr)


@pytest.fixture
def holders(tmp_path: Path) -> dict[str, str]:
    """Places in which a token is looked for, each with another fault."""
    made = {name: tmp_path / name for name in ("open", "empty", "garbage", "secret", "pipe", "folder", "link")}
    for name in ("open", "empty", "garbage", "secret"):
        made[name].write_bytes({"empty": b"", "garbage": b"\xff\x00\xfe" * 100}.get(name, TOKEN.encode()))
        made[name].chmod(0o600)
    made["open"].chmod(0o644)
    os.mkfifo(made["pipe"], 0o600)
    made["folder"].mkdir(mode=0o700)
    made["link"].symlink_to(made["open"])
    return {name: str(path) for name, path in made.items()} | {"missing": str(tmp_path / "missing")}


@pytest.mark.parametrize("command", [["status", "--address", NOBODY], ["worker", "--join", NOBODY], ["controller"]])
@pytest.mark.parametrize(
    ("holder", "said"),
    [
        ("missing", "must be readable.*No such file"),
        ("open", "only its owner.*mode 644.*chmod 600"),
        ("link", "only its owner.*mode 644.*chmod 600"),
        ("empty", "got nothing"),
        ("garbage", "a join token must be pw1-"),
        ("pipe", "must be a plain file.*a pipe.*--token -"),
        ("folder", "must be a plain file.*a directory"),
    ],
)
def test_a_token_file_that_cannot_be_used(command: list[str], holder: str, said: str, holders: dict[str, str]) -> None:
    _check(_run(*command, "--token-file", holders[holder]), 2, said)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that somebody else owns")
def test_a_token_file_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "token"
    core.write_token(path, TOKEN)
    os.chown(path, 12345, 12345)
    _check(_run("worker", "--join", NOBODY, "--token-file", str(path)), 2, "owned by this user or root.*12345")


def test_a_token_of_another_role() -> None:
    client, worker = (launch.role_token(TOKEN, role) for role in ("client", "worker"))
    _check(
        _run("worker", "--join", NOBODY, PTPATHWAYS_TOKEN=client), 2, "a worker needs.*got a client's.*--role worker"
    )
    _check(_run("status", "--address", NOBODY, PTPATHWAYS_TOKEN=worker), 2, "a client needs.*got a worker's")
    _check(_run("controller", PTPATHWAYS_TOKEN=worker), 2, "a controller needs.*cluster's.*got a worker's")
    _check(_run("token", "--role", "worker", PTPATHWAYS_TOKEN=client), 2, "cluster's join token.*got another token")
    _check(_run("token", "--role", "worker"), 2, "cluster's join token.*got none; give it with --token-file")
    _check(_run("token", "--role", "king"), 2, "invalid choice: 'king'")
    _check(_run("status", "--address", NOBODY, PTPATHWAYS_TOKEN="pw1-12"), 2, "PTPATHWAYS_TOKEN: a join token must be")
    _check(_run("status", "--address", NOBODY, "--token", "-"), 2, "on standard input, got nothing")


def test_standard_input_without_a_token() -> None:
    for stdin in (b"\xff\xfe\n", None):  # what is no text; closed
        done = subprocess.run(
            [
                "sh",
                "-c",
                '"$@"' + (" <&-" if stdin is None else ""),
                "-",
                *COMMAND,
                "token",
                "--role",
                "worker",
                "--token",
                "-",
            ],
            input=stdin,
            capture_output=True,
            timeout=WAIT_S,
            env=_environment(),
        )
        assert done.returncode == 2 and b"Traceback" not in done.stderr, done.stderr
        assert b"a join token" in done.stderr


def test_a_port_in_use_and_addresses_that_are_none(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        _check(_run("controller", "--bind", address), 1, f"{address}: another process listens")
    for bind in ("tcp://127.0.0.1:x", "tcp://nowhere.invalid:1", "tcp://192.0.2.1:7450", "ipc:///no/such/folder/x"):
        done = _run("controller", "--bind", bind)
        _check(done, done.returncode, re.escape(bind))
        assert done.returncode in (1, 2)
    for bind in ("tcp://127.0.0.1:99999", "127.0.0.1:0", "foo", "127.0.0.1:-1"):
        _check(_run("controller", "--bind", bind), 2, "with a port from 1 to 65535")
    for arguments in (["status", "--address", "nowhere"], ["worker", "--join", "host:70000"]):
        _check(_run(*arguments), 2, "HOST:PORT")
    for host in ("h" * 64, "a..b"):  # which are no host names
        for arguments in (["status", "--address", f"{host}:7450"], ["token", "--rotate", f"{host}:7450"]):
            done = _run(*arguments, PTPATHWAYS_TOKEN=TOKEN)
            _check(done, done.returncode, re.escape(host))
            assert done.returncode in (1, 2)
    for place in ("ipc://" + "x" * 300, "ipc:///no/such/folder/x", "tcp://nowhere.invalid:1"):
        done = _run("status", "--address", place, PTPATHWAYS_TOKEN=TOKEN)
        _check(done, done.returncode, re.escape(place[:40]))
        assert done.returncode in (1, 2)
    for option in (["--data-endpoint", "nonsense"], ["--data-endpoint", "tcp://192.0.2.1:*"]):
        _check(_run("worker", "--join", NOBODY, *option, PTPATHWAYS_TOKEN=TOKEN), 1, re.escape(option[1]))
    _check(_run("worker", "--join", NOBODY, "--root", str(tmp_path / "missing"), PTPATHWAYS_TOKEN=TOKEN), 1, "missing")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["worker", "--join", NOBODY, "--devices", "0"], "--devices must be from 1"),
        (["worker", "--join", NOBODY, "--devices", "-1"], "--devices must be from 1"),
        (["worker", "--join", NOBODY, "--name", "x" * 1000], "--name must be .* 1000 characters"),
        (["worker", "--join", NOBODY, "--name", "a\nb"], "--name must be"),
        (["worker", "--join", NOBODY, "--memory-limit=-1GiB"], "KiB, MiB, GiB"),
        (["status", "--address", NOBODY, "--watch", "nan"], "--watch must be"),
        (["status", "--address", NOBODY, "--watch", "inf"], "--watch must be"),
        (["controller", "--lease", "nan"], "--lease must be"),
        (["replay", "/no/such/file"], "must be a file, and there is none at /no/such/file"),
        (["replay", "/"], "directory"),
        (["run", "/"], "the script must be a file"),
        (["token", "--out", "/no/such/folder/token"], "--out must be a file"),
        (["bench", "no-such-bench"], "workload must be one of"),
        (["bench", "dispatch", "--repeats", "0"], "repeats"),
        (["no-such-command"], "invalid choice"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    done = _run(*arguments, PTPATHWAYS_TOKEN=TOKEN)
    _check(done, done.returncode, said)
    assert done.returncode in (1, 2)


def test_nobody_reads_the_output() -> None:
    for arguments in (["token"], ["version"], ["doctor", "--json"], ["bench"]):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                [*COMMAND, *arguments],
                stdout=writer,
                stderr=subprocess.PIPE,
                text=True,
                timeout=WAIT_S,
                env=_environment(),
            )
        finally:
            os.close(writer)
        assert done.returncode == 1, (arguments, done.returncode, done.stderr)
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
        assert not done.stderr or "standard output must stay open" in done.stderr


@pytest.fixture(autouse=True)
def _no_controller_of_this_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No token of another test's controller is found."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    yield


def test_a_benchmark_refuses_files_that_it_could_not_write_before_it_measures(tmp_path: Path) -> None:
    _check(_run("bench", "dispatch", "--plot", str(tmp_path / "x.doc")), 2, "--plot must end in .png, .svg, .pdf")
    for place in (tmp_path, tmp_path / "missing" / "x.json"):
        _check(_run("bench", "dispatch", "--json", str(place)), 2, "--json must be a file that can be written")
