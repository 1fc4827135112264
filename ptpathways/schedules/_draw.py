"""Pictures of timelines: as text for a terminal, and as SVG. The same colours, whether planned or measured."""

from __future__ import annotations

from html import escape

from ptpathways.schedules._actions import Kind
from ptpathways.schedules._simulate import Span, Timeline

COLOURS = {
    Kind.FORWARD: "#6fa8dc",
    Kind.BACKWARD: "#93c47d",
    Kind.BACKWARD_INPUT: "#93c47d",
    Kind.BACKWARD_WEIGHT: "#f6b26b",
}
NAMES = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.BACKWARD_INPUT: "backward, inputs",
    Kind.BACKWARD_WEIGHT: "backward, weights",
}
_MARGIN, _LEFT, _ROW, _LEGEND = 10.0, 60.0, 26.0, 24.0


def text(timeline: Timeline, *, width: int = 100) -> str:
    """A line per rank and a column per moment; a dot is idle time. Digits are the last ones of microbatches.

    An action's first column has its letter, if there is room for more than the digit. ``width`` in characters.
    """
    if not timeline.spans:
        return ""
    lines = []
    scale = width / timeline.length
    for rank in range(timeline.ranks):
        cells = ["·"] * width
        for span in timeline.of_rank(rank):
            first = round((span.start - timeline.start) * scale)
            last = max(round((span.end - timeline.start) * scale), first + 1)
            label = f"{span.action.kind}{span.action.microbatch}" if last - first > 1 else str(span.action.kind)
            for column in range(first, min(last, width)):
                place = column - first
                cells[column] = label[place] if place < len(label) else str(span.action.kind).lower()
        lines.append(f"slice {rank:<3}|{''.join(cells)}|")
    return "\n".join(lines)


def svg(timeline: Timeline, title: str = "", *, width: float = 1000.0, unit: str = "") -> str:
    """An SVG document with a row per rank. ``unit``: of the timeline's numbers, for the tooltips."""
    height = 2 * _MARGIN + timeline.ranks * _ROW + _LEGEND + (_LEGEND if title else 0)
    top = _MARGIN + (_LEGEND if title else 0)
    scale = (width - _LEFT - _MARGIN) / timeline.length if timeline.length else 0.0
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
    ]
    if title:
        lines.append(f'<text x="{_MARGIN}" y="{_MARGIN + 12}" font-size="13">{escape(title)}</text>')
    for rank in range(timeline.ranks):
        y = top + rank * _ROW
        lines.append(f'<text x="{_MARGIN}" y="{y + 16:.1f}">slice {rank}</text>')
        lines.append(
            f'<rect x="{_LEFT}" y="{y + 2:.1f}" width="{width - _LEFT - _MARGIN:.1f}" height="{_ROW - 4}" '
            'fill="#f3f3f3"/>'
        )
        lines += [_box(span, y, scale, timeline.start, unit) for span in timeline.of_rank(rank)]
    y = top + timeline.ranks * _ROW + 6
    for place, kind in enumerate(dict.fromkeys(span.action.kind for span in sorted(timeline.spans, key=_kind))):
        x = _LEFT + place * 150
        lines.append(f'<rect x="{x}" y="{y:.1f}" width="12" height="12" fill="{COLOURS[kind]}"/>')
        lines.append(f'<text x="{x + 18}" y="{y + 10:.1f}">{NAMES[kind]}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _kind(span: Span) -> str:
    return list(Kind).index(span.action.kind).__str__()


def _box(span: Span, y: float, scale: float, start: float, unit: str) -> str:
    x, width = _LEFT + (span.start - start) * scale, max((span.end - span.start) * scale, 0.5)
    action = span.action
    tip = f"{NAMES[action.kind]} of stage {action.stage}, microbatch {action.microbatch}"
    tip += f": {span.end - span.start:.6g}{unit}, from {span.start - start:.6g}{unit}"
    made = (
        f'<g><title>{escape(tip)}</title><rect x="{x:.2f}" y="{y + 2:.1f}" width="{width:.2f}" height="{_ROW - 4}" '
        f'fill="{COLOURS[action.kind]}" stroke="white" stroke-width="0.5"/>'
    )
    if width > 14:
        made += f'<text x="{x + width / 2:.2f}" y="{y + 16:.1f}" text-anchor="middle">{action.microbatch}</text>'
    return made + "</g>"
