"""``capture``: what a step of very many small tensors costs the thread that calls it, traced and replayed."""

from __future__ import annotations

from ptpathways.bench._child import Child
from ptpathways.bench._harness import Measure, interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

LAYERS = (15, 150)
OPTIMIZERS = ("sgd", "adamw")
HOWS = ("traced", "replayed")


def _run(options: BenchOptions) -> list[Record]:
    size = options.cluster(hosts=1)
    records: list[Record] = []
    for layers in LAYERS[: options.choose(len(LAYERS), 1)]:
        setting = Setting("capture", size.hosts, size.device_count, {"parameters": 2 * layers})
        for optimizer in OPTIMIZERS:
            # A process for each: PyTorch/XLA looks at all tensors of a device at every cut.
            arguments = (str(size.hosts), str(size.devices_per_host), optimizer, str(layers))
            with Child("ptpathways.bench._capture_process", *arguments) as child:
                records += _measure(child, optimizer, setting, options)
    return records


def _measure(child: Child, optimizer: str, setting: Setting, options: BenchOptions) -> list[Record]:
    answers: dict[str, list[dict[str, float]]] = {f"{optimizer} {how}": [] for how in HOWS}

    def measure(name: str, how: str) -> Measure:
        steps = options.choose(100 if how == "replayed" else 10, 5)

        def milliseconds() -> float:
            answers[name].append(child.ask({"how": how, "steps": steps}))
            return answers[name][-1]["elapsed_ms"]

        return milliseconds

    measures = {name: measure(name, how) for name, how in zip(answers, HOWS, strict=True)}
    values = interleave(measures, repeats=options.repeats_or(7, 2), warm_up=1)
    records = []
    for name, found in answers.items():
        computed = [answer["cpu_ms"] for answer in found[-len(values[name]) :]]
        records.append(setting.record(OURS, name, "ms/step", values[name]))
        records.append(setting.record(OURS, f"{name}, CPU", "ms/step", computed))
    return records


CAPTURE = Workload(
    "capture",
    "a step of a stack of linear layers, by SGD with momentum and by AdamW, traced and replayed: the time that a call "
    "takes, and that the calling thread computes, as the median of a round's calls",
    _run,
    {("adamw replayed, CPU", 300): Goal(2.0, at_least=False), ("adamw replayed", 300): Goal(2.0, at_least=False)},
    axis="parameters",
)
