"""What a cluster looks like at a prompt and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptpathways.frontend._init import Cluster


def text(cluster: Cluster) -> str:
    """One line for the cluster, one per host."""
    count = len(cluster.hosts)
    lines = [f"cluster {cluster.name}: {_count(count, 'host')}, {_count(cluster.device_count, 'device')}"]
    lines += [f"  {'  '.join(row)}" for row in _rows(cluster)]
    return "\n".join(lines)


def html(cluster: Cluster) -> str:
    """The same as a table."""
    rows = [_row("th", ("host", "devices", "platform", "island", "state"))]
    rows += [_row("td", row) for row in _rows(cluster)]
    return f"<b>cluster {escape(cluster.name)}</b><table>{''.join(rows)}</table>"


def _rows(cluster: Cluster) -> list[tuple[str, ...]]:
    return [
        (host.name, _numbers(host.devices), host.platform, host.island, "alive" if host.alive else "LOST")
        for host in cluster.hosts
    ]


def _numbers(devices: Sequence[int]) -> str:
    if not devices:
        return "no devices"
    if len(devices) == 1:
        return f"device {devices[0]}"
    return f"devices {devices[0]}-{devices[-1]}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _row(kind: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in cells)}</tr>"
