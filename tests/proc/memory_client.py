"""One of many clients of a tight cluster: holds a tensor, adds to it again and again, and says what came out.

``python -m tests.proc.memory_client ADDRESS MIB RUNS``; prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from ptpathways import native

WAIT_S = 120.0


def add_module(elements: int) -> bytes:
    """Adds one to a float32 vector."""
    vector = f"tensor<{elements}xf32>"
    return f"""module @add {{
  func.func public @main(%a: {vector}) -> {vector} {{
    %c = stablehlo.constant dense<1.0> : tensor<f32>
    %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> {vector}
    %0 = stablehlo.add %a, %b : {vector}
    return %0 : {vector}
  }}
}}""".encode()


def main(address: str, mib: int, runs: int) -> None:
    """Runs the client."""
    native.load()
    elements = mib << 18
    start_s = time.monotonic()
    with native.Session.connect(address, "memory_client", WAIT_S) as session:
        add = session.register(add_module(elements), "mlir", name="add")
        kept = session.put(np.arange(elements, dtype=np.float32), 0)
        value = kept
        for _ in range(runs):
            (value,) = session.run(add, [value], 0)
        result = value.result(WAIT_S)
        first = kept.result(WAIT_S)
    correct = bool(
        np.array_equal(result, np.arange(elements, dtype=np.float32) + np.float32(runs))
        and np.array_equal(first, np.arange(elements, dtype=np.float32))
    )
    print(json.dumps({"correct": correct, "seconds": time.monotonic() - start_s}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
