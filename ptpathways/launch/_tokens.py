"""Join tokens of the clusters that this user runs on this machine, found by the controller's address, and role tokens.

A controller writes its cluster's token to a file of mode 600 in a folder of mode 700 that is this user's. Workers,
``ptpathways status`` and programs of the same user look there, so that nobody has to type it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path

from ptpathways import core, native
from ptpathways.launch import _addresses

_CLUSTER = "pw1-"
_ROLES = {"worker": "pw1w-", "client": "pw1c-"}
ROLES = tuple(_ROLES)


def role_token(token: str, role: str) -> str:
    """The token with which one can join as ``role`` and as nothing else, made of the cluster's.

    Raises:
        InvalidOption: ``token`` is not a cluster's.
    """
    if not token.startswith(_CLUSTER):
        raise core.InvalidOption(f"a {role}'s token is made of the cluster's join token ({_CLUSTER}...), got another")
    digits = native.keys_of_role(token, role)
    return f"{_ROLES[role]}{digits}{zlib.crc32(bytes.fromhex(digits)):08x}"


def worker_token(token: str) -> str:
    """What a worker's process is given of ``token``: no more than a worker needs."""
    return role_token(token, "worker") if token.startswith(_CLUSTER) else token


def keep(endpoints: Sequence[str], token: str) -> list[Path]:
    """Writes the token where ``find`` looks for it, for each endpoint at which a controller listens; the files.

    Raises:
        InvalidOption: there is no folder that only this user can read.
    """
    folder = _own_folder()
    files = []
    for bound in endpoints:
        path = folder / _name(bound)
        fresh = folder / f".{secrets.token_hex(8)}"
        core.write_token(fresh, token)
        fresh.replace(path)  # of a controller that listened there before, and is gone
        files.append(path)
    return files


def forget(files: Sequence[Path], token: str) -> None:
    """Removes what ``keep`` wrote, unless another controller listens there by now."""
    for path in files:
        with contextlib.suppress(OSError, core.InvalidOption):
            if _read(path) == token:
                path.unlink()


def find(address: str) -> str:
    """The token of the controller that this user runs at ``address`` on this machine; empty if there is none such.

    Raises:
        InvalidOption: there is a file, but others may read or could have written it.
    """
    names = _names(address)
    for folder in _folders():
        if not _is_own(folder):
            continue
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                return _read(folder / name)
    return ""


def _folders() -> list[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    found = [Path("/tmp") / f"ptpathways-{os.geteuid()}"]
    if runtime and _is_own(Path(runtime)):
        found.insert(0, Path(runtime) / "ptpathways")
    return found


def _own_folder() -> Path:
    folder = _folders()[0]
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_own(folder):
        raise core.InvalidOption(
            f"the folder for join tokens must be this user's and have mode 700, got {folder}; remove it, or set "
            "XDG_RUNTIME_DIR to a folder of mode 700"
        )
    return folder


def _is_own(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise core.InvalidOption(f"a token file must be a plain file, got {path}: {error.strerror}") from None
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise core.InvalidOption(f"a token file must be this user's and have mode 600, got {path}; remove it")
        return core.check_token(file.read(4096))


def _name(bound: str) -> str:
    if not bound.startswith("tcp://"):
        return f"ipc-{hashlib.sha256(bound.encode()).hexdigest()[:32]}.token"
    host = _addresses.host_of(bound)
    place = "any" if _addresses.is_wildcard(host) else host.replace(":", "_")
    return f"tcp-{place}-{_addresses.port_of(bound)}.token"


def _names(address: str) -> list[str]:
    """Under which the token of a controller that is called by ``address`` may be."""
    host = _addresses.host_of(address)
    if host == "localhost":
        address = _addresses.with_host(address, "127.0.0.1")
    names = [_name(address)]
    if host and (_addresses.stays_here(address) or host == socket.gethostname() or host in _addresses.addresses()):
        names.append(_name(_addresses.with_host(address, "0.0.0.0")))
    return names
