"""``train``: training steps of known models, lazy and captured, against eager PyTorch and PyTorch/XLA's CPU device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from ptpathways.bench._child import Child
from ptpathways.bench._harness import interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

MODELS = ("gpt 4/256", "gpt 12/768", "resnet18")
STEPS = {"gpt 4/256": 20, "gpt 12/768": 4, "resnet18": 6}
CAPTURED = f"{OURS}, captured"
XLA = "torch_xla"
EAGER = "eager PyTorch"

_TOLERANCE = 5e-2
_META_REFERENCE = "TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE"


class Timed:
    """A child that makes so many steps each time it is asked, and everything it has answered."""

    def __init__(self, child: Child, steps: int) -> None:
        self._child = child
        self.steps = steps
        self.answers: list[dict[str, float]] = []

    def seconds_per_step(self) -> float:
        self.answers.append(self._child.ask({"steps": self.steps}))
        return self.answers[-1]["seconds"] / self.steps

    def milliseconds(self, what: str, count: int) -> list[float]:
        """Per step, of the last ``count`` answers."""
        return [answer[what] / self.steps * 1e3 for answer in self.answers[-count:]]


def _run(options: BenchOptions) -> list[Record]:
    records: list[Record] = []
    for model in MODELS:
        records += _measure(model, options)
    return records


def _measure(model: str, options: BenchOptions) -> list[Record]:
    from ptpathways.bench._step_loop import TRAININGS  # here: it imports torch, which a list of workloads need not

    steps = options.choose(STEPS[model], max(2, STEPS[model] // 4))
    ours, rivals = "ptpathways.bench._step_process", "ptpathways.bench.peers"
    size = options.cluster(hosts=1)
    places = (str(size.hosts), str(size.devices_per_host))
    modules = {
        OURS: (ours, model, "lazy", *places),
        CAPTURED: (ours, model, "captured", *places),
        XLA: (f"{rivals}.torch_xla_step", model),
        EAGER: (f"{rivals}.eager_step", model),
    }
    with ExitStack() as stack:
        # The setting that importing ptpathways makes speeds up every tracer; torch_xla has it, too.
        timed = {
            name: Timed(stack.enter_context(Child(*command, environment={_META_REFERENCE: "1"})), steps)
            for name, command in modules.items()
        }
        # Two rounds compile: the first step's graph, which creates the optimizer's state, and the later ones'; the
        # third step of a captured one lowers its program.
        seconds = interleave(
            {name: one.seconds_per_step for name, one in timed.items()}, repeats=options.repeats_or(5, 2), warm_up=2
        )
        check_losses({name: one.answers[0]["loss"] for name, one in timed.items()})
    count = len(seconds[OURS])
    costs = {
        what: {name: timed[name].milliseconds(key, count) for name in (OURS, CAPTURED, XLA)}
        for what, key in (("client's CPU", "client_seconds"), ("until submitted", "submit_seconds"))
    }
    setting = Setting("train", size.hosts, size.device_count)
    return figures(model, setting, TRAININGS[model].samples, seconds, costs)


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
    """Records of one model from ``seconds`` per step of ``samples``, by system, and other ``costs`` in ms per step."""
    records = [
        setting.record(name, f"{model}: samples", "samples/s", [samples / value for value in values])
        for name, values in seconds.items()
    ]
    for name, how in ((OURS, ""), (CAPTURED, "captured, ")):
        for rival in (XLA, EAGER):
            ratios = [theirs / mine for mine, theirs in zip(seconds[name], seconds[rival], strict=True)]
            records.append(setting.record(OURS, f"{model}: {how}times {rival}", "x", ratios))
    for what, by_system in costs.items():
        for name, values in by_system.items():
            records.append(setting.record(name, f"{model}: {what}", "ms/step", values))
    return records


TRAIN = Workload(
    "train",
    "training steps of GPTs (4 layers of 256, 12 of 768) and ResNet-18 on one device, lazy and captured, against eager "
    "PyTorch and PyTorch/XLA's own CPU device: samples per second, the ratios, and what a step costs the client",
    _run,
    {f"{model}: captured, times {XLA}": Goal(1.0, at_least=True) for model in MODELS},
)
