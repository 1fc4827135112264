"""Peers that mean harm: raw sockets which speak the wire protocol with whatever key and name they like."""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import zmq
from zmq.utils import z85

from ptpathways import core
from tests.fuzz import hostile

REJECT, WELCOME = hostile.REJECT, hostile.WELCOME
DEALER, ROUTER = zmq.DEALER, zmq.ROUTER


def keys_of(token: str, role: str) -> tuple[bytes, bytes]:
    """Public and secret key of a role (csrc/transport/keys.h)."""
    secret = bytes.fromhex(token.removeprefix("pw1-")[:64])
    text = z85.encode(hmac.new(secret, b"ptpathways " + role.encode(), hashlib.sha256).digest())
    return zmq.curve_public(text), text


def connect(
    endpoint: str,
    token: str = "",
    role: str = "client",
    *,
    server: str = "controller",
    identity: bytes = b"",
    kind: int = DEALER,
) -> zmq.Socket[bytes]:
    """A socket that shows the key of ``role``, or none without a token, and calls itself ``identity``."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
    socket.linger = 0
    socket.sndtimeo = 20_000
    socket.reconnect_ivl = -1  # who is shown the door stays out
    if identity:
        socket.routing_id = identity
    if token:
        socket.curve_publickey, socket.curve_secretkey = keys_of(token, role)
        socket.curve_serverkey = keys_of(token, server)[0]
    socket.connect(endpoint)
    return socket


@contextmanager
def listening(token: str) -> Iterator[tuple[zmq.Socket[bytes], str]]:
    """A socket that listens as a worker does, and where."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(ROUTER)
    with socket:
        socket.linger = 0
        socket.curve_server = True
        socket.curve_secretkey = keys_of(token, "worker")[1]
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        yield socket, f"tcp://127.0.0.1:{port}"


def say(socket: zmq.Socket[bytes], *frames: bytes) -> None:
    """Sends a message, unless the other end has closed the connection already, as it does to strangers."""
    with suppress(zmq.Again):
        socket.send_multipart(frames, zmq.NOBLOCK)


def hello(role: int = 1, name: str = "attacker", endpoint: str = "") -> bytes:
    """HELLO of a client (1) or worker (2) with one device; a worker says that it listens at ``endpoint``.

    Without one it names an address of its own, where nobody listens.
    """
    endpoint = endpoint or f"tcp://127.0.0.{2 + zlib.crc32(name.encode()) % 250}:9"
    if role == 1:
        return hostile.hello(core.__version__, name)
    text = hostile.text
    device = struct.pack("<I", 0) + text("cpu") + struct.pack("<qq", 0, 0)
    body = struct.pack("<B", role) + text(core.__version__) + text(name) + struct.pack("<Q", 1) + text("m")
    body += text(endpoint) + text("cpu") + text("v") + text("") + struct.pack("<I", 1) + device
    return hostile.frame(hostile.HELLO, body + struct.pack("<qdi", 0, 1.0, 0) + hostile.own_line())


def answer(socket: zmq.Socket[bytes], timeout_s: float = 10.0) -> tuple[int, bytes]:
    """The number of the next message's type and its body; 0 when nothing comes."""
    if not socket.poll(int(timeout_s * 1000)):
        return 0, b""
    head = socket.recv_multipart()[0]
    return int.from_bytes(head[6:8], "little"), head[24:]


def ask(socket: zmq.Socket[bytes], *frames: bytes, timeout_s: float = 10.0) -> tuple[int, bytes]:
    """Sends a message; the answer to it."""
    socket.send_multipart(frames)
    return answer(socket, timeout_s)


def next_of(socket: zmq.Socket[bytes], kind: int, timeout_s: float = 10.0) -> bytes | None:
    """The body of the next message of this type, if one comes in time."""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        got, body = answer(socket, left)
        if got == kind:
            return body
    return None


def text_of(body: bytes) -> str:
    """The message of a REJECT's status."""
    return body[8:].decode()


@contextmanager
def joined(endpoint: str, token: str) -> Iterator[tuple[int, bytes]]:
    """A client that has joined: its number, and its name on data connections."""
    with connect(endpoint, token) as control:
        kind, body = ask(control, hello())
        assert kind == WELCOME
        yield struct.unpack("<I", body[:4])[0], identity_in(body)


def identity_in(welcome: bytes, host: int = 0) -> bytes:
    """How a WELCOME says that its peer calls itself on data connections to a host."""
    found = re.findall(rb"(....)....((?:c/\d+|w/\w+)/\d+/[0-9a-f]{32})", welcome, re.DOTALL)
    identities: dict[int, bytes] = {int.from_bytes(number, "little"): identity for number, identity in found}
    return identities[host]


def data_key_in(welcome: bytes) -> bytes:
    """The key of 32 bytes in a worker's WELCOME, behind which are the controller's process and its space only."""
    for found in re.finditer(rb"(?=\x20\0\0\0(.{32}).{8}(....)(.*)\Z)", welcome, re.DOTALL):
        if len(found[3]) == struct.unpack("<I", found[2])[0]:
            return found[1]
    raise AssertionError("no key")


def identity_made_with(key: bytes, name: str, session: int) -> bytes:
    """A name on data connections as the controller would make it (csrc/wire/identity.cc)."""
    text = f"{name}/{session}"
    return f"{text}/{hmac.new(key, b'data connection of ' + text.encode(), hashlib.sha256).hexdigest()[:32]}".encode()
