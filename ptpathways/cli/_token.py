"""``ptpathways token``, and the options by which other commands are given one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ptpathways import core, launch


def main(arguments: argparse.Namespace) -> int:
    """Makes a token, or one of a role out of the cluster's, and prints it or writes it to a new file.

    Raises:
        InvalidOption: the file is there already, or cannot be written; or there is no cluster's token to make one of.
    """
    given = token_of(arguments)
    if arguments.role:
        token = launch.role_token(given, arguments.role)
    elif arguments.token or arguments.token_file:
        raise core.InvalidOption("--token and --token-file are what a token for --role is made of, got no --role")
    else:
        token = core.make_token()
    if not arguments.out:
        print(token)
        return 0
    try:
        core.write_token(Path(arguments.out), token)
    except OSError as error:
        raise core.InvalidOption(f"--out must be a file that can be made, got {arguments.out!r}: {error}") from None
    return 0


def token_of(arguments: argparse.Namespace, controller: str = "") -> str:
    """The token of ``--token``, ``--token-file`` or PTPATHWAYS_TOKEN, or that of this user's controller at an endpoint.

    Empty when there is none.

    Raises:
        InvalidOption: it is no token, or others may read its file.
    """
    if getattr(arguments, "insecure", False):
        return core.INSECURE
    if arguments.token == "-":
        return core.read_token("-")
    if arguments.token:
        return core.check_token(arguments.token)
    if arguments.token_file:
        return core.read_token(arguments.token_file)
    return core.check_token(os.environ.get(core.TOKEN_VARIABLE, "")) or (launch.find(controller) if controller else "")
