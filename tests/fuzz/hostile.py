"""A client that means harm: well-framed messages of every type with fields that nobody honest would send."""

from __future__ import annotations

import random
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

PROTOCOL = 13
HELLO, WELCOME, REJECT = 1, 2, 3

ADD_ONE = (
    b"module @add_one { func.func public @main(%a: tensor<f32>) -> tensor<f32> { "
    b"%c = stablehlo.constant dense<1.0> : tensor<f32> %0 = stablehlo.add %a, %c : tensor<f32> "
    b"return %0 : tensor<f32> } }"
)

FIELDS: dict[int, tuple[str, ...]] = {
    4: ("hosts", "identities"),
    5: ("u64", "u64", "u64", "bool", "u64", "u64", "bytes"),
    7: ("id", "text", "format", "text", "small", "small", "bool", "bool", "devices"),
    8: ("id", "small", "status", "types", "u64", "u64", "u64"),
    9: ("ids", "ids"),
    10: ("id", "id", "small", "small", "small", "type", "bytes"),
    11: ("id", "id", "id", "small", "devices", "arguments", "ids", "devices"),
    12: ("outcomes",),
    13: ("id", "id", "small", "small", "bool"),
    14: ("id", "status", "u64", "bytes"),
    15: ("small", "ids"),
    16: ("id", "small", "small", "id", "small", "type"),
    17: ("id", "small", "small", "type"),
    18: ("id", "status"),
    19: ("small", "text"),
    20: ("id", "u64", "u64", "u64", "segment", "u64", "u64", "status"),
    21: ("id", "u64", "status"),
    22: ("id", "query", "id", "small"),
    23: ("id", "status", "text", "properties"),
    24: ("small", "u64"),
    25: ("text", "text", "u64", "u64", "u64", "u64", "bool"),
    28: ("id", "id", "id", "small", "id", "arguments", "ids", "devices"),
    29: ("id", "small", "text", "text", "u64", "small"),
    31: ("ids",),
    32: ("ids",),
    33: ("ids",),
    42: ("id", "small", "text", "u64", "bool", "text", "ids"),
    43: ("id", "small", "ids", "ids"),
    44: ("id", "small", "status", "u64", "u64"),
    39: ("text", "text", "u64", "text", "small", "text", "text", "u64"),
    40: ("u64", "bool", "text", "bytes", "u64"),
    41: ("u64", "status", "small", "text"),
    50: ("u64", "u64", "bool"),
    51: ("small", "id", "status"),
}
"""Kinds of the fields of each message type, by its number, in order (csrc/wire/bodies.h)."""


OTHERS = (2, 3, 6, 26, 27, 30, 34, 35, 37, 38, 45, 46, 47, 49)
"""Types that no message begins with, but which a flipped bit may give it."""

NUMBERED = (20, 21, 37, 38)
"""Messages that a data connection takes in the order of their numbers."""


def frame(kind: int, body: bytes, number: int = 0) -> bytes:
    """A head frame."""
    return struct.pack("<4sHHQII", b"PWY1", PROTOCOL, kind, number, len(body), 0) + body


def on_line(head: bytes, number: int) -> bytes:
    """A head frame as the message ``number`` of its sender's line with the controller, counted from 1."""
    return head[:20] + struct.pack("<I", 1 << 31 | number) + head[24:]


def peer_hello(cluster: str, machine: str) -> bytes:
    """The first message on a data connection."""
    return frame(25, text(cluster) + text(machine) + struct.pack("<QQQQB", 7, 0, 0, 0, 0))


def text(value: str | bytes) -> bytes:
    """A string field."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(raw)) + raw


def hello(build: str, name: str, line: bytes = b"") -> bytes:
    """A client's first message; ``line``: own_line(), of which the caller wants to know."""
    body = b"\x01" + text(build) + text(name) + struct.pack("<Q", 1) + text("elsewhere") + text("") * 4
    return frame(HELLO, body + struct.pack("<Iqdi", 0, 0, 1.0, 0) + (line or own_line()))


def own_line() -> bytes:
    """The end of a HELLO: a line that nobody else has, its secret, and no process space."""
    return struct.pack("<Q", secrets.randbits(63) | 1) + text(secrets.token_bytes(16)) + text("")


def heartbeat(line: bytes, count: int, secret: bytes = b"") -> bytes:
    """Claims a connection for ``line``, with its secret or another one."""
    numbers = struct.pack("<QQQBBQQ", 0, 0, 0, 0, 0, *struct.unpack("<Q", line[:8]), count)
    return frame(5, numbers + text(secret or line[12:28]) + struct.pack("<Q", 0))


