"""Faults one after another, each judged: lanes of a campaign, each with clusters of its own."""

from __future__ import annotations

import os
import queue
import select
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ptpathways.testing import wait_until
from tests.chaos import faults, judge, plan
from tests.chaos.cluster import END_S, START_S, Cluster, Told
from tests.chaos.judge import Seen, Verdict
from tests.chaos.place import Place
from tests.chaos.plan import Expectation, Fault
from tests.chaos.reference import Reference

HANG_S = 80.0
"""After the end of a fault. Longer than any promise."""
PATIENCE_S = 12.0
"""For an error that is expected within 5 s, while steps go on."""
HEALTHY_STEPS = 3
FOR_EVER = 1 << 40
DESCRIPTORS_MORE = 8
"""So many more a member may have after faults than before."""

Sabotage = Callable[[Cluster], None]


class Lane:
    """Runs faults, one at a time, on clusters that it starts when it needs one."""

    def __init__(self, folder: Path, number: int, reference: Reference, say: Callable[[str], None]) -> None:
        self.place = Place(folder / f"lane{number}", number)
        self.verdicts: list[Verdict] = []
        self._number, self._reference, self._say = number, reference, say
        self._cluster: Cluster | None = None
        self._lives = 0
        self._step = 0
        self._descriptors: dict[str, tuple[int, int]] = {}
        """Of each member: its process, and how many it had when a loop first went well."""
        self._seen: Seen | None = None
        self.hang_s = HANG_S

    def run(self, sequence: Iterable[Fault], until_s: float, sabotage: dict[int, Sabotage] | None = None) -> None:
        """Until there are no more or the time has come. ``sabotage``: what else to do with some faults, by number."""
        try:
            for number, fault in enumerate(sequence):
                if time.monotonic() > until_s:
                    break
                if fault.kind == "clock jump" and not self.place.has_clocks:
                    continue
                try:
                    self._one(fault, (sabotage or {}).get(number))
                except Exception as error:
                    self._broken(fault, error)
        finally:
            if self._cluster is not None:
                self._end_cluster()
            self.place.close()

    def _one(self, fault: Fault, sabotage: Sabotage | None) -> None:
        expected = plan.expectation(fault)
        seen = Seen(fault, 0.0, 0.0, load=os.getloadavg()[0])
        cluster = self._healthy(seen)
        if not seen.hung:
            self._observe(cluster, fault, expected, seen, sabotage)
        broken = seen.hung or seen.error is not None or expected.ends_the_loop
        if broken:
            self._clear_away(cluster, fault, seen)
        before = self._step
        if seen.steps:
            self._step = seen.steps[-1][1]["step"]
        reference = self._reference.up_to(self._step)
        wrong = judge.wrong_values([step for _, step in seen.steps], reference, before)
        if broken:
            self._step = 0
        verdict = judge.judge(seen, expected, wrong)
        self.verdicts.append(verdict)
        mark = (
            "" if verdict.right else f"   <-- expected {verdict.expected}: {verdict.why} {wrong[:3]} {seen.leftovers}"
        )
        times = [
            f"{what} after {value:.2f} s"
            for what, value in (("noticed", verdict.detected_s), ("next step", verdict.resumed_s))
            if value is not None
        ]
        self._say(f"{self._number}.{len(self.verdicts) - 1} {fault}: {verdict.outcome} {', '.join(times)}{mark}")
        if mark:
            self._keep_log(cluster)

    def _broken(self, fault: Fault, error: Exception) -> None:
        """Something that is no part of a fault went wrong: members did not start, or the campaign has a mistake."""
        expected = plan.expectation(fault).outcome
        why = "".join(traceback.format_exception(error))
        self.verdicts.append(Verdict(fault, "broken", expected, None, None, (), (), os.getloadavg()[0], 0, why))
        self._say(f"{self._number}.{len(self.verdicts) - 1} {fault}: broken: {why}")
        cluster, self._cluster, self._step = self._cluster, None, 0
        if cluster is not None:
            self._keep_log(cluster)
            cluster.kill()

    # --- one fault

    def _observe(
        self, cluster: Cluster, fault: Fault, expected: Expectation, seen: Seen, sabotage: Sabotage | None
    ) -> None:
        if sabotage is not None:
            sabotage(cluster)
        seen.begun_s = time.monotonic()
        undo = faults.begin(cluster, fault)
        if expected.outcome == "refused":
            self._ask_for_too_much(cluster, fault, seen)
        else:
            self._listen(cluster, seen, seen.begun_s + fault.seconds or None)
        undo()
        seen.ended_s = time.monotonic()
        if expected.outcome == "refused" and not seen.error:
            self._ask_again(cluster, fault, seen)
        if expected.outcome == "collected":
            self._await_collection(cluster, expected, seen)
        elif seen.error is None and not seen.hung:
            self._await_steps(cluster, expected, seen)
        seen.noticed_s = self._noticed(cluster, fault, seen.begun_s)

    def _listen(self, cluster: Cluster, seen: Seen, until_s: float | None) -> None:
        """Takes what the loop says until then, or until it ends; None: what it has said."""
        while seen.error is None:
            wait_s = 0.0 if until_s is None else until_s - time.monotonic()
            try:
                told = cluster.members["client"].told.get(timeout=max(1e-3, wait_s))
            except queue.Empty:
                return
            self._take(told, seen)
            if until_s is not None and time.monotonic() > until_s:
                return

    def _take(self, told: Told, seen: Seen) -> None:
        match told.what:
            case {"step": _}:
                seen.steps.append((told.at_s, told.what))
            case {"refused": True, "error": str(name), "message": str(message)}:
                seen.refusal = (told.at_s, name, message)
            case {"error": str(name), "message": str(message)}:
                seen.error = (told.at_s, name, message)
            case {"ended": True} if seen.error is None:
                seen.error = (told.at_s, "end", "the loop ended without an error")

    def _await_steps(self, cluster: Cluster, expected: Expectation, seen: Seen) -> None:
        """Until the loop goes on after the fault, or ends; where it is to end it is given some time."""
        patience_s = seen.ended_s + (PATIENCE_S if expected.outcome == "named" else 0.0)
        while seen.error is None:
            now_s = time.monotonic()
            after = [at_s for at_s, _ in seen.steps if at_s > seen.ended_s]
            if len(after) >= HEALTHY_STEPS and after[-1] > patience_s:
                return
            if now_s > seen.ended_s + self.hang_s and len(after) < HEALTHY_STEPS:
                seen.hung = f"a step, {self.hang_s:.0f} s after the fault"
                return
            self._listen(cluster, seen, now_s + 0.1)

    def _ask_for_too_much(self, cluster: Cluster, fault: Fault, seen: Seen) -> None:
        client = cluster.members["client"]
        if fault.kind == "disk full":
            client.ask(do="save", path=str(cluster.place.disk / f"checkpoint{len(self.verdicts)}"))
        else:
            client.ask(do="refuse", rows=faults.TOO_MANY_ROWS)
        self._answer(cluster, seen)

    def _ask_again(self, cluster: Cluster, fault: Fault, seen: Seen) -> None:
        """What was refused is allowed now, and what the refused attempt wrote is gone."""
        client = cluster.members["client"]
        client.ask(do="run", until=FOR_EVER)
        if fault.kind != "disk full":
            return
        path = cluster.place.disk / f"checkpoint{len(self.verdicts)}"
        first, seen.refusal = seen.refusal, None
        client.ask(do="save", path=str(path))
        self._answer(cluster, seen)
        seen.allowed_later, seen.refusal = seen.refusal is None, first
        written = [each.name for each in path.iterdir()] if path.exists() else []
        strange = [
            name for name in written if name not in ("manifest.json", ".lock") and not name.endswith(".safetensors")
        ]
        seen.leftovers += [f"file {path / name}" for name in strange]
        for name in written:
            (path / name).unlink()
        client.ask(do="run", until=FOR_EVER)

    def _answer(self, cluster: Cluster, seen: Seen) -> None:
        """Takes what the loop says until it has answered."""
        deadline_s = time.monotonic() + self.hang_s
        while seen.error is None:
            try:
                told = cluster.members["client"].told.get(timeout=max(1e-3, deadline_s - time.monotonic()))
            except queue.Empty:
                seen.hung = "an answer of the loop"
                return
            self._take(told, seen)
            if "allowed" in told.what or "refused" in told.what:
                return

    def _await_collection(self, cluster: Cluster, expected: Expectation, seen: Seen) -> None:
        """Of a client that was killed: the log says so, and the hosts hold nothing of it."""
        deadline_s = seen.begun_s + PATIENCE_S
        while time.monotonic() < deadline_s and seen.collected_s is None:
            said = cluster.heard(expected.names, "controller", seen.begun_s)
            seen.collected_s = said.at_s if said else None
            select.select([], [], [], 0.02)
        try:
            wait_until(lambda: self._held(cluster) == 0, END_S)
        except AssertionError:
            seen.leftovers.append(f"{self._held(cluster)} buffers of the client that was killed")

    def _held(self, cluster: Cluster) -> int:
        return sum(host["live_buffers"] for host in cluster.hosts())

    def _noticed(self, cluster: Cluster, fault: Fault, since_s: float) -> float | None:
        """When a log of somebody else first spoke of a member that was stopped."""
        if not fault.kind.startswith("stop"):
            return None
        if fault.target == "controller":
            patterns = [("client", r"the controller does not answer|controller")]
        elif fault.target == "client":
            patterns = [("controller", r"nothing was heard of client")]
        else:
            patterns = [("controller", rf"nothing was heard of host '{fault.target}'")]
        found = [cluster.heard(pattern, member, since_s) for member, pattern in patterns]
        return min((said.at_s for said in found if said is not None), default=None)

    # --- clusters

    def _healthy(self, seen: Seen) -> Cluster:
        """A cluster whose loop goes on. What is missing of it is started."""
        cluster = self._cluster
        if cluster is None:
            self._lives += 1
            cluster = self._cluster = Cluster(self.place, f"lane{self._number}-life{self._lives}")
        for name in ("a", "b"):
            if cluster.members[name].process.poll() is not None:
                cluster.start(name)
        fresh = "client" not in cluster.members or cluster.members["client"].process.poll() is not None
        if fresh:
            cluster.wait_for_hosts()
            cluster.start("client").ask(do="run", until=FOR_EVER)
        now_s = seen.ended_s = time.monotonic()
        deadline_s = now_s + (START_S if fresh else self.hang_s)
        steps = 30 if fresh else HEALTHY_STEPS
        while seen.error is None and sum(at_s > now_s for at_s, _ in seen.steps) < steps:
            if time.monotonic() > deadline_s:
                seen.hung = "a step, before the fault"
                break
            self._listen(cluster, seen, time.monotonic() + 0.1)
        if fresh and seen.error is None and not seen.hung:
            self._count_descriptors(cluster, seen)
        return cluster

    def _count_descriptors(self, cluster: Cluster, seen: Seen) -> None:
        """Leaving them open is leaving something behind. Counted when a loop has just begun."""
        for name, count in cluster.descriptors().items():
            pid = cluster.members[name].pid
            known, before = self._descriptors.get(name, (0, 0))
            if known != pid:
                self._descriptors[name] = (pid, count)
            elif count > before + DESCRIPTORS_MORE:
                seen.leftovers.append(f"descriptors: {name} had {before} with its first client and has {count} now")

    def _clear_away(self, cluster: Cluster, fault: Fault, seen: Seen) -> None:
        """After a loop has ended: members end by themselves; after a hang, or without a controller, all go."""
        controller_gone = cluster.members["controller"].process.poll() is not None
        if seen.hung or controller_gone:
            if seen.hung:
                self._keep_log(cluster)
            for name in ("a", "b", "client"):
                if seen.hung and name in cluster.members:
                    cluster.members[name].close()  # waits: what still ends would not be started again
            self._end_cluster(seen)
            return
        message = seen.error[2] if seen.error else ""
        for name in ["client", *(name for name in plan.WORKERS if f"host '{name}'" in message and "lost" in message)]:
            try:
                cluster.members[name].process.wait(END_S)
            except subprocess.TimeoutExpired:
                seen.leftovers.append(f"process {name} has not ended {END_S:.0f} s after the loop")
                cluster.members[name].close()
        try:
            wait_until(lambda: self._held(cluster) == 0, END_S)
        except AssertionError:
            seen.leftovers.append(f"{self._held(cluster)} buffers of a client that has ended")

    def _end_cluster(self, seen: Seen | None = None) -> None:
        assert self._cluster is not None
        left = self._cluster.close()
        self._keep_log(self._cluster)
        self._cluster = None
        self._descriptors.clear()
        if seen is not None:
            seen.leftovers += left
        elif left and self.verdicts:
            last = self.verdicts[-1]
            fields = {name: getattr(last, name) for name in last.__slots__} | {"leftovers": (*last.leftovers, *left)}
            self.verdicts[-1] = Verdict(**fields)
            self._say(f"{self._number}: left of the last cluster: {left}")

    def _keep_log(self, cluster: Cluster) -> None:
        lines = [f"{said.at_s:.3f} {said.member}: {said.line}" for said in list(cluster.said)]
        (self.place.folder / f"{cluster.life}.log").write_text("\n".join(lines))


def split(sequence: Iterable[Fault], lanes: int, lane: int, only: str = "") -> Iterable[Fault]:
    """Every ``lanes``-th fault, from number ``lane`` on, of those whose text contains ``only``."""
    chosen = (fault for fault in sequence if only in str(fault))
    return (fault for number, fault in enumerate(chosen) if number % lanes == lane)


def all_verdicts(lanes: Sequence[Lane]) -> list[Verdict]:
    return [verdict for lane in lanes for verdict in lane.verdicts]
