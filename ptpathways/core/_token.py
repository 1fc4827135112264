"""Join tokens: the one secret of a cluster, from which the keys of all its members are made."""

from __future__ import annotations

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


def read_token(path: str) -> str:
    """The token in a file, or on standard input when ``path`` is ``"-"``.

    Raises:
        InvalidOption: there is no such file, others may read it, or it has no token.
    """
    if path == "-":
        text = sys.stdin.readline()
    else:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(4096)
        except OSError as error:
            raise InvalidOption(f"the token file must be readable, got {path!r}: {error.strerror}") from None
        if stat.S_ISREG(mode) and mode & 0o077:
            raise InvalidOption(
                f"only its owner may be able to read a token file, got {path!r} with mode {mode & 0o777:o}; "
                f"run chmod 600 {path}"
            )
    token = check_token(text)
    if not token:
        raise InvalidOption(f"the token file must hold a join token, got nothing in {path!r}; see `ptpathways token`")
    return token


def write_token(path: Path, token: str) -> None:
    """Writes a new file that only this user may read.

    Raises:
        FileExistsError: there is one; whose it is cannot be known.
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
