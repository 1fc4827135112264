"""How fast a GPU plugin copies ordinary and pinned host memory: ``python -m tests.device.pinned_copies PLUGIN.so``.

Needs pypjrt, and nothing of ptpathways: what a worker can reach at best.
"""

from __future__ import annotations

import functools
import mmap
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pypjrt._loader import Plugin
from pypjrt.client import Client, Event
from pypjrt.transfer import ShapeSpec

SIZE = 64 << 20
"""Bytes of one copy."""
PIECES_MIB = (2, 8, 64)

_F32 = 11
_IN_FLIGHT = 4
_REPEATS = 5


class Copies:
    """Copies between the first device and a region of shared memory, as workers have them."""

    def __init__(self, plugin: Any, client: Any, device: Any) -> None:
        self._plugin, self._client, self._device = plugin, client, device
        self.region = np.frombuffer(mmap.mmap(-1, SIZE), np.uint8)
        self.region[:] = 1
        self._there = client.buffer_from_host(np.ones(SIZE // 4, np.float32), _F32, [SIZE // 4], device)

    def _call(self, name: str, **values: Any) -> Any:
        arguments = self._plugin.args(f"{name}_Args", **values)
        self._plugin.call(name, arguments)
        return arguments

    def pin(self) -> float:
        """Seconds that it takes."""
        start = time.perf_counter()
        self._call("PJRT_Client_DmaMap", client=self._client._check(), data=self.region.ctypes.data, size=SIZE)
        return time.perf_counter() - start

    def to_device(self, piece: int) -> None:
        """In pieces of so many bytes, several of which are in flight."""
        manager = self._client.async_transfer([ShapeSpec(_F32, (SIZE // 4,))], device=self._device)
        buffer = manager.retrieve(0)
        flying: list[Any] = []
        for offset in range(0, SIZE, piece):
            if len(flying) >= _IN_FLIGHT:
                flying.pop(0).consume()
            sent = self._call(
                "PJRT_AsyncHostToDeviceTransferManager_TransferData",
                transfer_manager=manager._check(),
                buffer_index=0,
                data=self.region.ctypes.data + offset,
                offset=offset,
                transfer_size=piece,
                is_last_transfer=offset + piece >= SIZE,
            )
            flying.append(Event(self._plugin, sent.done_with_h2d_transfer))
        ready = self._call("PJRT_Buffer_ReadyEvent", buffer=buffer._check())
        for event in (*flying, Event(self._plugin, ready.event)):
            event.consume()
        buffer.close()
        manager.close()

    def from_device(self) -> None:
        """The whole array."""
        copied = self._call(
            "PJRT_Buffer_ToHostBuffer", src=self._there._check(), dst=self.region.ctypes.data, dst_size=SIZE
        )
        Event(self._plugin, copied.event).consume()

    def show(self, kind: str) -> None:
        """Measures all ways with the region as it is."""
        ways: dict[str, Callable[[], None]] = {
            f"to the device in pieces of {mib} MiB": functools.partial(self.to_device, mib << 20) for mib in PIECES_MIB
        }
        for name, copy in (ways | {"from the device": self.from_device}).items():
            seconds = []
            for _ in range(_REPEATS + 1):
                start = time.perf_counter()
                copy()
                seconds.append(time.perf_counter() - start)
            print(f"{kind}, {name}: {SIZE / statistics.median(seconds[1:]) / 1e9:.1f} GB/s", flush=True)


def main() -> None:
    plugin = Plugin(sys.argv[1])
    client = Client.create(plugin, options={"platform_name": "cuda", "preallocate": False})
    with client.devices() as devices:
        copies = Copies(plugin, client, devices[0])
        copies.show("ordinary memory")
        print(f"pinning {SIZE >> 20} MiB took {1e3 * copies.pin():.1f} ms")
        copies.show("pinned memory")


if __name__ == "__main__":
    main()
