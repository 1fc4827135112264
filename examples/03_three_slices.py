"""The Pathways paper's figure 2: three compiled functions on three slices of two devices each, as one program.

    python examples/03_three_slices.py                   # three worker processes with two CPU devices each
    python examples/03_three_slices.py --hosts 1         # the same program; all six devices on one host
    python examples/03_three_slices.py --picture f.svg   # also draws the program's graph

Nothing moves through this process: `x` goes from the first slice's host to the other two by itself. The second call of
`f` runs none of its Python; it sends one message per host.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import torch
from torch import Tensor

import ptpathways as pw


def build(cluster: pw.Cluster) -> pw.Program:
    """The program of the paper's figure 2."""
    first, second, third = (cluster.slice(shape=(2,), axis_names=("x",), name=f"s{number}") for number in range(3))

    # Rows are split over the two devices of `first` and of `third`; each device of `second` has all of them.
    @pw.function(slice=first, in_placements=("x",), out_placements=("x",))
    def a(v: Tensor) -> Tensor:
        return v * 2.0

    @pw.function(slice=second)
    def b(v: Tensor) -> Tensor:
        return v + 1.0

    @pw.function(slice=third, in_placements=("x",), out_placements=("x",))
    def c(v: Tensor) -> Tensor:
        return v / 2.0

    @pw.program
    def f(v: Any) -> Any:
        x = a(v)
        y = b(x)
        z = a(c(x))
        return y, z

    program: pw.Program = f
    return program


async def wait_for_both(f: pw.Program) -> None:
    """Futures can be awaited; the event loop goes on meanwhile."""
    y, z = f([10.0, 20.0])
    print("awaited:", (await y).tolist(), (await z).tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=3, choices=(1, 2, 3), help="worker processes (default: 3)")
    parser.add_argument("--runs", type=int, default=200, help="runs to time (default: 200)")
    parser.add_argument("--picture", default="", help="where to write the program's graph as SVG")
    parser.add_argument("--save", default="", help="where to save the program, for `ptpathways replay`")
    options = parser.parse_args()

    cluster = pw.init(hosts=options.hosts, devices_per_host=6 // options.hosts)
    f = build(cluster)
    y, z = f([1.0, 2.0])  # futures, at once
    print("f([1, 2]) =", (y.result().tolist(), z.result().tolist()))
    print(f.trace([1.0, 2.0]))
    asyncio.run(wait_for_both(f))

    # A future goes in where a tensor does. Each run's first result is the next one's argument.
    value = y
    started = time.perf_counter()
    for _ in range(options.runs):
        value, _ = f(value)
    submitted = time.perf_counter() - started
    value.wait()
    total = time.perf_counter() - started
    each = f"{submitted / options.runs * 1e6:.0f} us each to submit, {total / options.runs * 1e6:.0f} us to run"
    print(f"{options.runs} runs of 4 nodes, one after the other: {each}")
    if options.picture:
        print("picture:", f.svg(options.picture, [1.0, 2.0]))
    if options.save:
        print("saved:", f.save(options.save, [1.0, 2.0]))
    assert torch.equal(pw.get(f([0.0, 0.0]))[0], torch.ones(2))


if __name__ == "__main__":
    main()
