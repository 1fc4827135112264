"""Join tokens of the clusters that this user runs on this machine, found by the controller's address, and role tokens.

A controller writes its cluster's token to a file of mode 600 in a folder of mode 700 that is this user's. Workers,
``ptpathways status`` and programs of the same user look there, so that nobody has to type it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import secrets
import socket
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
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
        got = "another token" if token else "none"
        raise core.InvalidOption(
            f"a {role}'s token is made of the cluster's join token ({_CLUSTER}...), got {got}; give it with "
            f"--token-file, --token - or {core.TOKEN_VARIABLE}"
        )
    digits = native.keys_of_role(token, role)
    return f"{_ROLES[role]}{digits}{zlib.crc32(bytes.fromhex(digits)):08x}"


def worker_token(token: str) -> str:
    """What a worker's process is given of ``token``: no more than a worker needs."""
    return role_token(token, "worker") if token.startswith(_CLUSTER) else token


def client_token(token: str) -> str:
    """As that, for a client's process."""
    return role_token(token, "client") if token.startswith(_CLUSTER) else token


def keep(endpoints: Sequence[str], token: str) -> list[Path]:
    """Writes the token where ``find`` looks for it, for each endpoint at which a controller listens; the files.

    Raises:
        InvalidOption: there is no folder that only this user can read.
    """
    _tell_of_unusable_folder(os.environ.get("XDG_RUNTIME_DIR", ""))
    files = token_files(endpoints)
    folder = _own_folder()
    for path in files:
        fresh = folder / f".{secrets.token_hex(8)}"
        core.write_token(fresh, token)
        _lock(fresh)
        fresh.replace(path)  # of a controller that listened there before, and is gone
    _remove_dead(folder)
    return files


def token_files(endpoints: Sequence[str]) -> list[Path]:
    """Where ``keep`` writes the token of a controller that listens at these.

    Raises:
        InvalidOption: there is no folder that only this user can read.
    """
    folder = _own_folder()
    return [folder / _name(bound) for bound in endpoints]


_locks: list[int] = []
"""On the files that this process has written; they end with it, however it ends."""


def _lock(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    _locks.append(descriptor)


def _remove_dead(folder: Path) -> None:
    """Removes what controllers that were killed have left: nobody holds a lock on it."""
    for path in folder.glob("*.token"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    _remove(path)
            finally:
                os.close(descriptor)


def forget(files: Sequence[Path], token: str) -> None:
    """Removes what ``keep`` wrote, unless another controller listens there by now."""
    for path in files:
        with contextlib.suppress(OSError, core.InvalidOption):
            if _read(path) == token:
                _remove(path)


def _remove(path: Path) -> None:
    path.unlink()
    for beside in (_asked(path), _changing(path)):
        beside.unlink(missing_ok=True)


def find(address: str) -> str:
    """The token of the controller that this user runs at ``address`` on this machine; empty if there is none such.

    Raises:
        InvalidOption: there is a file, but others may read or could have written it.
    """
    for path in _places(address):
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
    if _addresses.stays_here(address):  # its controller may keep the token where we do not look
        _tell_of_unusable_folder(os.environ.get("XDG_RUNTIME_DIR", ""))
    return ""


@contextlib.contextmanager
def changing(endpoints: Sequence[str]) -> Iterator[None]:
    """While the token of a controller that listens at these changes: nobody can join with what ``find`` gives."""
    with contextlib.ExitStack() as stack:
        for path in map(_changing, token_files(endpoints)):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, descriptor)
            stack.callback(path.unlink, missing_ok=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def is_changing(address: str) -> bool:
    """Whether the controller that this user runs at ``address`` on this machine changes its token just now."""
    for path in map(_changing, _places(address)):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
    return False


@contextlib.contextmanager
def asking(address: str) -> Iterator[Callable[[], str]]:
    """While this process asks the controller at ``address``, whose token it has found, for another one.

    Gives what tells why the controller refused; empty as long as it has not.

    Raises:
        ConnectionFailed: another process asks it, or it has ended.
    """
    held = next((path for path in _places(address) if path.exists()), None)
    if held is None:
        raise core.ConnectionFailed(f"the controller at {address} has ended")
    descriptor = os.open(_asked(held), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise core.ConnectionFailed(
                f"the controller at {address} must be asked by one process at a time for another join token, and one "
                "waits for it now"
            ) from None
        os.truncate(descriptor, 0)
        yield lambda: os.pread(descriptor, 4096, 0).decode(errors="replace")
    finally:
        os.close(descriptor)


def refuse_rotation(endpoints: Sequence[str], why: str) -> None:
    """Tells who asks for another join token at one of these endpoints, if anybody does, why there will be none."""
    for held in token_files(endpoints):
        with contextlib.suppress(OSError):
            descriptor = os.open(_asked(held), os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "wb") as file:
                file.write(why.encode()[:4096])


def _asked(held: Path) -> Path:
    """Locked by who asks; the controller writes there why not. It is there until the controller ends."""
    return held.with_suffix(".asked")


def _changing(held: Path) -> Path:
    """There, and locked by the controller, while the token changes."""
    return held.with_suffix(".changing")


@functools.cache
def _tell_of_unusable_folder(runtime: str) -> None:
    """Once: a folder that others may enter, or that is not there, holds no token."""
    if not runtime or _is_own(Path(runtime)):
        return
    try:
        status = os.lstat(runtime)
        got = f"mode {status.st_mode & 0o777:o}, user {status.st_uid}"
    except OSError as error:
        got = str(error.strerror)
    print(
        f"ptpathways: XDG_RUNTIME_DIR must be a folder of this user with mode 700 to hold join tokens, got {runtime!r} "
        f"({got}); {_folders()[0]} is used instead",
        file=sys.stderr,
        flush=True,
    )


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


def _places(address: str) -> Iterator[Path]:
    for folder in _folders():
        if _is_own(folder):
            yield from (folder / name for name in _names(address))


def _names(address: str) -> list[str]:
    """Under which the token of a controller that is called by ``address`` may be."""
    host = _addresses.host_of(address)
    if host == "localhost":
        address = _addresses.with_host(address, "127.0.0.1")
    names = [_name(address)]
    if host and (_addresses.stays_here(address) or host == socket.gethostname() or host in _addresses.addresses()):
        names.append(_name(_addresses.with_host(address, "0.0.0.0")))
    return names
