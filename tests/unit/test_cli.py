"""The command line: every flag is documented, and wrong arguments are answered in one line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ptpathways import core
from ptpathways.cli import build_parser, main

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
    ],
)
def test_wrong_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_plugin_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--join", "127.0.0.1:1", "--plugin", "/no/such/plugin.so"]) == 1
    assert "/no/such/plugin.so" in capsys.readouterr().err
