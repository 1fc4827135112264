"""Join tokens and addresses: what is accepted, what is told, and that a secret never is."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ptpathways import core, launch
from ptpathways.cli import main
from ptpathways.launch import _addresses


def test_tokens_differ_and_are_accepted() -> None:
    tokens = {core.make_token() for _ in range(20)}
    assert len(tokens) == 20
    for token in tokens:
        assert core.check_token(f" {token}\n") == token
    assert core.check_token("  ") == ""


@pytest.mark.parametrize("digit", [4, 5, 40, 67, 68, 75])
def test_a_mistyped_digit_is_told_but_not_the_token(digit: int) -> None:
    token = core.make_token()
    wrong = token[:digit] + ("0" if token[digit] != "0" else "1") + token[digit + 1 :]
    with pytest.raises(core.InvalidOption, match="digit of the join token") as caught:
        core.check_token(wrong)
    assert wrong[4:20] not in str(caught.value)


@pytest.mark.parametrize("change", [str.upper, lambda token: token[:-1], lambda token: "x" + token])
def test_another_form_is_refused(change: object) -> None:
    assert callable(change)
    with pytest.raises(core.InvalidOption, match="pw1-"):
        core.check_token(change(core.make_token()))


def test_a_token_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path, token = tmp_path / "token", core.make_token()
    core.write_token(path, token)
    assert path.stat().st_mode & 0o777 == 0o600
    assert core.read_token(str(path)) == token
    with pytest.raises(FileExistsError):
        core.write_token(path, core.make_token())
    path.chmod(0o640)
    with pytest.raises(core.InvalidOption, match="chmod 600"):
        core.read_token(str(path))
    with pytest.raises(core.InvalidOption, match="must be readable"):
        core.read_token(str(tmp_path / "missing"))


def test_the_file_of_a_controller_that_was_killed_goes_when_another_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    token = core.make_token()
    script = (
        "import sys; from ptpathways import launch; "
        f"launch.keep([sys.argv[1]], {token!r}); print(flush=True); sys.stdin.read()"
    )
    addresses = [f"tcp://127.0.0.1:{port}" for port in (7001, 7002)]
    processes = [
        subprocess.Popen([sys.executable, "-c", script, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for address in addresses
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline()
    assert [launch.find(address) for address in addresses] == [token, token]
    processes[0].kill()
    processes[0].wait()
    kept = launch.keep(["tcp://127.0.0.1:7003"], token)
    assert [launch.find(address) for address in addresses] == ["", token]
    launch.forget(kept, token)
    processes[1].communicate(timeout=30)


def test_a_runtime_folder_that_others_may_enter_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, mode in (("open", 0o755), ("missing", 0)):
        folder = tmp_path / name
        if mode:
            folder.mkdir(mode=mode)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        for _ in range(2):
            assert launch.find("tcp://127.0.0.1:1") == ""
        said = capsys.readouterr().err
        assert said.count("XDG_RUNTIME_DIR must be a folder of this user with mode 700") == 1 and str(folder) in said
        assert f"/tmp/ptpathways-{os.geteuid()}" in said


def test_a_token_is_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    token = core.make_token()
    monkeypatch.setattr("sys.stdin", io.StringIO(token + "\n"))
    assert core.read_token("-") == token


def test_the_command_makes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token"]) == 0
    assert core.check_token(capsys.readouterr().out)
    path = tmp_path / "token"
    assert main(["token", "--out", str(path)]) == 0
    assert core.read_token(str(path))
    assert main(["token", "--out", str(path)]) == 2
    assert capsys.readouterr().out == ""


def test_options_check_the_token_and_do_not_show_it() -> None:
    token = core.make_token()
    options = core.Options.from_environment({core.TOKEN_VARIABLE: f"{token}\n"})
    assert options.token == token and token not in repr(options)
    with pytest.raises(core.InvalidOption, match="join token"):
        core.Options(token="secret")
    with pytest.raises(core.InvalidOption, match="remote_hosts needs bind"):
        core.Options(remote_hosts=1)
    with pytest.raises(core.InvalidOption, match="hosts must be an integer from 1"):
        core.Options(hosts=0)
    assert core.Options(hosts=0, remote_hosts=2, bind="tcp://0.0.0.0:7450").embedded


def test_a_worker_gets_the_token_by_its_environment_only() -> None:
    from ptpathways import platforms

    token = core.make_token()
    options = launch.WorkerOptions("tcp://127.0.0.1:1", "w", platforms.Plugin("cpu", "/x.so", "option"), token=token)
    assert not [argument for argument in launch.worker_command(options) if token in argument]
    assert launch.worker_environment(options)[core.TOKEN_VARIABLE] == launch.role_token(token, "worker")
    assert token not in repr(options)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("10.0.0.1:7450", "tcp://10.0.0.1:7450"),
        ("tcp://10.0.0.1:7450", "tcp://10.0.0.1:7450"),
        ("[fd00::1]:7450", "tcp://[fd00::1]:7450"),
        ("ipc:///run/x", "ipc:///run/x"),
    ],
)
def test_addresses_as_typed(typed: str, wanted: str) -> None:
    assert launch.endpoint(typed) == wanted


@pytest.mark.parametrize("typed", ["fd00::1:7450", "nowhere", ":7450", "host:", "host:0", "host:70000", "tcp://host"])
def test_what_is_no_address(typed: str) -> None:
    with pytest.raises(core.InvalidOption, match="HOST:PORT"):
        launch.endpoint(typed)


def test_where_a_worker_takes_bulk_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_addresses, "local_address_towards", lambda host: "10.1.1.1" if host == "10.0.0.1" else "::5")
    assert launch.data_endpoint("ipc:///run/x") == ("", "")
    assert launch.data_endpoint("tcp://127.0.0.1:1") == ("", "")
    assert launch.data_endpoint("tcp://10.0.0.1:1") == ("tcp://10.1.1.1:*", "")
    assert launch.data_endpoint("tcp://six:1") == ("tcp://[::5]:*", "")
    assert launch.data_endpoint("tcp://10.0.0.1:1", "tcp://0.0.0.0:9") == ("tcp://0.0.0.0:9", "10.1.1.1")
    assert launch.data_endpoint("tcp://10.0.0.1:1", "tcp://0.0.0.0:9", "nat") == ("tcp://0.0.0.0:9", "nat")
    assert launch.data_endpoint("tcp://10.0.0.1:1", "tcp://10.2.2.2:9") == ("tcp://10.2.2.2:9", "")


def test_a_wildcard_is_told_as_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_addresses, "addresses", lambda: ["10.0.0.1", "fd00::1"])
    assert launch.reachable("tcp://0.0.0.0:7450") == ["tcp://10.0.0.1:7450"]
    assert launch.reachable("tcp://[::]:7450") == ["tcp://10.0.0.1:7450", "tcp://[fd00::1]:7450"]
    assert launch.reachable("tcp://0.0.0.0:7450", "gate") == ["tcp://gate:7450"]
    assert launch.reachable("tcp://10.9.9.9:7450") == ["tcp://10.9.9.9:7450"]
    assert launch.reachable("ipc:///run/x") == ["ipc:///run/x"]


def test_this_machine_knows_its_addresses() -> None:
    assert not [address for address in _addresses.addresses() if address.startswith("127.") or address == "::1"]
    assert _addresses.local_address_towards("127.0.0.1") == "127.0.0.1"
    with pytest.raises(core.ConnectionFailed, match="no-such-host"):
        _addresses.local_address_towards("no-such-host.invalid")


def test_the_controller_of_this_process_is_known_by_its_address() -> None:
    from ptpathways.launch import _embedded

    _embedded.announce(["tcp://10.0.0.1:7450"])
    try:
        assert launch.serves("tcp://10.0.0.1:7450") and not launch.serves("") and not launch.serves("tcp://10.0.0.1:1")
        child = os.fork()
        if child == 0:
            os._exit(1 if launch.serves("tcp://10.0.0.1:7450") else 0)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        _embedded.announce([])
