"""A picture of a program: nodes in layers from top to bottom, coloured by slice, edges labelled with types."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ptpathways.ir._program import Kind, Node, Program
from ptpathways.ir._text import lying

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
_CHARACTER, _LINE, _PAD = 7.0, 16.0, 10.0  # pixels; a character of a 12 px monospace font
_GAP_X, _GAP_Y, _MARGIN = 40.0, 70.0, 20.0
_SWEEPS = 4


@dataclass(slots=True)
class _Drawn:
    """A node with its place; x and y of its centre, in pixels."""

    node: Node
    lines: list[str]
    layer: int
    width: float
    x: float = 0.0
    y: float = 0.0

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 2 * _PAD - 4


def to_svg(program: Program) -> str:
    """The graph as an SVG document; equal programs give equal text."""
    drawn = _layered(program)
    edges = _edges(program, drawn)
    layers: list[list[int]] = [[] for _ in range(max(d.layer for d in drawn) + 1)]
    for number, one in enumerate(drawn):
        layers[one.layer].append(number)
    _untangle(layers, edges)
    width, height = _set_places(drawn, layers)
    legend_y = height
    height += _LINE * (len(program.slices) + 1) + _MARGIN
    colours = {part.name: _COLOURS[i % len(_COLOURS)] for i, part in enumerate(program.slices)}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12">',
        f"<title>{escape(program.label)}</title>",
        '<defs><marker id="to" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
    ]
    lines += [_edge(drawn[start], drawn[end], text, shift) for start, end, text, shift in edges]
    lines += [_box(one, colours) for one in drawn]
    for index, part in enumerate(program.slices):
        y = legend_y + _LINE * index
        where = f" on devices {', '.join(map(str, part.devices[:16]))}" if part.placed else ""
        more = ", ..." if len(part.devices) > 16 else ""
        lines.append(
            f'<rect x="{_MARGIN:.0f}" y="{y:.1f}" width="12" height="12" fill="{colours[part.name]}" stroke="#888"/>'
        )
        lines.append(_text(_MARGIN + 20, y + 10, f"{part.name} [{part.mesh}]{where}{more}", anchor="start"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _layered(program: Program) -> list[_Drawn]:
    """Nodes with their layer: one more than the last of what they need; results all the way down."""
    layer: dict[str, int] = {}
    drawn = []
    for node in program.nodes:
        depth = max((layer[name] + 1 for name in node.inputs), default=0)
        for value in node.outputs:
            layer[value.name] = depth
        lines = _lines(node)
        drawn.append(_Drawn(node, lines, depth, max(map(len, lines)) * _CHARACTER + 2 * _PAD))
    # An argument stands just above its first user.
    for one in drawn:
        if one.node.kind is Kind.ARGUMENT:
            below = [other.layer for other in drawn if one.node.outputs[0].name in other.node.inputs]
            one.layer = max(min(below, default=1) - 1, 0)
    return drawn


def _lines(node: Node) -> list[str]:
    if node.kind in (Kind.COMPUTE, Kind.HOST_CALL):
        first = node.function if node.kind is Kind.COMPUTE else f"host call {node.function}"
        return [first, node.source] if node.source else [first]
    if node.kind is Kind.ARGUMENT:
        return [f"{node.kind} {node.outputs[0]}"]
    if node.kind is Kind.TRANSFER:
        return [f"to {node.outputs[0].slice}"]
    return ["result"]


def _edges(program: Program, drawn: list[_Drawn]) -> list[tuple[int, int, str, float]]:
    """Maker, user, label, and how far from the middle the edge runs when several join the same two."""
    maker = {value.name: number for number, one in enumerate(drawn) for value in one.node.outputs}
    found = []
    for number, one in enumerate(drawn):
        inputs = list(dict.fromkeys(one.node.inputs))
        for name in inputs:
            parallel = [other for other in inputs if maker[other] == maker[name]]
            shift = (parallel.index(name) - (len(parallel) - 1) / 2) * 2 * _PAD
            found.append((maker[name], number, f"%{name} {lying(program, program.values[name])}", shift))
    return found


def _untangle(layers: list[list[int]], edges: list[tuple[int, int, str, float]]) -> None:
    """Orders each layer by where its neighbours stand, a few times down and up."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for start, end, _, _ in edges:
        above.setdefault(end, []).append(start)
        below.setdefault(start, []).append(end)
    place = {number: index for layer in layers for index, number in enumerate(layer)}
    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else below
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = {
                number: sum(place[other] for other in near[number]) / len(near[number])
                if near.get(number)
                else place[number]
                for number in layer
            }
            layer.sort(key=lambda number: (wanted[number], number))
            place.update((number, index) for index, number in enumerate(layer))


def _set_places(drawn: list[_Drawn], layers: list[list[int]]) -> tuple[float, float]:
    """Gives every node its place; width and height of all."""
    widths = [sum(drawn[n].width for n in layer) + _GAP_X * max(len(layer) - 1, 0) for layer in layers]
    legend = 60 * _CHARACTER
    width = max(*widths, legend) + 2 * _MARGIN
    y = _MARGIN
    for layer, used in zip(layers, widths, strict=True):
        height = max((drawn[n].height for n in layer), default=0.0)
        x = (width - used) / 2
        for number in layer:
            one = drawn[number]
            one.x, one.y = x + one.width / 2, y + height / 2
            x += one.width + _GAP_X
        y += height + _GAP_Y
    return width, y - _GAP_Y + _MARGIN


def _edge(start: _Drawn, end: _Drawn, text: str, shift: float) -> str:
    x1, y1, x2, y2 = start.x + shift, start.y + start.height / 2, end.x + shift, end.y - end.height / 2
    bend = max((y2 - y1) / 2, 20)
    path = f"M{x1:.1f},{y1:.1f} C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2:.1f}"
    return (
        f'<path d="{path}" fill="none" stroke="#555" marker-end="url(#to)"/>'
        f"{_text((x1 + x2) / 2 + 6, (y1 + y2) / 2 + shift / 2, text, anchor='start', size=10)}"
    )


def _box(one: _Drawn, colours: dict[str, str]) -> str:
    outputs = one.node.outputs
    colour = colours[outputs[0].slice] if outputs else _PLAIN
    round_ = 12 if one.node.kind in (Kind.ARGUMENT, Kind.RESULT) else 2
    dashed = ' stroke-dasharray="4 3"' if one.node.kind in (Kind.TRANSFER, Kind.HOST_CALL) else ""
    made = (
        f'<rect x="{one.x - one.width / 2:.1f}" y="{one.y - one.height / 2:.1f}" width="{one.width:.1f}" '
        f'height="{one.height:.1f}" rx="{round_}" fill="{colour}" stroke="#555"{dashed}/>'
    )
    first = one.y - (len(one.lines) - 1) * _LINE / 2 + 4
    return made + "".join(_text(one.x, first + index * _LINE, line) for index, line in enumerate(one.lines))


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
