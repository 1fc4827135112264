"""``ptpathways controller``: what workers and clients of a standing cluster join.

There are two processes, unless ``--no-standby`` is given. The one that was started is the standby; the controller that
serves is its child, and is replaced when it is killed (``csrc/controller/standby.h``).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from ptpathways import core, launch, native
from ptpathways.cli._token import token_of
from ptpathways.cli._worker import take_descriptors
from ptpathways.launch import DEFAULT_PORT, reachable, stays_here

DEFAULT_BIND = f"tcp://127.0.0.1:{DEFAULT_PORT}"
_WARNING = (
    "ptpathways controller: WARNING: --insecure: there is no join token. Every user and program of this machine can "
    "join this cluster, and run code and read files as you."
)
_ROTATES_S = 0.1
"""How often it is looked at whether members know the next join token."""
_SHORT_S = 2.0
_SHORT_LIVES = 5
"""Controllers that are ended within so many seconds, and after how many in a row no other one is started."""


def main(arguments: argparse.Namespace) -> int:
    """Serves until SIGINT, SIGTERM or SIGHUP; SIGUSR1 has the join token changed.

    Raises:
        ConnectionFailed, InvalidOption: an endpoint cannot be bound.
    """
    if not 0 < arguments.queue_ms <= 60_000:
        raise core.InvalidOption(f"--queue-ms must be above 0 and at most 60000 ms, got {arguments.queue_ms}")
    if not 1 <= arguments.lease <= 86_400:
        raise core.InvalidOption(f"--lease must be from 1 to 86400 s, got {arguments.lease}")
    if not 0 <= arguments.overdue <= 86_400:
        raise core.InvalidOption(f"--overdue must be from 0 to 86400 s, got {arguments.overdue}")
    take_descriptors()
    ending = {signal.SIGINT, signal.SIGTERM}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        ending.add(signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, ending | {signal.SIGUSR1})  # before the controller's threads start
    token = token_of(arguments, "controller")
    made = not token
    if made:
        token = core.make_token()
    if token == core.INSECURE:
        print(_WARNING, file=sys.stderr, flush=True)
    options: dict[str, object] = {
        "bind": [_as_bind(bind) for bind in arguments.bind or [DEFAULT_BIND]],
        "token": token,
        "embedded": False,
        "policy": arguments.policy,
        "queue_ms": arguments.queue_ms,
        "lease_s": arguments.lease,
        "overdue_s": arguments.overdue,
        "log_level": arguments.log_level,
    }
    standby = None
    if not arguments.no_standby:
        with native.translated("connecting"):
            standby = native.Standby(options)
        code = _stand_by(standby, token)
        if code is not None:
            return code
    with native.translated("connecting"):
        serving = native.Controller(options) if standby is None else standby.serve()
    kept: list[Path] = []
    try:
        token = serving.token or token
        if token != core.INSECURE:
            kept = launch.keep(serving.endpoints, token)
        if standby is None or not standby.is_successor:
            for bound in serving.endpoints:
                print(f"controller of cluster {serving.cluster} at {bound}", flush=True)
            _say_how_to_join(serving.endpoints, arguments.advertise, token, made=made)
        token, number = _serve(serving, arguments, token, ending)
        serving.close(f"the controller was told to stop ({signal.Signals(number).name})")
    finally:
        serving.close("the controller ended")
        launch.forget(kept, token)
        native.clean_up_shared_memory(serving.cluster)
    return 0


def _serve(
    serving: native.Controller, arguments: argparse.Namespace, token: str, ending: set[signal.Signals]
) -> tuple[str, int]:
    """Until a signal of ``ending``; the join token by then, and the signal."""
    signals = ending | {signal.SIGUSR1}
    with contextlib.ExitStack() as mark:
        marked = False
        while True:
            rotating = serving.rotating  # also as the successor of a controller that was killed in the middle
            if serving.token not in ("", token):  # read after it: a change that has ended since is seen
                token = serving.token
                launch.keep(serving.endpoints, token)
                _say_changed(serving.endpoints, arguments, token)
            if rotating and not marked:
                mark.enter_context(launch.changing(serving.endpoints))
            elif marked and not rotating:
                mark.close()
            marked = rotating
            if rotating and not signals & signal.sigpending():
                time.sleep(
                    _ROTATES_S
                )  # not in sigtimedwait, which invents a signal if the process was stopped meanwhile
                continue
            number = signal.sigwait(signals)
            if number != signal.SIGUSR1:
                return token, number
            _rotate(serving, arguments, token)


def _rotate(serving: native.Controller, arguments: argparse.Namespace, token: str) -> None:
    """Begins to change the join token, or says on standard error why not."""
    try:
        fresh = core.read_token(arguments.token_file) if arguments.token_file else core.make_token()
        core.check_role(fresh, "controller")
        if fresh == token:
            raise core.InvalidOption(
                f"the token file must hold another join token than before, got the same in {arguments.token_file!r}; "
                "write the new one there first"
            )
        with native.translated("connecting"):
            serving.rotate(fresh, launch.role_token(fresh, "worker"), launch.role_token(fresh, "client"))
    except core.PathwaysError as error:
        launch.refuse_rotation(serving.endpoints, str(error))
        print(f"ptpathways controller: the join token stays as it is: {error}", file=sys.stderr, flush=True)
    else:
        print("ptpathways controller: the join token changes; members are told", file=sys.stderr, flush=True)


def _say_changed(endpoints: list[str], arguments: argparse.Namespace, token: str) -> None:
    print("ptpathways controller: the join token has changed", file=sys.stderr, flush=True)
    if not arguments.token_file and not all(stays_here(bound) for bound in endpoints):
        print(f"the cluster's join token from now on:\n  {token}", flush=True)


def _stand_by(standby: native.Standby, token: str) -> int | None:
    """Starts controllers, one after the other, as long as they are killed. None: this is the process of one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some parents leave it, no exit would be told of
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    short_lives = 0
    while True:
        with native.translated("connecting"):
            standby.prepare()
        sys.stdout.flush()
        sys.stderr.flush()
        begun_s = time.monotonic()
        child = os.fork()
        if child == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            return None
        code, number, why_not = standby.follow(child)
        if number == 0:
            return code
        short_lives = short_lives + 1 if time.monotonic() < begun_s + _SHORT_S else 0
        if short_lives == _SHORT_LIVES:
            why_not = f"the last {_SHORT_LIVES} did not live for {_SHORT_S:g} s each"
        said = f"ptpathways controller: process {child} was ended by {signal.Signals(number).name}"
        if why_not:
            print(f"{said}, and nothing goes on in its place: {why_not}", file=sys.stderr, flush=True)
            launch.forget(launch.token_files(standby.endpoints), standby.token or token)
            native.clean_up_shared_memory(standby.cluster)
            return 1
        print(f"{said}; its standby goes on with cluster {standby.cluster}", file=sys.stderr, flush=True)


