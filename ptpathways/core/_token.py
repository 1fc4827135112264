"""Join tokens: the one secret of a cluster, from which the keys of all its members are made."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
import zlib
from pathlib import Path

from ptpathways.core._errors import InvalidOption

TOKEN_VARIABLE = "PTPATHWAYS_TOKEN"
INSECURE = "insecure"
"""In place of a token: no keys, and whoever reaches the controller on this machine may run code. For experiments."""
_PREFIX = "pw1-"
_SECRET_BYTES = 32
_ROLE_BYTES = 3 * 32
_FORM = re.compile(rf"pw1-[0-9a-f]{{{2 * _SECRET_BYTES + 8}}}|pw1[wc]-[0-9a-f]{{{2 * _ROLE_BYTES + 8}}}")


def make_token() -> str:
    """A new token: ``pw1-``, 64 hexadecimal digits of a random secret and 8 that find typing errors."""
    secret = secrets.token_bytes(_SECRET_BYTES)
    return f"{_PREFIX}{secret.hex()}{zlib.crc32(secret):08x}"


def check_token(text: str) -> str:
    """``text`` as a token of a cluster or role, or ``INSECURE``, without the white space around it; empty: no token.

    Raises:
        InvalidOption: it is none, or was mistyped. The message does not repeat the text, for it may end up in a log.
    """
    token = text.strip()
    if token in ("", INSECURE):
        return token
    if not _FORM.fullmatch(token):
        raise InvalidOption(
            f"a join token must be {_PREFIX}, or pw1w- or pw1c-, and digits 0-9a-f, as `ptpathways token` prints it; "
            f"got another text of {len(token)} characters"
        )
    digits = token.partition("-")[2]
    if zlib.crc32(bytes.fromhex(digits[:-8])) != int(digits[-8:], 16):
        raise InvalidOption("a digit of the join token is wrong or missing; copy it again from `ptpathways token`")
    return token


def check_role(token: str, role: str) -> str:
    """``token``, if one can be ``role`` (controller, worker, client) with it; none and ``INSECURE`` are for every role.

    Raises:
        InvalidOption: it is a token of another role.
    """
    own = {"worker": "pw1w-", "client": "pw1c-"}.get(role, _PREFIX)
    if token in ("", INSECURE) or token.startswith((_PREFIX, own)):
        return token
    whose = "a client's" if token.startswith("pw1c-") else "a worker's"
    needed = f"the cluster's join token ({_PREFIX}...)"
    if own == _PREFIX:
        raise InvalidOption(f"a {role} needs {needed}, got {whose} token; take that which `ptpathways token` made")
    raise InvalidOption(
        f"a {role} needs {needed} or a {role}'s ({own}...), got {whose} token; make one with "
        f"`ptpathways token --role {role}`"
    )


def read_token(path: str) -> str:
    """The token in a file, or on standard input when ``path`` is ``"-"``.

    Raises:
        InvalidOption: there is no such file, others may read it, or it has no token.
    """
    text = _first_line_of_stdin() if path == "-" else _read_private(path)
    token = check_token(text)
    if not token:
        place = "on standard input" if path == "-" else f"in {path!r}"
        raise InvalidOption(f"expected a join token {place}, got nothing; see `ptpathways token`")
    return token


def _first_line_of_stdin() -> str:
    try:
        if sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed")
        return sys.stdin.readline()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "bytes that are no text"
        raise InvalidOption(f"expected a join token on standard input, got: {why}") from None


def _read_private(path: str) -> str:
    """What a file holds that nobody else can read or could have written; links are followed."""
    try:
        # Without waiting for the other end of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidOption(f"the token file must be readable, got {path!r}: {error.strerror}") from None
    except ValueError:
        raise InvalidOption(f"the token file must be a path, got {path!r}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidOption(
                f"a token file must be a plain file, got {path!r}, which is {_kind_of(status.st_mode)}; "
                "give what comes out of a pipe to standard input and say --token -"
            )
        if status.st_uid not in (os.geteuid(), 0):
            raise InvalidOption(
                f"a token file must be owned by this user or root, got {path!r}, which is user {status.st_uid}'s; "
                "copy it to a file of your own with mode 600"
            )
        if status.st_mode & 0o077:
            raise InvalidOption(
                f"only its owner may be able to read a token file, got {path!r} with mode {status.st_mode & 0o777:o}; "
                f"run chmod 600 {path}"
            )
        return os.read(descriptor, 4096).decode("ascii", errors="replace")
    except OSError as error:
        raise InvalidOption(f"the token file must be readable, got {path!r}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _kind_of(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(mode), "none")


def write_token(path: Path, token: str) -> None:
    """Writes a new file that only this user may read.

    Raises:
        FileExistsError: there is one; whose it is cannot be known.
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
