"""``paper``: Tables 1 and 2 and Figures 10 and 12 of the paper, beside what it published.

**Compiled**: a layer's passes for the paper's own chips (libtpu, v3), which gives XLA's estimate of their time and the
collectives; these go at the links' stated rate. **Simulated**: devices that take these times, and links between hosts.
**Real, and measured**: everything that is ours: client, controller, scheduler, programs, messages. So ratios say what
the schedule and the control plane cost. Tokens per second are an estimate: products at XLA's, collectives after them.

One simulated device stands for the eight cores of a host. Between islands a host sends 12.5e9 bytes per second
(100 Gbit/s), which the paper does not say; in Figure 10 it does so to the hosts of its own island, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console

from ptpathways.bench import _paper_models as models
from ptpathways.bench._child import Child
from ptpathways.bench._paper_models import CORES_PER_HOST, Layout, Model, Staged, Trained, TwoIslands
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

PAPER = "the paper"
ESTIMATE = "without a control plane"
_PROCESS = "ptpathways.bench._paper_process"
_NETWORK_GBS = 12.5
_LATENCY_US = 50.0
_ICI_GBS = 1000.0
"""Of a host, within an island: far more than a stage sends."""
_SMALL_US = 10.0
_CHUNKS = 8
_COMPILING_S = 900.0
_RUNNING_S = 600.0


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Of all layers of a model over a layout, in seconds."""

    forward: float
    backward: float
    sums: float
    """Of gradients, along the data axis; and the collecting of weights."""
    head: float
    update: float

    @property
    def step(self) -> float:
        """One after the other."""
        return self.forward + self.backward + self.sums + self.head + self.update


def layer_times(model: Model, times: Mapping[str, Mapping[str, float]], layers: int | None = None) -> LayerTimes:
    """From those of each function (``_paper_blocks.times``). ``layers``: default: the model's, and its logits."""
    count = model.layers if layers is None else layers

    def one_pass(name: str) -> float:
        return times[name]["compute"] + times[name]["model"] if name in times else 0.0

    def along_data(name: str) -> float:
        return times[name]["data"] if name in times else 0.0

    def total(kind: str, value: Callable[[str], float]) -> float:
        return count * value(kind) + model.encoder_layers * value(f"{kind}_encoder")

    return LayerTimes(
        forward=total("forward", one_pass),
        backward=total("backward", one_pass),
        sums=total("forward", along_data) + total("backward", along_data),
        head=sum(times["head"].values()) if layers is None else 0.0,
        update=(count + model.encoder_layers) * sum(times["update"].values()),
    )


