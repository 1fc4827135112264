"""Small edits of serialized HLO modules: parameters that became constants, and parameters that may be donated.

Works on the wire format of protocol buffers, so that no generated classes (and no TensorFlow) are needed. The field
numbers are those of XLA's public hlo.proto and xla_data.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_MODULE_COMPUTATIONS, _MODULE_PROGRAM_SHAPE, _MODULE_ENTRY_ID, _MODULE_DONORS = 3, 4, 6, 18
_COMPUTATION_INSTRUCTIONS, _COMPUTATION_PROGRAM_SHAPE, _COMPUTATION_ID = 2, 4, 5
_INSTRUCTION_OPCODE, _INSTRUCTION_SHAPE, _INSTRUCTION_LITERAL, _INSTRUCTION_PARAMETER = 2, 3, 8, 9
_PROGRAM_PARAMETERS, _PROGRAM_NAMES = 1, 3
_LITERAL_SHAPE = 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# Where a LiteralProto keeps elements of an XLA type, and whether they are packed varints ("int") or plain bytes.
_LITERAL_FIELDS: dict[str, tuple[int, str]] = {
    "pred": (2, "int"),
    "u8": (3, "bytes"),
    "s32": (4, "int"),
    "s64": (5, "int"),
    "f32": (8, "bytes"),
    "f64": (9, "bytes"),
    "f16": (11, "bytes"),
    "c64": (12, "bytes"),
    "bf16": (13, "bytes"),
    "s8": (15, "bytes"),
    "u16": (16, "bytes"),
    "s16": (17, "bytes"),
    "c128": (18, "bytes"),
}


class Constant(NamedTuple):
    """The value that a parameter always has. ``array``: its elements, bf16 as their bits in uint16."""

    dtype: str
    array: npt.NDArray[np.generic]


def with_constants(module: bytes, constants: Mapping[int, Constant]) -> bytes:
    """``module`` whose parameters numbered in ``constants`` are constants; the others keep their order.

    Raises:
        ValueError: the bytes are no HLO module, or an element type has no literal.
    """
    if not constants:
        return module
    entry = _entry_id(module)
    made = bytearray()
    for field in _fields(module):
        if field.number == _MODULE_COMPUTATIONS and _number_of(field.content, _COMPUTATION_ID) == entry:
            made += _message(field.number, _without_parameters(field.content, constants))
        elif field.number == _MODULE_PROGRAM_SHAPE:
            made += _message(field.number, _shorter_program_shape(field.content, constants))
        else:
            made += field.whole
    return bytes(made)


def with_donors(module: bytes, parameters: Sequence[int]) -> bytes:
    """``module`` that may write results over these parameters, whose buffers their owner gave up."""
    donors = b"".join(_message(1, _varint_field(1, number)) for number in parameters)
    return module + _message(_MODULE_DONORS, donors) if parameters else module


def parameter_count(module: bytes) -> int:
    """How many parameters the entry computation has."""
    entry = _entry_id(module)
    for field in _fields(module):
        if field.number == _MODULE_COMPUTATIONS and _number_of(field.content, _COMPUTATION_ID) == entry:
            shape = next(f.content for f in _fields(field.content) if f.number == _COMPUTATION_PROGRAM_SHAPE)
            return sum(f.number == _PROGRAM_PARAMETERS for f in _fields(shape))
    raise ValueError("an HLO module names its entry computation, and this one does not have it")


class _Field(NamedTuple):
    number: int
    value: int  # of a varint
    content: bytes  # of a length-delimited field
    whole: bytes  # with its key


def _fields(message: bytes) -> Iterator[_Field]:
    at = 0
    while at < len(message):
        first = at
        key, at = _read_varint(message, at)
        kind = key & 7
        value, content = 0, b""
        if kind == _VARINT:
            value, at = _read_varint(message, at)
        elif kind == _BYTES:
            size, at = _read_varint(message, at)
            content, at = message[at : at + size], at + size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"an HLO module uses wire types 0, 1, 2 and 5, got {kind}")
        if at > len(message):
            raise ValueError("an HLO module ended inside a field")
        yield _Field(key >> 3, value, content, message[first:at])


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("an HLO module ended inside a number")


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _number_of(message: bytes, number: int) -> int:
    return next((field.value for field in _fields(message) if field.number == number), 0)


def _entry_id(module: bytes) -> int:
    return _number_of(module, _MODULE_ENTRY_ID)


def _without_parameters(computation: bytes, constants: Mapping[int, Constant]) -> bytes:
    made = bytearray()
    for field in _fields(computation):
        if field.number == _COMPUTATION_INSTRUCTIONS:
            made += _message(field.number, _instruction(field.content, constants))
        elif field.number == _COMPUTATION_PROGRAM_SHAPE:
            made += _message(field.number, _shorter_program_shape(field.content, constants))
        else:
            made += field.whole
    return bytes(made)


def _instruction(instruction: bytes, constants: Mapping[int, Constant]) -> bytes:
    fields = list(_fields(instruction))
    if not any(field.number == _INSTRUCTION_OPCODE and field.content == b"parameter" for field in fields):
        return instruction
    number = next((field.value for field in fields if field.number == _INSTRUCTION_PARAMETER), 0)
    kept = b"".join(f.whole for f in fields if f.number not in (_INSTRUCTION_OPCODE, _INSTRUCTION_PARAMETER))
    constant = constants.get(number)
    if constant is None:
        earlier = sum(other < number for other in constants)
        return kept + _message(_INSTRUCTION_OPCODE, b"parameter") + _varint_field(9, number - earlier)
    shape = next(field.content for field in fields if field.number == _INSTRUCTION_SHAPE)
    return kept + _message(_INSTRUCTION_OPCODE, b"constant") + _message(_INSTRUCTION_LITERAL, _literal(shape, constant))


def _literal(shape: bytes, constant: Constant) -> bytes:
    if constant.dtype not in _LITERAL_FIELDS:
        raise ValueError(f"a constant in an HLO module cannot have element type {constant.dtype}")
    number, form = _LITERAL_FIELDS[constant.dtype]
    if form == "bytes":
        content = np.ascontiguousarray(constant.array).tobytes()
    else:
        content = b"".join(_varint(int(value) & (2**64 - 1)) for value in constant.array.ravel())
    return _message(_LITERAL_SHAPE, shape) + _message(number, content)


def _shorter_program_shape(shape: bytes, constants: Mapping[int, Constant]) -> bytes:
    made = bytearray()
    seen = {_PROGRAM_PARAMETERS: 0, _PROGRAM_NAMES: 0}
    for field in _fields(shape):
        if field.number in seen:
            seen[field.number] += 1
            if seen[field.number] - 1 in constants:
                continue
        made += field.whole
    return bytes(made)
