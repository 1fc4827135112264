"""Ray: actors called one by one, and compiled graphs. One actor for each host; it holds a scalar.

"Chained" is a compiled graph of 128 method calls of each actor; "Fused" one method call that adds 128 times. Compiled
graphs are submitted ahead of their results, as far as Ray lets them.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from typing import Any

from runner import CHAIN, ITEMS, Batch, Setting, ideal_seconds, stage_places, wait_for_stage

os.environ.update(
    RAY_AUTH_MODE="disabled",  # else it writes a token into the home folder
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    RAY_CGRAPH_get_timeout="120",
)
import ray
from ray.dag import InputNode, MultiOutputNode

_IN_FLIGHT = 64
_CALLS = 100
_OBJECT_STORE_BYTES = 200 << 20


@ray.remote(num_cpus=0)
class Holder:
    """A host."""

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, _: Any = None) -> float:
        self.value += 1.0
        return self.value

    def add_many(self, _: Any = None) -> float:
        for _turn in range(CHAIN):
            self.value += 1.0
        return self.value

    def wait(self, item: Any) -> Any:
        wait_for_stage()
        return item


def _host() -> Any:
    actor: Any = Holder
    return actor.remote()


class Ray:
    """A local Ray with an actor for each host."""

    def __init__(self, setting: Setting) -> None:
        self.versions = {"ray": ray.__version__}
        self._work = setting["work"]
        self._hosts = setting["hosts"]
        self._holders: list[Any] = []
        self._compiled: tuple[Any, Any] = (None, None)
        ray.init(
            address="local",
            num_cpus=setting["hosts"] + 1,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            _temp_dir=tempfile.gettempdir(),  # whoever started this process removes it
        )

    def figures(self) -> dict[str, Batch]:
        if self._work == "pipeline":
            return {
                "pipeline": self._pipeline_of_graph,
                "pipeline, actor calls": self._pipeline_of_calls,
            }
        return {
            "OpByOp": lambda: self._flood(self._graph(self._one), _CALLS),
            "OpByOp, actor calls": self._actor_calls,
            "Chained": lambda: self._flood(self._graph(self._chain), 10) * CHAIN,
            "Fused": lambda: self._flood(self._graph(self._fused), _CALLS) * CHAIN,
            "round trip": lambda: self._flood(self._graph(self._one), 1),
            "round trip, actor calls": self._actor_call,
        }

    def close(self) -> None:
        self._tear_down()
        ray.shutdown()

    def _graph(self, build: Any) -> Any:
        """The compiled graph that ``build`` makes of fresh actors; None: none, for calls.

        An actor serves one compiled graph at a time, so there is one graph at a time.
        """
        known, graph = self._compiled
        if known == build and self._holders:
            return graph
        self._tear_down()
        self._holders = [_host() for _ in range(self._hosts)]
        ray.get([holder.add.remote() for holder in self._holders])
        graph = None
        if build is not None:
            with InputNode() as given:
                graph = build(given).experimental_compile(_max_inflight_executions=_IN_FLIGHT)
        self._compiled = (build, graph)
        return graph

    def _tear_down(self) -> None:
        if self._compiled[1] is not None:
            self._compiled[1].teardown(kill_actors=True)
        self._compiled, self._holders = (None, None), []

    def _one(self, given: Any) -> Any:
        return MultiOutputNode([holder.add.bind(given) for holder in self._holders])

    def _chain(self, given: Any) -> Any:
        lasts = []
        for holder in self._holders:
            value = given
            for _ in range(CHAIN):
                value = holder.add.bind(value)
            lasts.append(value)
        return MultiOutputNode(lasts)

    def _fused(self, given: Any) -> Any:
        return MultiOutputNode([holder.add_many.bind(given) for holder in self._holders])

    def _pipeline(self, given: Any) -> Any:
        value = given
        for host in stage_places(self._hosts):
            value = self._holders[host].wait.bind(value)
        return value

    def _flood(self, graph: Any, runs: int) -> float:
        """``runs`` of the graph, at most ``_IN_FLIGHT`` ahead of their results."""
        waiting: deque[Any] = deque()
        for _ in range(runs):
            if len(waiting) == _IN_FLIGHT:
                ray.get(waiting.popleft())
            waiting.append(graph.execute(0))
        while waiting:
            ray.get(waiting.popleft())
        return runs

    def _actor_calls(self) -> float:
        self._graph(None)
        ray.get([holder.add.remote() for _ in range(_CALLS) for holder in self._holders])
        return _CALLS

    def _actor_call(self) -> float:
        self._graph(None)
        ray.get([holder.add.remote() for holder in self._holders])
        return 1.0

    def _pipeline_of_graph(self) -> float:
        self._flood(self._graph(self._pipeline), ITEMS)
        return float(ideal_seconds(self._hosts))

    def _pipeline_of_calls(self) -> float:
        self._graph(None)
        items = []
        for item in range(ITEMS):
            value: Any = item
            for host in stage_places(self._hosts):
                value = self._holders[host].wait.remote(value)
            items.append(value)
        ray.get(items)
        return float(ideal_seconds(self._hosts))


open_system = Ray
