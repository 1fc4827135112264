"""Windows, rates and delivery of metrics, without a cluster."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ptpathways import core, metrics
from ptpathways.metrics._delivery import Delivery, Entry, Parcel
from ptpathways.metrics._rates import Rates, Sample
from ptpathways.metrics._window import Windows


def test_each_name_has_a_window_of_its_own() -> None:
    windows = Windows()
    assert windows.add({"a": 1.0, "b": 2.0}, None, 2) == {}
    full = windows.add({"a": 3.0}, None, 2)
    assert list(full) == ["a"] and full["a"].values == [1.0, 3.0]
    assert (full["a"].first, full["a"].last) == (1, 2)
    full = windows.add({"b": 4.0, "c": 5.0}, 70, 2)
    assert list(full) == ["b"] and (full["b"].first, full["b"].last) == (1, 70)
    rest = windows.take()
    assert {name: window.values for name, window in rest.items()} == {"c": [5.0]}
    assert windows.take() == {}
    assert windows.add({"c": 1.0}, None, 1)["c"].last == 71, "a name's steps go on from the last"


def test_rates_are_those_of_the_last_seconds() -> None:
    rates = Rates(devices=2)
    assert rates.text({}) == ""
    for second in range(31):
        fast = max(0, second - 10)
        rates.add(Sample(float(second), fast, 32 * fast, second * 0.25, second * 1.0))
    said = rates.text({"loss": 0.12345, "acc": 1.0})
    assert said == "32 samples/s, loss 0.1235, acc 1, devices busy 50%, client waits 25%"
    unknown = Rates()
    unknown.add(Sample(0.0, 0, 0, 0.0, None))
    unknown.add(Sample(1.0, 250, 0, 0.0, None))
    assert unknown.text({}) == "250 batches/s, client waits 0%"
    assert unknown.text(dict.fromkeys("abcdef", 1.0)).count(" 1") == 4, "a line stays a line"


class Slow(metrics.Callback):
    """Waits for the test."""

    def __init__(self, seen: list[int], go: threading.Event) -> None:
        super().__init__(lambda step, values: seen.append(step))
        self._go = go

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes when it may."""
        assert self._go.wait(30)
        super().write(step, values)


def test_a_slow_sink_holds_up_nobody_and_flush_says_what_it_waits_for() -> None:
    seen: list[int] = []
    go = threading.Event()
    delivery = Delivery()
    delivery.set_sinks([Slow(seen, go)])
    for step in (1, 2, 3):
        delivery.send(Parcel(step, [Entry("loss", step, step, [1.0, 2.0])]))
    with pytest.raises(core.DeadlineExceeded, match="Slow"):
        delivery.flush(0.01)
    assert seen == []
    go.set()
    delivery.flush(30)
    assert seen == [1, 2, 3]
    assert delivery.latest() == (3, {"loss": 1.5})
    assert delivery.take_problems() == []


def test_lines_of_json_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "metrics.jsonl"
    for step in (1, 2):
        sink = metrics.JsonLines(path)
        assert isinstance(sink, metrics.Sink)
        sink.write(step, {"loss": 0.5})
        sink.close()
    assert [line[:10] for line in path.read_text().splitlines()] == ['{"step": 1', '{"step": 2']
