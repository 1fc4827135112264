"""Process of ``step`` and ``train``: training steps on the first device of a local cluster of ours.

Arguments: the training's name, ``lazy`` or ``captured``, hosts, devices per host.
"""

from __future__ import annotations

import sys

import ptpathways as pw
from ptpathways.bench._child import serve


def main() -> None:
    name, how, hosts, devices = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    pw.init(hosts=hosts, devices_per_host=devices)
    from ptpathways.bench._step_loop import Loop

    if how == "captured":
        serve(Loop(name, pw.device(0), wrap=lambda model, optimizer, step: pw.program(step, kind="step")).answer)
    else:
        serve(Loop(name, pw.device(0), pw.step).answer)
    pw.shutdown()


if __name__ == "__main__":
    main()
