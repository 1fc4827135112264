"""``step``: a training step on one device of a worker, against PyTorch/XLA's own CPU device in its own process."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

from ptpathways.bench._child import Child
from ptpathways.bench._harness import Measure, interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import BenchOptions, Goal, Workload

_META_REFERENCE = "TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE"
_TOLERANCE = 1e-2
_TRAINING = "gpt 4/128"


def _run(options: BenchOptions) -> list[Record]:
    size = options.cluster(hosts=1)
    steps = options.choose(20, 5)
    losses: dict[str, float] = {}
    submits: dict[str, list[float]] = defaultdict(list)

    def measure(name: str, child: Child) -> Measure:
        def milliseconds_per_step() -> float:
            answer = child.ask({"steps": steps})
            losses[name] = answer["loss"]
            submits[name].append(answer["submit_seconds"] / steps * 1e3)
            return float(answer["seconds"]) / steps * 1e3

        return milliseconds_per_step

    with ExitStack() as stack:
        ours = Child("ptpathways.bench._step_process", _TRAINING, "lazy", str(size.hosts), str(size.devices_per_host))
        # The setting that importing ptpathways makes speeds up every tracer; the first peer has it, too, so that the
        # ratio tells the cost of being remote and nothing else. The second is what a user of PyTorch/XLA gets.
        peer = Child("ptpathways.bench.peers.torch_xla_step", _TRAINING, environment={_META_REFERENCE: "1"})
        plain = Child("ptpathways.bench.peers.torch_xla_step", _TRAINING, environment={_META_REFERENCE: "0"})
        children = {"ptpathways": ours, "torch_xla": peer, "torch_xla as it comes": plain}
        for child in children.values():
            stack.enter_context(child)
        variants = {name: measure(name, child) for name, child in children.items()}
        # Two rounds compile: the first step's graph, which creates the optimizer's state, and the later ones'.
        values = interleave(variants, repeats=options.repeats_or(7, 2), warm_up=2)
    _check(losses)
    here = Setting("step", size.hosts, size.device_count)
    alone = Setting("step", 1, 1)
    records = []
    for name in variants:
        setting = here if name == "ptpathways" else alone
        records.append(setting.record(name, "training step", "ms/step", values[name]))
        records.append(setting.record(name, "of it: submitting", "ms/step", submits[name][-len(values[name]) :]))
    for name, variant in (("torch_xla", "ratio"), ("torch_xla as it comes", "ratio to torch_xla as it comes")):
        ratios = [mine / theirs for mine, theirs in zip(values["ptpathways"], values[name], strict=True)]
        records.append(here.record("ptpathways", variant, "of its time", ratios))
    return records


def _check(losses: dict[str, float]) -> None:
    """Everyone has made the same steps with the same seed, so everyone must have the same loss by now."""
    if max(losses.values()) - min(losses.values()) > _TOLERANCE:
        raise RuntimeError(f"the systems must agree on the loss to within {_TOLERANCE}, got {losses}")


STEP = Workload(
    "step",
    "a training step of a small GPT on one device, against PyTorch/XLA's own CPU device: ms per step, and the ratio",
    _run,
    {"ratio": Goal(1.05, at_least=False)},
)
