"""What a captured call hears of a computation that is being handed over while it waits for that."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("torch_xla")

from ptpathways.frontend.capture import _exclusive
from ptpathways.frontend.xla import _xla


def test_a_failure_is_raised_where_the_call_waits_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(devices: list[str]) -> None:
        raise RuntimeError("no room on host0")

    monkeypatch.setattr(_xla, "binding", lambda: SimpleNamespace(_xla_wait_device_ops=fail))
    with pytest.raises(RuntimeError, match="no room on host0"):
        _exclusive._wait_for_hand_over()
    monkeypatch.setattr(_xla, "binding", lambda: SimpleNamespace(_xla_wait_device_ops=lambda devices: None))
    _exclusive._wait_for_hand_over()


def test_a_failure_after_the_wait_was_given_up_is_raised_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def fail_later(devices: list[str]) -> None:
        begun.set()
        go_on.wait(20)
        raise RuntimeError("lost")

    class Interrupted(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            assert begun.wait(20)
            raise KeyboardInterrupt

    monkeypatch.setattr(_xla, "binding", lambda: SimpleNamespace(_xla_wait_device_ops=fail_later))
    with monkeypatch.context() as interrupted:
        interrupted.setattr(threading, "Thread", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            _exclusive._wait_for_hand_over()
    go_on.set()
    for thread in threading.enumerate():
        if isinstance(thread, Interrupted):
            threading.Thread.join(thread, 20)
    monkeypatch.setattr(_xla, "binding", lambda: SimpleNamespace(_xla_wait_device_ops=lambda devices: None))
    with pytest.raises(RuntimeError, match="lost"):
        _exclusive._wait_for_hand_over()
