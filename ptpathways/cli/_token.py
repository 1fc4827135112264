"""``ptpathways token``, and the options by which other commands are given one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ptpathways import core


def main(arguments: argparse.Namespace) -> int:
    """Makes a token and prints it, or writes it to a new file.

    Raises:
        InvalidOption: the file is there already, or cannot be written.
    """
    token = core.make_token()
    if not arguments.out:
        print(token)
        return 0
    try:
        core.write_token(Path(arguments.out), token)
    except OSError as error:
        raise core.InvalidOption(f"--out must be a file that can be made, got {arguments.out!r}: {error}") from None
    return 0


def token_of(arguments: argparse.Namespace) -> str:
    """The token of ``--token``, ``--token-file`` or PTPATHWAYS_TOKEN; empty when none is given.

    Raises:
        InvalidOption: it is no token, or others may read its file.
    """
    if arguments.token == "-":
        return core.read_token("-")
    if arguments.token:
        return core.check_token(arguments.token)
    if arguments.token_file:
        return core.read_token(arguments.token_file)
    return core.check_token(os.environ.get(core.TOKEN_VARIABLE, ""))
