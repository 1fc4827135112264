"""Monarch: one process for each host, an actor in each that holds a scalar.

"OpByOp" broadcasts without waiting and waits at the end of the batch; "Chained" is 128 such broadcasts and one wait,
because actors have no recorded programs. In the pipeline an actor does its stages of an item one after the other and
sends the item on, which is faster than a message for each stage. "Fused" is one message that makes each add 128 times.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from monarch.actor import Actor, Channel, current_rank, endpoint, shutdown_context, this_host
from runner import CHAIN, ITEMS, Batch, Setting, ideal_seconds, stage_places, wait_for_stage

_CALLS = 200
_TIMEOUT_S = 60.0


class Holder(Actor):
    """A host."""

    def __init__(self) -> None:
        self.value = 0.0
        self.next: Any = None
        self.stages = 0

    @endpoint
    def add(self) -> float:
        self.value += 1.0
        return self.value

    @endpoint
    def add_many(self) -> float:
        for _ in range(CHAIN):
            self.value += 1.0
        return self.value

    @endpoint
    def meet(self, everyone: Any, hosts: int) -> None:
        """For the pipeline: how many stages are here, and where an item goes then."""
        rank = current_rank().rank
        self.stages = stage_places(hosts).count(rank)
        self.next = everyone.slice(hosts=rank + 1) if rank + 1 < hosts else None

    @endpoint
    def wait(self, item: int, done: Any) -> None:
        for _ in range(self.stages):
            wait_for_stage()
        if self.next is None:
            done.send(item)
        else:
            self.next.wait.broadcast(item, done)


class Monarch:
    """Processes of this machine with an actor each."""

    def __init__(self, setting: Setting) -> None:
        self.versions = {"monarch": importlib.metadata.version("torchmonarch")}
        self._work, self._hosts = setting["work"], setting["hosts"]
        self._processes = this_host().spawn_procs(per_host={"hosts": self._hosts})
        self._holders = self._processes.spawn("holders", Holder)
        self._holders.add.call().get(_TIMEOUT_S)

    def figures(self) -> dict[str, Batch]:
        if self._work == "pipeline":
            self._holders.meet.call(self._holders, self._hosts).get(_TIMEOUT_S)
            return {"pipeline": self._pipeline}
        return {
            "OpByOp": lambda: self._adds(_CALLS),
            "Chained": lambda: self._adds(CHAIN),
            "Fused": self._fused,
            "round trip": self._trip,
        }

    def close(self) -> None:
        self._processes.stop().get(_TIMEOUT_S)
        shutdown_context().get(_TIMEOUT_S)

    def _adds(self, count: int) -> float:
        for _ in range(count - 1):
            self._holders.add.broadcast()
        self._holders.add.call().get(_TIMEOUT_S)  # messages are in order, so this is the last to be done
        return float(count)

    def _fused(self) -> float:
        for _ in range(_CALLS - 1):
            self._holders.add_many.broadcast()
        self._holders.add_many.call().get(_TIMEOUT_S)
        return float(_CALLS * CHAIN)

    def _trip(self) -> float:
        self._holders.add.call().get(_TIMEOUT_S)
        return 1.0

    def _pipeline(self) -> float:
        port, receiver = Channel.open()
        first = self._holders.slice(hosts=0)
        for item in range(ITEMS):
            first.wait.broadcast(item, port)
        for _ in range(ITEMS):
            receiver.recv().get(_TIMEOUT_S)
        return float(ideal_seconds(self._hosts))


open_system = Monarch
