"""Process of ``data-parallel``: the training loop prepared by ``pw.prepare``. Arguments: the model, hosts, how many
hosts' samples a step has, and ``lazy`` or ``captured``."""

from __future__ import annotations

import sys

import ptpathways as pw
from ptpathways.bench._child import serve


def main() -> None:
    name, hosts, parts, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    pw.init(hosts=hosts)
    from ptpathways.bench._data_parallel_loop import Batches, Loop, make, step_of

    model, optimizer = make(name)
    step, batches = step_of(model, optimizer), Batches(name, parts, slice(None))
    model, optimizer, batches, step = pw.prepare(model, optimizer, batches, step, capture=how == "captured")
    serve(Loop(step, batches).answer)
    pw.shutdown()


if __name__ == "__main__":
    main()
