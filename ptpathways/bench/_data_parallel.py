"""``data-parallel``: a training loop over hosts by ``pw.prepare``, against ``torchrun`` and DistributedDataParallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ptpathways.bench._child import Child
from ptpathways.bench._harness import interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

MODELS = ("digits", "gpt")
CAPTURED = f"{OURS}, captured"
DDP = "torchrun, DDP"
GPT_GOAL = 1.3

_ALONE = "one host's part alone"
_OFF = "without exchange"
_TOLERANCE = 1e-2

Ask = Callable[[Any], dict[str, float]]


class Timed:
    """What a process answers to each request for so many steps."""

    def __init__(self, ask: Ask, request: Mapping[str, Any]) -> None:
        self._ask = ask
        self._request = dict(request)
        self.answers: list[dict[str, float]] = []

    def seconds_per_step(self) -> float:
        self.answers.append(self._ask(self._request))
        return self.answers[-1]["seconds"] / float(self._request["steps"])

    def milliseconds(self, what: str, count: int) -> list[float]:
        """Per step, of the last ``count`` answers: ``submit_seconds`` or ``client_seconds``."""
        return [answer[what] / self._request["steps"] * 1e3 for answer in self.answers[-count:]]


def _run(options: BenchOptions) -> list[Record]:
    hosts = options.hosts or 2
    records: list[Record] = []
    for model in MODELS:
        records += _measure(model, hosts, options)
    return records


def environment(hosts: int, cores: int) -> dict[str, str]:
    """The same threads for every system: the cores divided by the hosts; XLA's, PyTorch's and OpenMP's."""
    threads = str(max(1, cores // hosts))
    return {"NPROC": threads, "OMP_NUM_THREADS": threads}


def _measure(model: str, hosts: int, options: BenchOptions) -> list[Record]:
    # Here and not above: it imports torch, which takes seconds that a list of the workloads need not.
    from ptpathways.bench._data_parallel_loop import SAMPLES_PER_HOST

    steps = options.choose({"digits": 100, "gpt": 10}[model], {"digits": 20, "gpt": 3}[model])
    threads = environment(hosts, os.cpu_count() or 1)
    own = "ptpathways.bench._data_parallel_process"
    launcher = ("--standalone", "--nproc-per-node", str(hosts), "-m", "ptpathways.bench.peers.ddp_peer", model)
    with ExitStack() as stack:
        ours = stack.enter_context(Child(own, model, str(hosts), str(hosts), "lazy", environment=threads))
        replayed = stack.enter_context(Child(own, model, str(hosts), str(hosts), "captured", environment=threads))
        alone = stack.enter_context(Child(own, model, "1", "1", "lazy", environment=threads))
        ddp = stack.enter_context(Child("torch.distributed.run", *launcher, environment=threads))
        timed = {
            OURS: Timed(ours.ask, {"steps": steps}),
            CAPTURED: Timed(replayed.ask, {"steps": steps}),
            DDP: Timed(ddp.ask, {"steps": steps}),
            _ALONE: Timed(alone.ask, {"steps": steps}),
        }
        # Two rounds compile: the first step's graph, which creates the optimizer's state, and the later ones'; the
        # captured loop's third step makes its program.
        values = interleave(
            {name: one.seconds_per_step for name, one in timed.items()}, repeats=options.repeats_or(5, 2), warm_up=2
        )
        # Of the first block: much later, what rounding made different has grown.
        check_losses({name: timed[name].answers[0]["loss"] for name in (OURS, CAPTURED, DDP)})
        # Last, because the replicas part from each other.
        timed[_OFF] = Timed(ddp.ask, {"steps": steps, "exchange": False})
        values[_OFF] = [timed[_OFF].seconds_per_step() for _ in values[DDP]]
    samples = SAMPLES_PER_HOST[model] * hosts
    costs = {
        what: {name: timed[name].milliseconds(key, len(values[name])) for name in (OURS, CAPTURED)}
        for what, key in (("submitting", "submit_seconds"), ("the client's thread", "client_seconds"))
    }
    return figures(model, Setting("data-parallel", hosts, hosts), samples, values, costs)


def check_losses(losses: Mapping[str, float]) -> None:
    """Raises ``RuntimeError`` unless all are alike: everyone made the same steps with the same seed."""
    if max(losses.values()) - min(losses.values()) > _TOLERANCE:
        raise RuntimeError(f"the systems must agree on the loss to within {_TOLERANCE}, got {dict(losses)}")


def figures(
    model: str,
    setting: Setting,
    samples: int,
    seconds: Mapping[str, Sequence[float]],
    costs: Mapping[str, Mapping[str, Sequence[float]]],
) -> list[Record]:
    """Records of one model from ``seconds`` per step, by system and by what bounds each, and parts of a step in ms by
    what and whose; a step has ``samples``."""
    records = [
        setting.record(system, f"{model}: samples", "samples/s", [samples / value for value in seconds[system]])
        for system in (OURS, CAPTURED, DDP)
    ]
    for name, how in ((OURS, ""), (CAPTURED, "captured, ")):
        ratios = [theirs / mine for mine, theirs in zip(seconds[name], seconds[DDP], strict=True)]
        records.append(setting.record(OURS, f"{model}: {how}times DDP's samples/s", "x", ratios))
    for name in (OURS, CAPTURED):
        records.append(setting.record(name, f"{model}: a step", "ms", _ms(seconds[name])))
        records += [setting.record(name, f"{model}: a step, {what}", "ms", costs[what][name]) for what in costs]
    records.append(setting.record(OURS, f"{model}: a step, {_ALONE}", "ms", _ms(seconds[_ALONE])))
    records.append(setting.record(DDP, f"{model}: a step", "ms", _ms(seconds[DDP])))
    records.append(setting.record(DDP, f"{model}: a step, {_OFF}", "ms", _ms(seconds[_OFF])))
    return records


def _ms(seconds: Sequence[float]) -> list[float]:
    return [value * 1e3 for value in seconds]


DATA_PARALLEL = Workload(
    "data-parallel",
    "training the digits net and a small GPT over 2 hosts, against torchrun with DistributedDataParallel (gloo, eager) "
    "in as many processes with as many threads: samples per second, traced and captured, the ratio, and what bounds it",
    _run,
    {f"gpt: {how}times DDP's samples/s": Goal(GPT_GOAL, at_least=True) for how in ("", "captured, ")},
)
