"""A picture of a program: nodes in layers from top to bottom, coloured by slice, edges labelled with types."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from ptpathways.ir._program import Kind, Node, Program
from ptpathways.ir._text import lying
from ptpathways.ir._types import Slice, ranges

_COLOURS = (
    "#cfe2f3",
    "#d9ead3",
    "#fff2cc",
    "#f4cccc",
    "#d9d2e9",
    "#fce5cd",
    "#d0e0e3",
    "#ead1dc",
    "#e6e6b8",
    "#dbe5f1",
)
_PLAIN = "#eeeeee"
_CHARACTER, _LINE = 7.3, 16.0  # pixels, of a node's text
_SMALL_CHARACTER, _SMALL_LINE = 6.1, 13.0  # of an edge's label
_PAD, _GAP_X, _GAP_Y, _MARGIN = 10.0, 30.0, 44.0, 20.0
_LABELS_MAX = 6  # of a node's edges; the rest is counted
_SWEEPS = 4


@dataclass(slots=True)
class _Drawn:
    """A node with its place; x and y of its centre, in pixels."""

    node: Node
    lines: list[str]
    layer: int
    above: list[int] = field(default_factory=list)
    """Makers of its inputs, one per edge."""
    below: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    """Of the edges that come in, as they stand above it."""
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        own = max(map(len, self.lines)) * _CHARACTER + 2 * _PAD
        return max(own, max(map(len, self.labels), default=0) * _SMALL_CHARACTER)

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 2 * _PAD - 4

    @property
    def top(self) -> float:
        return self.y - self.height / 2


def to_svg(program: Program) -> str:
    """The graph as an SVG document; equal programs give equal text."""
    drawn = _layered(program)
    layers: list[list[_Drawn]] = [[] for _ in range(max(one.layer for one in drawn) + 1)]
    for one in drawn:
        layers[one.layer].append(one)
    numbers = {id(one): number for number, one in enumerate(drawn)}
    _untangle(layers, drawn, numbers)
    width, height = _set_places(layers, drawn)
    colours = {part.name: _COLOURS[i % len(_COLOURS)] for i, part in enumerate(program.slices)}
    legend = [(_legend(part), colours[part.name]) for part in program.slices]
    width = max(width, max((len(text) for text, _ in legend), default=0) * _CHARACTER + 2 * _MARGIN + 20)
    legend_y = height
    height += _LINE * len(legend) + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12">',
        f"<title>{escape(program.label)}</title>",
        '<defs><marker id="to" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
    ]
    for one in drawn:
        lines += _edges(drawn, one)
    lines += [_box(one, colours) for one in drawn]
    for one in drawn:
        lines += _labels(one)
    for index, (text, colour) in enumerate(legend):
        y = legend_y + _LINE * index
        lines.append(f'<rect x="{_MARGIN:.0f}" y="{y:.1f}" width="12" height="12" fill="{colour}" stroke="#888"/>')
        lines.append(_text(_MARGIN + 20, y + 10, text, anchor="start"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _layered(program: Program) -> list[_Drawn]:
    """Nodes with their layer: one below the last of what they need. Arguments stand just above their first user."""
    drawn: list[_Drawn] = []
    maker: dict[str, int] = {}
    for number, node in enumerate(program.nodes):
        above = [maker[name] for name in dict.fromkeys(node.inputs)]
        one = _Drawn(node, _lines(node), max((drawn[other].layer + 1 for other in above), default=0), above)
        labels = [f"%{name} {lying(program, program.values[name])}" for name in dict.fromkeys(node.inputs)]
        if len(labels) > _LABELS_MAX:
            labels = [*labels[: _LABELS_MAX - 1], f"and {len(labels) - _LABELS_MAX + 1} more"]
        one.labels = labels
        for other in above:
            drawn[other].below.append(number)
        maker.update((value.name, number) for value in node.outputs)
        drawn.append(one)
    for one in drawn:
        if one.node.kind is Kind.ARGUMENT:
            one.layer = max(min((drawn[other].layer for other in one.below), default=1) - 1, 0)
    return drawn


def _lines(node: Node) -> list[str]:
    if node.kind in (Kind.COMPUTE, Kind.HOST_CALL):
        first = node.function if node.kind is Kind.COMPUTE else f"host call {node.function}"
        return [first, node.source] if node.source else [first]
    if node.kind is Kind.ARGUMENT:
        return [f"{node.kind} {node.outputs[0]}{' (donated)' if node.donated else ''}"]
    if node.kind is Kind.TRANSFER:
        return [f"transfer to {node.outputs[0].slice}"]
    return [str(node.kind)]


def _untangle(layers: list[list[_Drawn]], drawn: list[_Drawn], numbers: dict[int, int]) -> None:
    """Orders each layer by where its neighbours stand, a few times down and up."""
    place = {numbers[id(one)]: float(index) for layer in layers for index, one in enumerate(layer)}
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = {}
            for one in layer:
                near = one.above if sweep % 2 == 0 else one.below
                number = numbers[id(one)]
                wanted[number] = sum(place[other] for other in near) / len(near) if near else place[number]
            layer.sort(key=lambda one: (wanted[numbers[id(one)]], numbers[id(one)]))
            place.update((numbers[id(one)], float(index)) for index, one in enumerate(layer))


def _set_places(layers: list[list[_Drawn]], drawn: list[_Drawn]) -> tuple[float, float]:
    """Gives every node its place, under the middle of what it needs where there is room; width and height of all."""
    y = _MARGIN
    for layer in layers:
        y += max((len(one.labels) for one in layer), default=0) * _SMALL_LINE
        height = max((one.height for one in layer), default=0.0)
        wanted = [sum(drawn[o].x for o in one.above) / len(one.above) if one.above else 0.0 for one in layer]
        right = None
        for one, middle in zip(layer, wanted, strict=True):
            one.x = middle if right is None else max(middle, right + _GAP_X + one.width / 2)
            one.y = y + height / 2
            right = one.x + one.width / 2
        shift = sum(one.x - middle for one, middle in zip(layer, wanted, strict=True)) / max(len(layer), 1)
        for one in layer:
            one.x -= shift
        y += height + _GAP_Y
    left = min(one.x - one.width / 2 for one in drawn) - _MARGIN
    for one in drawn:
        one.x -= left
    return max(one.x + one.width / 2 for one in drawn) + _MARGIN, y - _GAP_Y + _MARGIN


def _edges(drawn: list[_Drawn], end: _Drawn) -> list[str]:
    """The edges into a node, side by side."""
    found = []
    for index, maker in enumerate(end.above):
        start = drawn[maker]
        inner = (max(map(len, end.lines)) * _CHARACTER) / (len(end.above) + 1)
        x1, y1 = start.x, start.y + start.height / 2
        x2, y2 = end.x + (index - (len(end.above) - 1) / 2) * inner, end.top
        bend = max((y2 - y1) / 2, 20)
        path = f"M{x1:.1f},{y1:.1f} C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2:.1f}"
        found.append(f'<path d="{path}" fill="none" stroke="#999" marker-end="url(#to)"/>')
    return found


def _labels(one: _Drawn) -> list[str]:
    """What the edges into a node carry, in the order of its arguments, above it."""
    first = one.top - 10 - _SMALL_LINE * (len(one.labels) - 1)
    return [_text(one.x, first + index * _SMALL_LINE, text, size=10) for index, text in enumerate(one.labels)]


def _box(one: _Drawn, colours: dict[str, str]) -> str:
    width = max(map(len, one.lines)) * _CHARACTER + 2 * _PAD
    outputs = one.node.outputs
    colour = colours[outputs[0].slice] if outputs else _PLAIN
    corner = 12 if one.node.kind in (Kind.ARGUMENT, Kind.RESULT) else 2
    dashed = ' stroke-dasharray="4 3"' if one.node.kind in (Kind.TRANSFER, Kind.HOST_CALL) else ""
    made = (
        f'<rect x="{one.x - width / 2:.1f}" y="{one.top:.1f}" width="{width:.1f}" height="{one.height:.1f}" '
        f'rx="{corner}" fill="{colour}" stroke="#555"{dashed}/>'
    )
    first = one.y - (len(one.lines) - 1) * _LINE / 2 + 4
    return made + "".join(_text(one.x, first + index * _LINE, line) for index, line in enumerate(one.lines))


def _legend(part: Slice) -> str:
    return f"{part.name} [{part.mesh}]" + (f" on devices {ranges(part.devices)}" if part.placed else "")


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 12) -> str:
    """Text with a white rim, so that it can be read on an edge."""
    rim = ' stroke="white" stroke-width="3" paint-order="stroke"' if size < 12 else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{rim}>{escape(text)}</text>'
