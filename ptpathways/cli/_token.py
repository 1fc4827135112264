"""``ptpathways token``, and the options by which other commands are given one."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from ptpathways import core, launch, native

_ANSWER_S = 10.0
_LOOKS_S = 0.1
_NAME = "ptpathways token"


def main(arguments: argparse.Namespace) -> int:
    """Makes a token, or one of a role out of the cluster's, and prints it or writes it to a new file; or changes the
    token of a cluster that runs.

    Raises:
        InvalidOption: the file is there already, or cannot be written; or there is no cluster's token to make one of.
        ConnectionFailed: no controller of this user is at the address to be rotated, or it does not change its token.
    """
    if arguments.rotate is not None:
        if arguments.role or arguments.out:
            raise core.InvalidOption("--rotate goes with neither --role nor --out; see --help")
        return _rotate(launch.endpoint(arguments.rotate))
    if arguments.role:
        token = launch.role_token(_given(arguments), arguments.role)
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


def _rotate(address: str) -> int:
    """Asks this user's controller at ``address``, on this machine, for another token, and waits until it has it."""
    former = launch.find(address)
    if not former:
        raise core.ConnectionFailed(
            "--rotate needs a controller with a join token that this user runs on this machine, got none at "
            f"{address}; on the controller's machine, as its user, send SIGUSR1 to `ptpathways controller`"
        )
    with launch.asking(address) as refused:
        with launch.connect(address, _NAME, _ANSWER_S, token=former) as session, native.translated("connecting"):
            status = json.loads(session.status_json(_ANSWER_S))
        pid = int(status["controller"]["standby"] or status["controller"]["pid"])
        if b"controller" not in _command_of(pid).split(b"\0"):
            raise core.ConnectionFailed(
                f"--rotate needs a `ptpathways controller`, and process {pid}, which serves at {address}, is none that "
                "is seen here: the cluster of a program keeps its join token, and in another container SIGUSR1 does "
                "the same"
            )
        os.kill(pid, signal.SIGUSR1)
        print("waiting until all members know the next join token ...", file=sys.stderr, flush=True)
        while launch.find(address) == former:
            if why := refused():
                raise core.ConnectionFailed(f"the join token of the controller at {address} stays as it is: {why}")
            if not _command_of(pid):
                raise core.ConnectionFailed(
                    f"process {pid} of the controller at {address}, which was asked, ended before the join token "
                    "changed; if the cluster goes on, ask again"
                )
            time.sleep(_LOOKS_S)
    if not launch.find(address):
        raise core.ConnectionFailed(f"the controller at {address} has ended")
    print("changed; programs of this user on this machine find the new one by themselves", file=sys.stderr, flush=True)
    return 0


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def token_of(arguments: argparse.Namespace, role: str, controller: str = "", timeout_s: float = 0.0) -> str:
    """The token of ``--token``, ``--token-file`` or PTPATHWAYS_TOKEN, or that of this user's controller at an endpoint.

    Empty when there is none. A controller that begins just now, or changes its token, is waited for so long.

    Raises:
        InvalidOption: it is no token, or of another role than ``role``; or others may read its file.
    """
    return core.check_role(_given(arguments) or (launch.await_token(controller, timeout_s) if controller else ""), role)


def _given(arguments: argparse.Namespace) -> str:
    if getattr(arguments, "insecure", False):
        return core.INSECURE
    if arguments.token == "-":
        return core.read_token("-")
    if arguments.token:
        return core.check_token(arguments.token)
    if arguments.token_file:
        return core.read_token(arguments.token_file)
    try:
        return core.check_token(os.environ.get(core.TOKEN_VARIABLE, ""))
    except core.InvalidOption as error:
        raise core.InvalidOption(f"environment variable {core.TOKEN_VARIABLE}: {error}") from None
