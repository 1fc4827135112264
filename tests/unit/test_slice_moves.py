"""What a slice asks of the resource manager when it moves."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from ptpathways.frontend.slices import _slice
from ptpathways.sharding import Mesh

ASKED = {"island": "island1", "platform": "cuda", "min_memory_bytes": 1 << 30, "hosts": 2}


class _Manager:
    """A session whose resource manager grants everything, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def request_slice(self, devices: int, **conditions: Any) -> dict[str, Any]:
        self.asked.append({"devices": devices, **conditions})
        return {"slice": len(self.asked), "devices": list(range(devices))}

    def hosts(self) -> list[dict[str, Any]]:
        return [{"name": f"host{number}", "host": number, "alive": True} for number in range(3)]

    def release_slice(self, number: int) -> None:
        pass


@pytest.mark.parametrize(
    ("hosts", "wanted"),
    [(None, ASKED), (["host2"], {**ASKED, "island": "", "hosts": 0, "among": [2]})],
    ids=["anywhere", "named"],
)
def test_a_move_asks_for_devices_of_the_kind_that_the_slice_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, hosts: Any, wanted: dict[str, Any]
) -> None:
    manager: Any = _Manager()
    monkeypatch.setattr(_slice, "current_session", lambda: manager)
    s = _slice.VirtualSlice(manager, Mesh((4,), ("x",)), "s", 7, (0, 1, 2, 3), ASKED)
    s.move(hosts)
    assert manager.asked == [{"devices": 4, **wanted, "timeout_s": 10.0}]
