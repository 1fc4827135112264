"""The command line: every flag is documented, and wrong arguments are answered in one line."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest
from rich.console import Console

from ptpathways import core
from ptpathways.cli import build_parser, main
from ptpathways.cli._status import print_status

DOCUMENTATION = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def _flags(parser: argparse.ArgumentParser) -> set[str]:
    flags: set[str] = set()
    for action in parser._actions:
        flags.update(option for option in action.option_strings if option.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                assert f"## `ptpathways {name}" in DOCUMENTATION, f"docs/cli.md has no section on {name}"
                flags |= _flags(command)
    return flags - {"--help"}


def test_every_flag_is_documented() -> None:
    missing = {flag for flag in _flags(build_parser()) if f"`{flag}" not in DOCUMENTATION}
    assert not missing, f"docs/cli.md does not mention {missing}"


def test_every_environment_variable_is_documented() -> None:
    assert not [variable.name for variable in core.ENVIRONMENT if f"`{variable.name}`" not in DOCUMENTATION]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.strip() == core.__version__


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "no_such_script.py"], "no_such_script.py"),
        (["run", "--hosts", "0", __file__], "hosts must be an integer from 1"),
        (["run", "--platform", "abacus", __file__], "cpu, cuda, tpu"),
        (["run", "--memory-per-device", "lots", __file__], "KiB, MiB, GiB"),
        (["worker", "--join", "nowhere"], "HOST:PORT"),
        (["controller", "--queue-ms", "0"], "--queue-ms must be above 0"),
        (["status", "--address", "nowhere"], "HOST:PORT"),
        (["status", "--address", "127.0.0.1:1", "--watch", "0"], "--watch must be a positive number"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_plugin_that_is_not_there_is_said_before_a_token_is_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Which may take half a minute, while a controller begins."""
    given = ["worker", "--join", "127.0.0.1:1", "--plugin", "/no/such/plugin.so"]
    assert main([*given, "--token-file", "/no/such/token"]) == 1
    assert "/no/such/plugin.so" in capsys.readouterr().err


def test_status_needs_an_address(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("PTPATHWAYS_ADDRESS", raising=False)
    assert main(["status"]) == 2
    assert "--address or PTPATHWAYS_ADDRESS" in capsys.readouterr().err


def test_the_tables_of_status_show_who_waits_and_who_is_lost() -> None:
    console = Console(width=160, file=io.StringIO())
    host = {
        "name": "h0", "platform": "cpu", "island": "a", "first_device": 0, "devices": 2, "device_slices": [1, 0],
        "live_buffers": 3, "live_bytes": 3 << 20, "memory_limit_bytes": 1 << 30, "staged_bytes": 5 << 10,
        "alive": True, "lost": "", "silent": False, "silent_ms": 100, "unfinished": None,
    }  # fmt: skip
    overdue = {
        "device": 1, "computations": 2, "still_ms": 42_300, "first": "function 'f'", "client": "train.py",
        "sent_ms": 43_000, "engine_still_ms": 40_000, "overdue": True,
    }  # fmt: skip
    client = {
        "name": "train.py", "pid": 7, "weight": 2.0, "priority": 0, "gangs_submitted": 9, "gangs_finished": 4,
        "gangs_in_flight": 2, "waiting_for": "compiling step", "waiting_messages": 3, "waited_seconds": 0.25,
        "device_seconds": 1.5, "buffer_bytes": 7 << 20, "connected_ms": 12_000,
    }  # fmt: skip
    status = {
        "cluster": "c", "build": "0.1.0", "policy": "fair", "queue_ms": 20.0, "functions": 1, "programs": 0,
        "hosts": [
            {**host, "unfinished": {**overdue, "overdue": False}},
            {**host, "name": "h1", "alive": False, "lost": "host 'h1' is lost: killed"},
            {**host, "name": "h2", "silent": True, "silent_ms": 5200},
            {**host, "name": "h3", "unfinished": overdue},
        ],
        "controller": {"pid": 31, "standby": 30, "takeovers": 2},
        "islands": [
            {"name": "a", "hosts": 1, "devices": 2, "gangs_in_flight": 2, "gangs_waiting": 1, "gangs_ordered": 6,
             "queued_ms": 12.34},
        ],
        "clients": [client],
    }  # fmt: skip
    print_status(status, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for text in (
        "policy fair", "3.0 MiB of 1.0 GiB", "host 'h1' is lost: killed", "compiling step (and 2 messages behind)",
        "12.3", "5.0 KiB", "7.0 MiB", "train.py (pid 7)", "process 31, standby: process 30", "went on 2 times",
        "silent for 5 s", "nothing finished for 42 s", "host 'h3' has finished nothing on device 1 for 42.3 s",
        "with 2 computations to do", "function 'f' of client 'train.py', sent 43.0 s ago", "nor computed for 40.0 s",
    ):  # fmt: skip
        assert text in " ".join(shown.split()), shown
    assert "host 'h0'" not in shown
