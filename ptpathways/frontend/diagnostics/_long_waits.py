"""Waits that last: what is waited for, by which line, and what the hosts that have not answered are doing."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ptpathways import native
from ptpathways.frontend.base import _locator
from ptpathways.frontend.base._due import Due
from ptpathways.frontend.diagnostics import _compile_notice
from ptpathways.frontend.diagnostics._compile_notice import Notice

ASK_S = 1.0
"""A controller or host that does not answer within this time is said not to answer."""
LISTED = 4


@dataclass(frozen=True, slots=True)
class Host:
    """What there is to say of one."""

    name: str
    pid: int = 0
    silent_s: float = 0.0
    """Since the controller heard of it."""
    lost: str = ""
    doing: Sequence[tuple[str, str, float]] | None = ()
    """Sort, what, seconds; None: it does not answer."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What the client, its controller and its hosts know."""

    pending: Sequence[tuple[str, str, Sequence[str], float]] = ()
    """What has not been answered, the oldest first: sort, what, names of hosts, seconds."""
    hosts: Sequence[Host] = ()
    waiting_for: str = ""
    """What the controller waits for before it passes on what this client has submitted."""
    controller_silent: bool = False
    others: Sequence[str] = field(default=())
    """Other clients, with computations under way."""
    sends: Sequence[tuple[str, int]] = ()
    """Hosts to which this client is sending, and how many values."""


def describe(situation: Situation) -> list[str]:
    """Lines that say why a wait has not ended."""
    lines = []
    sorts = {"run": "not done", "compile": "not compiled", "prepare": "not prepared", "fetch": "not fetched"}
    shown = situation.pending[:LISTED]
    for sort, what, hosts, seconds in shown:
        lines.append(f"{sorts[sort]}: {what}, submitted {seconds:.1f} s ago, on {', '.join(hosts)}")
    if len(situation.pending) > len(shown):
        lines.append(f"and {len(situation.pending) - len(shown)} more that were submitted later")
    if situation.controller_silent:
        lines.append(f"the controller has not answered within {ASK_S:.0f} s")
    if situation.waiting_for:
        text = f"the controller holds this client's messages back: it waits for {situation.waiting_for}"
        others = f" (clients with work under way: {', '.join(situation.others)})" if situation.others else ""
        lines.append(text + others)
    for name, count in situation.sends:
        lines.append(f"this process sends {count} value{'s' if count > 1 else ''} to host '{name}'")
    for host in situation.hosts:
        lines += _describe_host(host)
    return [line + f" ({count} times)" * (count > 1) for line, count in Counter(lines).items()]


def _describe_host(host: Host) -> list[str]:
    name = f"host '{host.name}' (pid {host.pid})"
    if host.lost:
        return [f"{name} is lost: {host.lost}"]
    if host.doing is None:
        heard = f"; the controller heard of it {host.silent_s:.1f} s ago" if host.silent_s > ASK_S else ""
        return [f"{name} does not answer{heard}: it is stopped, or its engine hangs"]
    if not host.doing:
        return [f"{name} has nothing to do"]
    return [
        f"{name} {sort} {what}" + (f", for {seconds:.1f} s so far" if seconds > 0 else "")
        for sort, what, seconds in host.doing
    ]


class Watcher:
    """A thread that tells of long waits and long compilations on standard error, or in the notebook.

    Args:
        notice_s: tells of waits of so many seconds; None: of none.
        notice: is shown the compilations under way; None: nobody is.
        every_s: how often it looks.
    """

    def __init__(self, session: native.Session, notice_s: float | None, notice: Notice | None, every_s: float) -> None:
        self._session = session
        self._due = None if notice_s is None else Due(notice_s)
        self._notice = notice
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ptpathways-waits", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(ASK_S)

    def _run(self) -> None:
        own = threading.get_ident()
        silent: set[str] = set()
        while not self._ended.wait(self._every_s):
            if self._notice is not None:
                self._notice.look(_compiles(self._session))
            if self._due is None:
                continue
            silent = _tell_of_silence(silent, set(self._session.silent_hosts()))
            waits = [wait for wait in (*_waits_here(), *native.waits_under_way()) if wait[0] != own]
            due = self._due.pick(waits, time.monotonic())
            if not due:
                continue
            thread, what, seconds = due[0]
            text = f"ptpathways: {_line_of(thread)} has waited {seconds:.0f} s for {what}"
            try:
                lines = describe(look(self._session))
            except Exception as error:  # the session ends meanwhile
                lines = [f"(nothing more is known: {error})"]
            if not self._ended.is_set():
                print("\n  ".join([text, *lines]), file=sys.stderr, flush=True)
        if self._notice is not None:
            self._notice.close()