@dataclass
class Hostile:
    """Draws messages from ``source``; ids are mostly of ``client``, to pass the check of whose they are."""

    source: random.Random
    client: int
    _kinds: dict[str, Callable[[], bytes]] = field(init=False)

    def __post_init__(self) -> None:
        self._kinds = {
            "u64": lambda: struct.pack("<Q", self._number()),
            "id": lambda: struct.pack("<Q", self._id()),
            "ids": lambda: self._many(lambda: struct.pack("<Q", self._id())),
            "arguments": lambda: self._many(
                lambda: struct.pack("<Q", self._id() | (self.source.random() < 0.3) << 63 & (1 << 64) - 1)
            ),
            "small": lambda: struct.pack("<I", self._small()),
            "bool": lambda: struct.pack("<B", self.source.choice((0, 1, 1, 255))),
            "devices": lambda: self._many(lambda: struct.pack("<I", self._small())),
            "text": lambda: text(self.source.choice(("", "f", "../../etc/passwd", "%s%n", "x" * 300))),
            "format": lambda: text(self.source.choice(("hlo", "mlir", "mlir", "", "elf"))),
            "segment": lambda: text(
                self.source.choice(("", "/ptpathways-x-1-0", "/../../etc/passwd", "ptpathways", "/" + "a" * 400))
            ),
            "bytes": lambda: text(self.source.randbytes(self.source.choice((0, 1, 4, 4, 8, 64, 4096, 5000)))),
            "status": lambda: struct.pack("<i", self.source.choice((0, 0, 2, 14, 99))) + text("because"),
            "type": self._type,
            "types": lambda: self._many(self._type),
            "query": lambda: struct.pack("<B", self.source.choice((1, 2, 3, 4, 5, 6, 7, 0, 200))),
            "hosts": lambda: struct.pack("<I", self.source.choice((0, 1, 1 << 31))),
            "identities": lambda: self._many(lambda: struct.pack("<I", self._small()) + text("w/w/1/" + "0" * 32)),
            "outcomes": lambda: self._many(
                lambda: struct.pack("<QIQ", self._id(), self._small(), 1) + struct.pack("<i", 0) + text("")
            ),
            "properties": lambda: struct.pack("<I", 0),
        }

    def message(self) -> list[bytes]:
        """One multipart message: mostly well-framed; some cut short, flipped or with strange payloads."""
        kind = self.source.choice(sorted(FIELDS))
        body = b"".join(self._kinds[name]() for name in FIELDS[kind])
        head = bytearray(frame(kind, body))
        if self.source.random() < 0.15:
            head[self.source.randrange(len(head))] ^= 1 << self.source.randrange(8)
        if self.source.random() < 0.05:
            del head[self.source.randrange(len(head)) :]
        payloads = [self._payload() for _ in range(self.source.choice((0, 0, 0, 1, 2, 2, 5)))]
        if kind == 7 and self.source.random() < 0.8:
            payloads = [self._payload(), self._payload()]
        return [bytes(head), *payloads]

    def _payload(self) -> bytes:
        return self.source.choice((b"", ADD_ONE, self.source.randbytes(50), b"\x0a\x02\x08\x01", bytes(5000)))

    def _id(self) -> int:
        owner = self.source.choice((self.client,) * 12 + (0, self.client + 1, 0xFFFF))
        return owner << 48 | self.source.choice((0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, (1 << 48) - 1))

    def _small(self) -> int:
        return self.source.choice((0, 0, 0, 0, 1, 1, 1, 2, 3, 7, 255, (1 << 31) - 1, (1 << 32) - 1))

    def _number(self) -> int:
        return self.source.choice((0, 1, 4, 64, 4096, 1 << 20, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1))

    def _many(self, item: Callable[[], bytes]) -> bytes:
        count = self.source.choice((0, 1, 1, 1, 2, 3))
        said = count if self.source.random() < 0.97 else (1 << 32) - 1
        return struct.pack("<I", said) + b"".join(item() for _ in range(count))

    def _type(self) -> bytes:
        element = self.source.choice((11, 11, 11, 1, 4, 8, 13, 0, 60, 255))
        dims = self.source.choice(
            ((), (), (1,), (1,), (4,), (16,), (0,), (1 << 62,), (1 << 40, 1 << 40), (-1,), (2, 3))
        )
        return struct.pack("<BI", element, len(dims)) + b"".join(struct.pack("<q", dim) for dim in dims)
