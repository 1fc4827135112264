"""Process of ``data-parallel``: the training loop prepared by ``pw.prepare``. Arguments: the model, hosts, and how many
hosts' samples a step has."""

from __future__ import annotations

import sys

import ptpathways as pw
from ptpathways.bench._child import serve


def main() -> None:
    name, hosts, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    pw.init(hosts=hosts)
    from ptpathways.bench._data_parallel_loop import Batches, Loop, make

    model, optimizer = make(name)
    model, optimizer, batches = pw.prepare(model, optimizer, Batches(name, parts, slice(None)))
    serve(Loop(model, optimizer, batches).answer)
    pw.shutdown()


if __name__ == "__main__":
    main()