class Measuring:
    """What the experiments have in common: compiled times, each found once, and clusters in processes of their own."""

    def __init__(self, options: BenchOptions) -> None:
        self._options = options
        self._times: dict[tuple[str, Layout, int], dict[str, dict[str, float]]] = {}
        self._console = Console(stderr=True)

    def say(self, what: str) -> None:
        """To whoever waits: some of this takes a minute."""
        self._console.print(what, style="dim", markup=False)

    def times(self, model: Model, layout: Layout, batch: int) -> dict[str, dict[str, float]]:
        """Of the model's functions; ``batch`` sequences over ``layout``."""
        key = (model.name, layout, batch)
        if key not in self._times:
            self.say(f"compiling {model.name}, {batch} sequences, for {layout.target}: {layout.data} x {layout.model}")
            request = {"do": "times", "model": asdict(model), "layout": asdict(layout), "batch": batch}
            hosts = -(-layout.cores // CORES_PER_HOST)
            with Child(_PROCESS, str(hosts), str(CORES_PER_HOST), "1", "{}") as child:
                self._times[key] = child.ask(request, _COMPILING_S)
        return self._times[key]

    def steps(
        self, hosts: int, islands: int, costs_s: Mapping[str, float], request: Any, **links: float
    ) -> list[float]:
        """Seconds of a step, one per repeat, of a program on simulated hosts of one device each."""
        costs = {"cost_us": {name: seconds * 1e6 for name, seconds in costs_s.items()} | {"*": _SMALL_US}, **links}
        asked = {**request, "steps": self._options.choose(2, 1)}
        self.say(f"running {request['do']} on {hosts} simulated hosts in {islands} islands")
        with Child(_PROCESS, str(hosts), "1", str(islands), json.dumps(costs)) as child:
            return [child.ask(asked, _RUNNING_S)["seconds"] for _ in range(self._options.repeats_or(2, 1))]


def _table_1(measuring: Measuring, rows: Iterable[Trained]) -> list[Record]:
    records = []
    for row in rows:
        model, layout = row.model, row.layout
        ideal = layer_times(model, measuring.times(model, layout, model.batch)).step
        hosts = layout.cores // CORES_PER_HOST
        measured = measuring.steps(hosts, 1, {"step": ideal}, {"do": "spmd"})
        setting = Setting("paper", hosts, layout.cores)
        name = f"Table 1, {model.name} on {layout.cores} cores"
        rates = [model.tokens / value for value in measured]
        records += _beside(setting, f"{name}: estimated", "tokens/s", rates, row.published)
        records += _beside(setting, f"{name}: times {ESTIMATE}", "x", [ideal / value for value in measured], 1.0)
    return records


def _pipeline(measuring: Measuring, row: Staged, islands: int, *, bandwidth_gbs: float = _ICI_GBS) -> list[float]:
    """Seconds of its steps, under the paper's schedule (GPipe)."""
    cores = row.layout.cores * row.stages
    model = models.DECODER
    of_layers = layer_times(
        model,
        measuring.times(model, row.layout, row.batch // row.microbatches),
        layers=models.STAGED_LAYERS // row.stages,
    )
    costs = {
        "forward*": of_layers.forward,
        "backward_*": of_layers.backward / 2,
        "backward*": of_layers.backward,
        "*update*": of_layers.sums + of_layers.update,
    }
    request = {
        "do": "pipeline",
        "stages": row.stages,
        "microbatches": row.microbatches,
        "batch": row.batch,
        "length": model.length,
        "width": model.width,
        "schedule": "gpipe",
    }
    hosts = cores // CORES_PER_HOST
    return measuring.steps(hosts, islands, costs, request, bandwidth_gbs=bandwidth_gbs, latency_us=_LATENCY_US)


def _table_2(measuring: Measuring, rows: Sequence[Staged]) -> list[Record]:
    """Each row's rate, and beside that of the pipeline with the fewest stages."""
    records: list[Record] = []
    found: dict[str, list[float]] = {}
    model, first = models.DECODER, _first(rows)
    for row in (first, *(row for row in rows if row is not first)):
        cores = row.layout.cores * row.stages
        if row.stages == 1:
            of_layers = layer_times(model, measuring.times(model, row.layout, row.batch), layers=models.STAGED_LAYERS)
            measured = measuring.steps(cores // CORES_PER_HOST, 1, {"step": of_layers.step}, {"do": "spmd"})
        else:
            measured = _pipeline(measuring, row, 1)
        rates = found[row.name] = [row.batch * model.length / value for value in measured]
        ratios = [one / other for one, other in zip(rates, found[first.name], strict=True)]
        setting, name = Setting("paper", cores // CORES_PER_HOST, cores), f"Table 2, {row.name}"
        records += _beside(setting, f"{name}: estimated", "tokens/s", rates, row.published)
        if row is not first:
            published = row.published / first.published
            records += _beside(setting, f"{name}: times {first.name}", "x", ratios, published)
    return records


def _first(rows: Iterable[Staged]) -> Staged:
    return next(row for row in rows if row.stages > 1)


def _beside(setting: Setting, name: str, unit: str, ours: list[float], published: float) -> list[Record]:
    return [setting.record(OURS, name, unit, ours), setting.record(PAPER, name, unit, [published])]


def _figure_10(measuring: Measuring) -> list[Record]:
    """The pipeline of 16 stages over four islands, beside one."""
    row = next(row for row in models.TABLE_2 if row.stages == 16)
    cores = row.layout.cores * row.stages
    setting = Setting("paper", cores // CORES_PER_HOST, cores)
    one = _pipeline(measuring, row, 1, bandwidth_gbs=_ICI_GBS)
    four = _pipeline(measuring, row, 4, bandwidth_gbs=_NETWORK_GBS)
    name = f"Figure 10, {row.name}: "
    records = []
    for label, measured in (("one island", one), ("four islands", four)):
        rates = [row.batch * models.DECODER.length / value for value in measured]
        records += _beside(setting, f"{name}{label}", "tokens/s", rates, row.published)
    ratios = [a / b for a, b in zip(one, four, strict=True)]
    return records + _beside(setting, f"{name}four islands, times one", "x", ratios, 1.0)


def _islands(measuring: Measuring, row: TwoIslands, count: int) -> list[float]:
    """Seconds of a step over ``count`` islands, which have as many cores together, whatever their number."""
    layout = replace(row.layout, data=row.layout.data * 2 // count)
    batch = row.model.batch // count
    of_layers = layer_times(row.model, measuring.times(row.model, layout, batch))
    costs = {
        "forward": of_layers.forward + of_layers.head,
        "backward": (of_layers.backward + of_layers.sums) / _CHUNKS,
        "update": of_layers.update / _CHUNKS,
    }
    request = {
        "do": "islands",
        "islands": count,
        "chunks": _CHUNKS,
        "parameters": row.model.block_parameters * row.model.layers,
    }
    hosts = 2 * row.layout.cores // CORES_PER_HOST
    return measuring.steps(hosts, count, costs, request, bandwidth_gbs=_NETWORK_GBS, latency_us=_LATENCY_US)


def _figure_12(measuring: Measuring, rows: Iterable[TwoIslands]) -> list[Record]:
    records = []
    for row in rows:
        cores = 2 * row.layout.cores
        setting = Setting("paper", cores // CORES_PER_HOST, cores)
        one, two = (_islands(measuring, row, count) for count in (1, 2))
        name = f"Figure 12, {row.model.name} on {cores} cores: "
        for label, measured in (("one island", one), ("two islands", two)):
            rates = [row.model.tokens / value for value in measured]
            records.append(setting.record(OURS, f"{name}{label}", "tokens/s", rates))
        ratios = [a / b for a, b in zip(one, two, strict=True)]
        records += _beside(setting, f"{name}two islands, times one", "x", ratios, models.PUBLISHED_ISLANDS)
    return records


PARTS: dict[str, Callable[[Measuring], list[Record]]] = {
    "table 1": lambda measuring: _table_1(measuring, models.TABLE_1),
    "table 2": lambda measuring: _table_2(measuring, models.TABLE_2),
    "figure 10": _figure_10,
    "figure 12": lambda measuring: _figure_12(measuring, models.FIGURE_12),
}
"""What there is of the paper, by the names of ``--table`` and ``--figure``."""


def _run(options: BenchOptions) -> list[Record]:
    from ptpathways.platforms import find_target

    find_target("v3:2x2")  # raises, before anything is started, where libtpu is not installed
    measuring = Measuring(options)
    return [record for part in options.parts or PARTS for record in PARTS[part](measuring)]


def _goals() -> dict[str | tuple[str, float], Goal]:
    found: dict[str | tuple[str, float], Goal] = {}
    for trained in models.TABLE_1:
        name = f"Table 1, {trained.model.name} on {trained.layout.cores} cores"
        found[f"{name}: times {ESTIMATE}"] = _within(1.0)
    first = _first(models.TABLE_2)
    for row in models.TABLE_2:
        if row.stages > 1:
            found[f"Table 2, {row.name}: times {first.name}"] = _within(row.published / first.published)
            found[f"Figure 10, {row.name}: four islands, times one"] = _within(1.0)
    for each in models.FIGURE_12:
        cores = 2 * each.layout.cores
        found[f"Figure 12, {each.model.name} on {cores} cores: two islands, times one"] = _within(
            models.PUBLISHED_ISLANDS
        )
    return found


def _within(published: float) -> Goal:
    """Not more than 5% below."""
    return Goal(round(0.95 * published, 3), at_least=True)


PAPER_TABLES = Workload(
    "paper",
    "Tables 1 and 2, Figures 10 and 12 of the paper, beside what it published: layers compiled for its chips, "
    "simulated devices that take XLA's estimate of their time, the real control plane (libtpu; --table, --figure)",
    _run,
    _goals(),
    parts=tuple(PARTS),
)
"""``Workload`` of the paper's training experiments; those of dispatch, tenancy and shares are other workloads."""
