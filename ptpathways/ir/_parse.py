"""Reads programs from their text form (see ``_text``)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from ptpathways.core import InvalidProgram, InvalidSharding
from ptpathways.ir._program import Kind, Node, Program, Value
from ptpathways.ir._types import Function, Slice, ValueType
from ptpathways.ir._verify import verify
from ptpathways.sharding import Mesh, Sharding, parse_mesh, parse_sharding

_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
_AT = r'(?: at (?P<at>"(?:[^"\\]|\\.)*"))?'
_TYPE = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](?:\{(?P<lying>[^}]*)\})?")
_PROGRAM = re.compile(rf"program (?P<name>{_NAME}){_AT}")
_SLICE = re.compile(rf"slice (?P<name>{_NAME}) \[(?P<mesh>[^\]]*)\](?: = (?P<runs>[\d:,\- ]+))?")
_FUNCTION = re.compile(
    rf"function (?P<name>{_NAME}) on (?P<slice>{_NAME}) \((?P<inputs>[^)]*)\) -> \((?P<outputs>[^)]*)\) "
    rf"(?P<format>\w+)(?: (?P<digest>[0-9a-f]{{2,}}))?(?: donates (?P<donated>[\d,]+))?(?P<irregular> irregular)?{_AT}"
)
_NODE = re.compile(
    rf"(?:(?P<outputs>%[^=]*) = )?(?P<kind>argument|transfer|compute|host_call|result)"
    rf"(?: (?P<function>{_NAME})\((?P<arguments>[^)]*)\)| (?P<inputs>%[^:\"]*?))?"
    rf"(?: : (?P<types>.*?))?(?P<donated> donated)?{_AT}"
)


def parse(text: str) -> Program:
    """The program of a text that ``str(program)`` gave, or that somebody wrote.

    Raises:
        InvalidProgram: a line cannot be read, or the program breaks a rule; names the line's number.
    """
    return _Parser().parse(text)


class _Parser:
    def __init__(self) -> None:
        self._head: tuple[str, str] | None = None
        self._slices: list[Slice] = []
        self._meshes: dict[str, Mesh] = {}
        self._functions: list[Function] = []
        self._nodes: list[Node] = []

    def parse(self, text: str) -> Program:
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            try:
                self._line(line)
            except (InvalidProgram, InvalidSharding) as error:
                raise InvalidProgram(f"line {number}: {error}") from None
        if self._head is None:
            raise InvalidProgram("a program's text begins with a line like 'program f', got an empty text")
        name, source = self._head
        return verify(Program(name, tuple(self._slices), tuple(self._functions), tuple(self._nodes), source))

    def _line(self, line: str) -> None:
        forms: dict[str, tuple[re.Pattern[str], Callable[[re.Match[str]], None]]] = {
            "program": (_PROGRAM, self._program),
            "slice": (_SLICE, self._slice),
            "function": (_FUNCTION, self._function),
        }
        form, read = forms.get(line.split(" ", 1)[0], (_NODE, self._node))
        if (self._head is None) is (form is not _PROGRAM):
            raise InvalidProgram("a program's text has one line like 'program f', and it comes first")
        match = form.fullmatch(line)
        if match is None:
            raise InvalidProgram(
                f"expected a {'node' if form is _NODE else line.split(' ', 1)[0]}, cannot read {line!r}"
            )
        read(match)

    def _program(self, match: re.Match[str]) -> None:
        self._head = (match["name"], _source(match))

    def _slice(self, match: re.Match[str]) -> None:
        devices: list[int] = []
        hosts: list[int] = []
        for run in (match["runs"] or "").split():
            host, colon, numbers = run.partition(":")
            if not colon:
                raise InvalidProgram(f"devices of a slice read like '0:0-3 1:4-7', got {match['runs']!r}")
            devices += _numbers(numbers)
            hosts += [int(host)] * (len(devices) - len(hosts))
        made = Slice(match["name"], parse_mesh(match["mesh"]), tuple(devices), tuple(hosts))
        self._slices.append(made)
        self._meshes[made.name] = made.mesh

    def _function(self, match: re.Match[str]) -> None:
        mesh = self._mesh(match["slice"])
        self._functions.append(
            Function(
                match["name"],
                match["slice"],
                tuple(_types(match["inputs"], mesh)),
                tuple(_types(match["outputs"], mesh)),
                _source(match),
                match["format"],
                match["digest"] or "",
                match["irregular"] is None,
                tuple(_numbers(match["donated"] or "")),
            )
        )

    def _node(self, match: re.Match[str]) -> None:
        kind = Kind(match["kind"])
        if (match["function"] is not None) is not (kind in (Kind.COMPUTE, Kind.HOST_CALL)):
            raise InvalidProgram(f"a {kind} node {'calls no' if match['function'] else 'needs a'} function")
        names = _names(match["outputs"] or "")
        types = self._lying(match["types"] or "")
        if len(names) != len(types):
            raise InvalidProgram(f"{len(names)} values need as many types, got {len(types)}")
        self._nodes.append(
            Node(
                kind,
                tuple(_names(match["arguments"] or match["inputs"] or "")),
                tuple(Value(name, made, part) for name, (made, part) in zip(names, types, strict=True)),
                match["function"] or "",
                _source(match),
                match["donated"] is not None,
            )
        )

    def _lying(self, text: str) -> list[tuple[ValueType, str]]:
        found = []
        rest = text
        while rest:
            match = re.match(rf"(?P<type>{_TYPE.pattern}) on (?P<slice>{_NAME})(?:, )?", rest)
            if match is None:
                raise InvalidProgram(f"a type reads like 'f32[8,4]{{data,-}} on s0', got {rest!r}")
            found.append((_type(match, self._mesh(match["slice"])), match["slice"]))
            rest = rest[match.end() :]
        return found

    def _mesh(self, name: str) -> Mesh:
        if name not in self._meshes:
            raise InvalidProgram(f"there is no slice {name!r} yet; known are: {', '.join(self._meshes) or 'none'}")
        return self._meshes[name]


def _types(text: str, mesh: Mesh) -> list[ValueType]:
    found = []
    rest = text
    while rest:
        match = re.match(_TYPE.pattern + "(?:, )?", rest)
        if match is None:
            raise InvalidProgram(f"a type reads like 'f32[8,4]{{data,-}}', got {rest!r}")
        found.append(_type(match, mesh))
        rest = rest[match.end() :]
    return found


def _type(match: re.Match[str], mesh: Mesh) -> ValueType:
    lying = match["lying"]
    sharding = parse_sharding(lying, mesh) if lying is not None else Sharding.replicated(mesh)
    return ValueType(match["dtype"], tuple(int(size) for size in match["shape"].split(",") if size), sharding)


def _names(text: str) -> list[str]:
    found = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        if not re.fullmatch("%" + _NAME, entry):
            raise InvalidProgram(f"a value reads like '%x', got {entry!r}")
        found.append(entry[1:])
    return found


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for entry in filter(None, text.split(",")):
        first, dash, last = entry.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InvalidProgram(f"numbers read like '0-3,8', got {text!r}")
        found += range(int(first), int(last if dash else first) + 1)
    return found


def _source(match: re.Match[str]) -> str:
    if not match["at"]:
        return ""
    try:
        return str(json.loads(match["at"]))
    except ValueError:
        raise InvalidProgram(f"a source line is a quoted text, got {match['at']}") from None
