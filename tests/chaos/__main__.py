"""``python -m tests.chaos``: runs a campaign and prints its table. Exit code 1: something came out otherwise."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos import faults, plan, report
from tests.chaos.campaign import Lane, Sabotage, all_verdicts, split
from tests.chaos.cluster import Cluster
from tests.chaos.place import ENCLOSED, enclose
from tests.chaos.reference import Reference


def damage(cluster: Cluster) -> None:
    """Changes the state on the devices."""
    cluster.members["client"].ask(do="damage")


def stop_for_ever(cluster: Cluster) -> None:
    faults.begin(cluster, plan.Fault("stop 6 s", "b"))


def leave_behind(cluster: Cluster) -> None:
    faults.leave_segment(cluster)
    faults.leave_process(cluster)


SABOTAGED = [plan.Fault("reset", "client-b")] * 3
SABOTAGES: dict[int, Sabotage] = {0: damage, 1: leave_behind, 2: stop_for_ever}
"""What ``--sabotage`` does with each of these, so that a campaign can be seen to fail."""
SABOTAGED_HANG_S = 8.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--lanes", type=int, default=2, help="clusters at the same time")
    parser.add_argument("--short", action="store_true", help="a selection that takes a minute, on one cluster")
    parser.add_argument("--only", default="", help="faults whose text contains this")
    parser.add_argument("--sabotage", action="store_true", help="breaks things, to see that they are reported")
    parser.add_argument("--json", type=Path, help="writes what came of each fault, one object a line")
    parser.add_argument("--keep", type=Path, help="folder for the clusters' logs; default: a temporary one")
    options = parser.parse_args(arguments)
    why_not = enclose(arguments)
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return campaign(options, folder, why_not)


def campaign(options: argparse.Namespace, folder: Path, why_not: str) -> int:
    started_s = time.monotonic()
    until_s = started_s + 60 * options.minutes

    def say(line: str) -> None:
        print(f"{time.monotonic() - started_s:7.1f} {line}", flush=True)

    if not os.environ.get(ENCLOSED):
        say(f"no network namespaces ({why_not}): all members are on loopback, behind proxies")
    count = 1 if options.short or options.sabotage else options.lanes
    reference = Reference(folder / "reference")
    lanes = [Lane(folder, number, reference, say) for number in range(count)]
    if not lanes[0].place.has_clocks:
        say("no clock jumps: there is no C compiler for the library that makes them")
    jobs = []
    for number, lane in enumerate(lanes):
        sequence = plan.short(options.seed) if options.short else plan.rounds(options.seed)
        chosen = SABOTAGED if options.sabotage else split(sequence, count, number, options.only)
        sabotage = None
        if options.sabotage:
            lane.hang_s = SABOTAGED_HANG_S
            sabotage = SABOTAGES
        jobs.append(functools.partial(lane.run, chosen, until_s, sabotage))
    try:
        with ThreadPoolExecutor() as pool:
            for job in [pool.submit(job) for job in jobs]:
                job.result()
    finally:
        reference.close()
    verdicts = all_verdicts(lanes)
    if options.json is not None:
        with open(options.json, "w") as file:
            file.writelines(json.dumps(dataclasses.asdict(each)) + "\n" for each in verdicts)
    wrong = report.failures(verdicts)
    print(report.table(verdicts))
    print(f"\nseed {options.seed}, {len(verdicts)} faults, {len(lanes)} clusters at a time")
    print(report.surroundings(verdicts))
    print("\n".join(["", "not as promised:", *wrong] if wrong else ["all as promised"]), flush=True)
    return 1 if wrong or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
