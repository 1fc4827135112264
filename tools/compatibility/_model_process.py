"""Process that trains models of the table. Arguments: hosts, devices per host, steps, keys. Prints one line of JSON for
each."""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
from typing import Any

import ptpathways as pw
from tools.compatibility._models import MODELS
from tools.compatibility._training import Counters, Trained, train, unchanged


def main() -> None:
    hosts, devices, steps, *keys = sys.argv[1:]
    pw.init(hosts=int(hosts), devices_per_host=int(devices))
    for case in MODELS:
        if case.key not in keys:
            continue
        result: dict[str, Any] = {"key": case.key}
        try:
            eager = train(case, unchanged, int(steps))
            counters = Counters()
            cluster = train(case, pw.prepare, int(steps), counters)
            result |= {"eager": dataclasses.asdict(eager), "cluster": dataclasses.asdict(cluster)}
        except Exception:
            result["error"] = traceback.format_exc()
        print(json.dumps(result), flush=True)


def read(answer: dict[str, Any]) -> tuple[Trained, Trained]:
    """The two runs in a line that the process printed: plain PyTorch's and the cluster's."""
    return Trained(**answer["eager"]), Trained(**answer["cluster"])


if __name__ == "__main__":
    main()
