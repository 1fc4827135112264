"""``first-step``: how long a new process needs until its third training step begins, cold and warm."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping

from ptpathways.bench._child import Child
from ptpathways.bench._harness import Measure, interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._train import check_losses
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

MODELS = ("gpt 12/768", "resnet18", "mobilenet v3 small", "regnet y 400mf", "convnext atto")
XLA, COMPILE, EAGER = "torch_xla", "torch.compile", "eager PyTorch"

_MODULE = "ptpathways.bench._first_step_process"
_TIMEOUT_S = 1800.0
_META_REFERENCE = "TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE"


def _run(options: BenchOptions) -> list[Record]:
    records: list[Record] = []
    for model in MODELS[:1] if options.quick else MODELS:
        records += _measure(model, options)
    return records


def _measure(model: str, options: BenchOptions) -> list[Record]:
    losses: dict[str, float] = {}
    cluster = options.cluster(hosts=1)
    setting = Setting("first-step", cluster.hosts, cluster.devices_per_host)
    sizes = (str(cluster.hosts), str(cluster.devices_per_host))

    def seconds(label: str, system: str, environment: Mapping[str, str]) -> float:
        # The setting that importing ptpathways makes speeds up every tracer; torch_xla has it, too.
        with Child(_MODULE, model, system, *sizes, environment={_META_REFERENCE: "1", **environment}) as child:
            answer = child.ask(None, _TIMEOUT_S)
        losses[label] = answer["loss"]
        return float(answer["seconds"])

    def compiled() -> float:
        with tempfile.TemporaryDirectory(prefix="pw-first-step-") as folder:
            return seconds(COMPILE, COMPILE, {"TORCHINDUCTOR_CACHE_DIR": folder})

    with tempfile.TemporaryDirectory(prefix="pw-first-step-") as kept:
        variants: dict[str, Measure] = {
            "cold": lambda: seconds("cold", OURS, {"PTPATHWAYS_CACHE_DIR": "off"}),
            "warm": lambda: seconds("warm", OURS, {"PTPATHWAYS_CACHE_DIR": kept}),
        }
        if sizes == ("1", "1"):  # as many as rivals have in one process
            variants |= {
                XLA: lambda: seconds(XLA, "torch_xla", {}),
                COMPILE: compiled,
                EAGER: lambda: seconds(EAGER, "eager", {}),
            }
        variants["warm"]()  # fills the folder
        values = interleave(variants, repeats=options.repeats_or(3, 1), warm_up=0)
    check_losses(losses)
    records = [setting.record(OURS, f"{model}: {how}", "s", values[how]) for how in ("cold", "warm")]
    if len(variants) == 2:
        return records
    records += [setting.record(name, f"{model}: cold", "s", values[name]) for name in (XLA, COMPILE, EAGER)]
    for rival in (XLA, COMPILE):
        ratios = [mine / theirs for mine, theirs in zip(values["cold"], values[rival], strict=True)]
        records.append(setting.record(OURS, f"{model}: cold, of {rival}'s", "x", ratios))
    above = [mine - theirs for mine, theirs in zip(values["warm"], values[EAGER], strict=True)]
    return [*records, setting.record(OURS, f"{model}: warm, above eager", "s", above)]


FIRST_STEP = Workload(
    "first-step",
    "from building a model to the beginning of its third training step, in seconds: with nothing kept and with "
    "compiled programs kept; on one device against PyTorch/XLA's own CPU device, torch.compile and eager PyTorch",
    _run,
    {
        **{f"{model}: cold, of {XLA}'s": Goal(1 / 3, at_least=False) for model in MODELS},
        **{f"{model}: cold, of {COMPILE}'s": Goal(1 / 4, at_least=False) for model in MODELS},
        **{f"{model}: warm, above eager": Goal(2.0, at_least=False) for model in MODELS},
    },
)
