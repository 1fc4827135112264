"""Process of ``step``: the training step on a device of a local cluster of ours. Arguments: hosts, devices per host."""

from __future__ import annotations

import sys

import ptpathways as pw
from ptpathways.bench._child import serve


def main() -> None:
    pw.init(hosts=int(sys.argv[1]), devices_per_host=int(sys.argv[2]))
    from ptpathways.bench._step_loop import Loop

    serve(Loop(pw.device(0), pw.step).answer)
    pw.shutdown()


if __name__ == "__main__":
    main()
