"""Process of ``operators``: calls of one operator, without waiting in between. Argument: ``ours`` or ``eager``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import ptpathways as pw
from ptpathways.bench._child import serve
from ptpathways.bench._operator_cases import operator

_Ready = tuple[Callable[..., Any], list[Any], Callable[[Any], float]]
"""A function, its arguments, and what waits for a result: the sum of its magnitudes."""


def _eager(name: str, which: str) -> _Ready:
    one = operator(name)
    return one.function(which), one.arguments(which), lambda result: float(result.abs().sum())


def _on(slice: pw.VirtualSlice) -> Callable[[str, str], _Ready]:
    def ready(name: str, which: str) -> _Ready:
        one = operator(name)
        keep: Any = pw.function(lambda *values: tuple(value * 1.0 for value in values), slice=slice, name="keep")
        called: Any = pw.function(one.function(which), slice=slice, name="operator")
        total: Any = pw.function(lambda result: result.abs().sum(), slice=slice, name="total")
        return called, list(keep(*one.arguments(which))), lambda result: float(total(result).result())

    return ready


def answerer(make: Callable[[str, str], _Ready]) -> Callable[[Any], Any]:
    """For ``serve``: {"name", "pass", "calls"} to the seconds that one call takes, and to the sum of its magnitudes."""
    made: dict[tuple[str, str], _Ready] = {}

    def answer(request: Any) -> Any:
        key = (request["name"], request["pass"])
        if key not in made:
            torch.manual_seed(0)
            made[key] = make(*key)
        function, arguments, total = made[key]
        total(function(*arguments))
        start = time.perf_counter()
        result: Tensor | None = None
        for _ in range(request["calls"]):
            result = function(*arguments)
        value = total(result)
        return {"seconds": (time.perf_counter() - start) / request["calls"], "sum": value}

    return answer


def main() -> None:
    if sys.argv[1] == "eager":
        serve(answerer(_eager))
        return
    cluster = pw.init(hosts=1, devices_per_host=1)
    with cluster.slice(shape=(1,)) as one:
        serve(answerer(_on(one)))
    pw.shutdown()


if __name__ == "__main__":
    main()
