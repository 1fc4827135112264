"""``ptpathways status``: what a standing cluster is doing."""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import TYPE_CHECKING, Any

from ptpathways import core, launch, native
from ptpathways.cli._token import token_of
from ptpathways.launch import endpoint

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_TIMEOUT_S = 5.0
_PIPE_COLUMNS = 180
_ENGINE_STILL_MS = 1500
"""A worker looks at its engine about twice a second, and small computations run on that thread."""
_NAME = "ptpathways status"


def main(arguments: argparse.Namespace) -> int:
    """Asks the controller and prints, once or until Ctrl-C.

    Raises:
        InvalidOption: no address is given, or it is none.
        ConnectionFailed: no controller answers there, or the token is not its cluster's.
    """
    address = arguments.address or os.environ.get("PTPATHWAYS_ADDRESS", "")
    if not address:
        raise core.InvalidOption("give the controller's address with --address or PTPATHWAYS_ADDRESS, got none")
    if arguments.watch is not None and not 0 < arguments.watch <= 86_400:
        raise core.InvalidOption(f"--watch must be a positive number of seconds up to 86400, got {arguments.watch}")
    controller = endpoint(address)
    token = token_of(arguments, "client", controller, _TIMEOUT_S)
    with launch.connect(controller, _NAME, _TIMEOUT_S, token=token) as session, native.translated("connecting"):
        try:
            while True:
                status = json.loads(session.status_json(_TIMEOUT_S))
                status["clients"] = [client for client in status["clients"] if not _is_this(client)]
                _show(status, as_json=arguments.json, clear=arguments.watch is not None)
                if arguments.watch is None:
                    return 0
                time.sleep(arguments.watch)
        except KeyboardInterrupt:
            return 0


def _is_this(client: dict[str, Any]) -> bool:
    return bool(client["name"] == _NAME and client["pid"] == os.getpid())


def _show(status: dict[str, Any], *, as_json: bool, clear: bool) -> None:
    if as_json:
        print(json.dumps(status), flush=True)
        return
    from rich.console import Console

    console = Console(markup=False)  # names are members' own
    if not console.is_terminal:  # a pipe has no width to fold to
        console = Console(width=_PIPE_COLUMNS, markup=False)
    if clear and console.is_terminal:
        console.clear()
    print_status(status, console)


def print_status(status: dict[str, Any], console: Console) -> None:
    """Tables of islands, hosts and clients, from the controller's JSON."""
    console.print(
        f"cluster {status['cluster']}, ptpathways {status['build']}: policy {status['policy']}, "
        f"device queues of {status['queue_ms']:g} ms; {status['functions']} functions, {status['programs']} programs"
    )
    console.print(_controller_text(status["controller"]))
    for table in (_islands(status["islands"]), _hosts(status["hosts"]), _clients(status["clients"])):
        if table.row_count:
            console.print(table)
    for host in status["hosts"]:
        if host["unfinished"] is not None and host["unfinished"]["overdue"]:
            console.print(_overdue_text(host))
    if not status["clients"]:
        console.print("no clients")


def _controller_text(controller: dict[str, Any]) -> str:
    text = f"controller: process {controller['pid']}, "
    text += f"standby: process {controller['standby']}" if controller["standby"] else "without a standby"
    times = controller["takeovers"]
    return text + (f"; a standby went on {times} times" if times else "")


def _table(title: str, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        left = column in ("island", "host", "client", "platform", "state", "waits for")
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    return table


def _islands(islands: list[dict[str, Any]]) -> Table:
    table = _table("islands", "island", "hosts", "devices", "in flight", "waiting", "queued ms", "gangs so far")
    for island in islands:
        table.add_row(
            island["name"],
            str(island["hosts"]),
            str(island["devices"]),
            str(island["gangs_in_flight"]),
            str(island["gangs_waiting"]),
            f"{island['queued_ms']:.1f}",
            str(island["gangs_ordered"]),
        )
    return table


def _hosts(hosts: list[dict[str, Any]]) -> Table:
    table = _table(
        "hosts", "host", "platform", "island", "devices", "slices", "buffers", "memory", "moved out", "state"
    )
    for host in hosts:
        limit = host["memory_limit_bytes"]
        memory = core.format_bytes(host["live_bytes"]) + (f" of {core.format_bytes(limit)}" if limit else "")
        table.add_row(
            host["name"],
            host["platform"],
            host["island"],
            f"{host['first_device']}..{host['first_device'] + host['devices'] - 1}",
            str(sum(host["device_slices"])),
            str(host["live_buffers"]),
            memory,
            core.format_bytes(host["staged_bytes"]),
            _state_text(host),
        )
    return table


def _state_text(host: dict[str, Any]) -> str:
    if not host["alive"]:
        return str(host["lost"])
    if host["silent"]:
        return f"silent for {host['silent_ms'] / 1000:.0f} s"
    unfinished = host["unfinished"]
    if unfinished is not None and unfinished["overdue"]:
        return f"nothing finished for {unfinished['still_ms'] / 1000:.0f} s"
    return "alive"


def _overdue_text(host: dict[str, Any]) -> str:
    what = host["unfinished"]
    count = what["computations"]
    engine = (
        "its worker takes messages"
        if what["engine_still_ms"] < _ENGINE_STILL_MS
        else f"its worker's engine has neither taken a message nor computed for {what['engine_still_ms'] / 1000:.1f} s"
    )
    return (
        f"host {host['name']!r} has finished nothing on device {what['device']} for {what['still_ms'] / 1000:.1f} s, "
        f"with {count} computation{'s' if count != 1 else ''} to do; the first is {what['first']} of client "
        f"{what['client']!r}, sent {what['sent_ms'] / 1000:.1f} s ago; {engine}"
    )


def _clients(clients: list[dict[str, Any]]) -> Table:
    table = _table(
        "clients", "client", "weight", "priority", "submitted", "finished", "in flight", "waits for", "waited s",
        "device s", "memory", "connected s",
    )  # fmt: skip
    for client in clients:
        waits = client["waiting_for"]
        if waits and client["waiting_messages"] > 1:
            waits += f" (and {client['waiting_messages'] - 1} messages behind)"
        table.add_row(
            f"{client['name']} (pid {client['pid']})",
            f"{client['weight']:g}",
            str(client["priority"]),
            str(client["gangs_submitted"]),
            str(client["gangs_finished"]),
            str(client["gangs_in_flight"]),
            waits,
            f"{client['waited_seconds']:.3f}",
            f"{client['device_seconds']:.3f}",
            core.format_bytes(client["buffer_bytes"]),
            f"{client['connected_ms'] / 1000:.0f}",
        )
    return table
