"""Edits of HLO modules on their wire format, on hand-made modules."""

from __future__ import annotations

import numpy as np
import pytest

from ptpathways.frontend.xla import _hlo


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return _hlo._varint(number << 3) + _hlo._varint(content)
    return _hlo._varint(number << 3 | 2) + _hlo._varint(len(content)) + content


SHAPE = field(2, 11) + field(3, 2)  # f32[2]


def instruction(identity: int, opcode: bytes, parameter: int | None = None) -> bytes:
    made = field(1, b"i%d" % identity) + field(2, opcode) + field(3, SHAPE)
    if parameter:  # proto3 leaves out zeros
        made += field(9, parameter)
    return made + field(35, identity)


def module(parameters: int) -> bytes:
    shape = b"".join(field(1, SHAPE) for _ in range(parameters)) + field(2, SHAPE)
    shape += b"".join(field(3, b"p%d" % number) for number in range(parameters))
    inner = field(1, b"inner") + field(2, instruction(9, b"parameter")) + field(4, field(1, SHAPE)) + field(5, 1)
    entry = field(1, b"entry")
    entry += b"".join(field(2, instruction(number, b"parameter", number)) for number in range(parameters))
    entry += field(2, instruction(77, b"add")) + field(4, shape) + field(5, 300) + field(6, 77)
    return field(1, b"m") + field(3, inner) + field(3, entry) + field(4, shape) + field(6, 300)


def parts(message: bytes, number: int) -> list[_hlo._Field]:
    return [one for one in _hlo._fields(message) if one.number == number]


def entry_instructions(made: bytes) -> list[bytes]:
    (_, entry) = parts(made, 3)
    return [one.content for one in parts(entry.content, 2)]


def test_a_parameter_becomes_a_constant_and_later_ones_move_down() -> None:
    value = np.array([1.5, -2.0], np.float32)
    made = _hlo.with_constants(module(3), {1: _hlo.Constant("f32", value)})
    assert _hlo.parameter_count(made) == 2
    first, baked, last, add = entry_instructions(made)
    assert [parts(one, 2)[0].content for one in (first, baked, last, add)] == [
        b"parameter",
        b"constant",
        b"parameter",
        b"add",
    ]
    assert parts(first, 9)[0].value == 0 and parts(last, 9)[0].value == 1 and not parts(baked, 9)
    literal = parts(baked, 8)[0].content
    assert parts(literal, 1)[0].content == SHAPE and parts(literal, 8)[0].content == value.tobytes()
    assert parts(baked, 35)[0].value == 1  # who uses it still finds it
    (_, entry) = parts(made, 3)
    names = [one.content for one in parts(parts(entry.content, 4)[0].content, 3)]
    assert names == [b"p0", b"p2"]
    assert parts(made, 3)[0].content == parts(module(3), 3)[0].content  # other computations have parameters, too


def test_integers_are_packed_as_numbers() -> None:
    made = _hlo.with_constants(module(1), {0: _hlo.Constant("s64", np.array([-1, 300]))})
    literal = parts(entry_instructions(made)[0], 8)[0].content
    assert parts(literal, 5)[0].content == b"\xff" * 9 + b"\x01" + b"\xac\x02"


def test_nothing_to_do_changes_nothing() -> None:
    assert _hlo.with_constants(module(2), {}) == module(2)
    assert _hlo.with_donors(module(2), []) == module(2)


def test_donors_are_entries_of_the_module() -> None:
    (donors,) = parts(_hlo.with_donors(module(2), [0, 1]), 18)
    assert [parts(one.content, 1)[0].value for one in parts(donors.content, 1)] == [0, 1]


@pytest.mark.parametrize("broken", [b"\x0a\xff", b"\x0a", b"\x80", b"\x0b\x00"])
def test_what_is_no_module_is_an_error(broken: bytes) -> None:
    with pytest.raises(ValueError, match="HLO module"):
        _hlo.with_donors(broken, [])
        _hlo.parameter_count(broken)


def test_an_element_type_without_literals_is_an_error() -> None:
    with pytest.raises(ValueError, match="f8e5m2"):
        _hlo.with_constants(module(1), {0: _hlo.Constant("f8e5m2", np.zeros(2, np.uint8))})