_here: dict[int, tuple[str, float]] = {}
"""Waits outside of the extension: of a thread, for what, and since when."""


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """For as long as it lasts this thread waits for that, in PyTorch/XLA."""
    own = threading.get_ident()
    _here[own] = what, time.monotonic()
    try:
        yield
    finally:
        del _here[own]


def _waits_here() -> list[tuple[int, str, float]]:
    return [(thread, what, time.monotonic() - since) for thread, (what, since) in list(_here.items())]


def _tell_of_silence(before: set[str], now: set[str]) -> set[str]:
    for name in sorted(now - before):
        print(
            f"ptpathways: the controller has heard nothing of host '{name}' for some seconds: it is stopped or "
            "cut off; what needs it waits for it (lease_s, PTPATHWAYS_LEASE)",
            file=sys.stderr,
            flush=True,
        )
    for name in sorted(before - now):
        print(f"ptpathways: host '{name}' is heard of again, or is lost", file=sys.stderr, flush=True)
    return now


def _compiles(session: native.Session) -> list[_compile_notice.Compile]:
    found = [(what, hosts, seconds) for sort, what, hosts, seconds in session.pending() if sort == "compile"]
    names = [host["name"] for host in session.hosts()] if found else []
    return [(what, [names[host] for host in hosts], seconds) for what, hosts, seconds in found]


def look(session: native.Session) -> Situation:
    """Asks the controller and the hosts that have not answered; takes ``ASK_S`` for each that is silent."""
    pending = session.pending()
    concerned = {host for _, _, hosts, _ in pending for host in hosts}
    described = session.hosts()
    names = [host["name"] for host in described]
    named = [(sort, what, [names[host] for host in hosts], seconds) for sort, what, hosts, seconds in pending]
    try:
        status = json.loads(session.status_json(ASK_S))
    except native.NativeError:
        return Situation(named, controller_silent=True, sends=session.sends())
    hosts = [
        _look_at(session, status["hosts"][number], described[number]["first_device"]) for number in sorted(concerned)
    ]
    own = session.client_index
    waiting = next((client["waiting_for"] for client in status["clients"] if client["client"] == own), "")
    others = [
        f"{c['name']} (pid {c['pid']})" for c in status["clients"] if c["client"] != own and c["gangs_in_flight"] > 0
    ]
    return Situation(named, hosts, waiting, False, others, session.sends())


def _look_at(session: native.Session, host: dict[str, object], device: int) -> Host:
    name, pid, silent = str(host["name"]), int(str(host["pid"])), float(str(host["silent_ms"])) * 1e-3
    if not host["alive"]:
        return Host(name, pid, silent, str(host["lost"]))
    try:
        return Host(name, pid, silent, "", session.activity(device, ASK_S))
    except native.NativeError:
        return Host(name, pid, silent, "", None)


def _line_of(thread: int) -> str:
    main = threading.main_thread().ident or 0
    for number in (thread, main):  # a thread of PyTorch/XLA's waits for the main thread
        # In no variable: this function's own frame is in that dictionary, and a cycle of the two would keep the
        # tensors of all threads' frames until the garbage is collected. What lives is a result of the next program.
        line = _locator.line_of(sys._current_frames().get(number))
        if line:
            return line
    return "this process"


_watcher: Watcher | None = None


def register(session: native.Session, notice_s: float, compile_notice_s: float) -> None:
    """Tells of waits and of compilations that last longer than so many seconds from now on; 0: of none."""
    global _watcher
    given = [seconds for seconds in (notice_s, compile_notice_s) if seconds > 0]
    if given:
        notice = Notice(compile_notice_s, _compile_notice.choose(compile_notice_s)) if compile_notice_s > 0 else None
        _watcher = Watcher(session, notice_s or None, notice, min(1.0, *(seconds / 4 for seconds in given)))
    native.explain_deadlines(lambda: "\n  ".join(["", *describe(look(session))]))


def unregister() -> None:
    global _watcher
    native.explain_deadlines(None)
    if _watcher is not None:
        _watcher.stop()
        _watcher = None
