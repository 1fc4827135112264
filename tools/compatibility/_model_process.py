"""Process that trains models of the table. Arguments: hosts, devices per host, steps, keys. Prints one line of JSON for
each."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from typing import Any

import ptpathways as pw
from tools.compatibility._models import MODELS
from tools.compatibility._training import Counters, difference, train, unchanged

LOOP_LINES = 3
"""import ptpathways as pw; pw.init(...); model, optimizer, loader = pw.prepare(model, optimizer, loader)."""


def main() -> None:
    hosts, devices, steps, *keys = sys.argv[1:]
    pw.init(hosts=int(hosts), devices_per_host=int(devices))
    for case in MODELS:
        if case.key not in keys:
            continue
        result: dict[str, Any] = {"key": case.key}
        try:
            eager = train(case, unchanged, int(steps))
            shaken = train(case, unchanged, int(steps), shaken=True)
            counters = Counters()
            cluster = train(case, pw.prepare, int(steps), counters)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", pw.CaptureWarning)
                captured = train(case, pw.prepare, int(steps), captured=True)
            result |= {
                "captured_difference": difference(eager.losses, captured.losses),
                "captured_ms": captured.client_ms,
                "replays": captured.replays,
                "said": [str(warning.message) for warning in said if warning.category is pw.CaptureWarning],
                "eager": eager.losses,
                "noise": difference(eager.losses, shaken.losses),
                "difference": difference(eager.losses, cluster.losses),
                "recompiles": cluster.recompiles,
                "client_ms": cluster.client_ms,
                "lines": LOOP_LINES + case.lines,
                "losses": cluster.losses,
                "fallbacks": cluster.fallbacks,
            }
        except Exception:
            result["error"] = traceback.format_exc()
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