def _as_bind(bind: str) -> str:
    """``HOST:PORT`` as an endpoint; endpoints, with ``*`` for a port too, as they are.

    Raises:
        InvalidOption: there is no such port.
    """
    if bind.startswith("ipc://"):
        return bind
    endpoint = bind if bind.startswith("tcp://") else f"tcp://{bind}"
    port = endpoint.rpartition(":")[2]
    if port != "*" and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise core.InvalidOption(f"--bind must be HOST:PORT with a port from 1 to 65535, or * for any, got {bind!r}")
    return endpoint


def _say_how_to_join(endpoints: list[str], advertise: str, token: str, *, made: bool) -> None:
    """Prints the commands for other terminals and machines. ``made``: nobody knows the token yet."""
    addresses = [address for bound in endpoints for address in reachable(bound, advertise)]
    prefix = ""
    if token == core.INSECURE:
        prefix = f"{core.TOKEN_VARIABLE}={token} "
    elif all(stays_here(bound) for bound in endpoints):
        print("programs of this user on this machine find the cluster's join token by themselves", flush=True)
    elif made:
        print(f"the cluster's join token, made for this run; whoever has it can run code here:\n  {token}", flush=True)
        prefix = f"{core.TOKEN_VARIABLE}={token} "
    else:
        print(f"members need this cluster's join token: {core.TOKEN_VARIABLE} or --token-file", flush=True)
    for address in addresses:
        print(f"  workers:  {prefix}ptpathways worker --join {address}", flush=True)
    print(f"  programs: {prefix}PTPATHWAYS_ADDRESS={addresses[0]} python train.py", flush=True)
