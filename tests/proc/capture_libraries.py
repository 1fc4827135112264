"""Scenarios of captured steps: what lies in objects of installed packages changes between calls."""

from __future__ import annotations

import contextlib
import functools
import importlib
import statistics
import string
import types
from typing import Any

import timm.optim
import torch
from torch import Tensor, distributions, nn
from torch.distributions import constraints, transforms
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.utils import data

import ptpathways as pw
from tests.proc.capture_basis import SAID, Capture, batches, expect, network, numbers, training_step
from tests.proc.capture_cases import CALLS, CHANGED_BEFORE, Case, Make, numbers_on, outcomes


def _schedule(place: torch.device) -> Any:
    parameter = nn.Parameter(torch.ones(2).to(place))
    return lr_scheduler.StepLR(torch.optim.SGD([parameter], lr=0.5), step_size=2)


def normal(place: torch.device) -> Any:
    return distributions.Normal(numbers_on(place, 0.0), numbers_on(place, 1.0), validate_args=False)


def _flow(place: torch.device) -> Any:
    return distributions.TransformedDistribution(normal(place), [transforms.AffineTransform(0.5, 2.0)], False)


def _affine(_: torch.device) -> Any:
    return transforms.AffineTransform(0.5, 2.0)


def _loader(_: torch.device) -> Any:
    return data.DataLoader([*range(8)], batch_size=2)  # type: ignore[arg-type]


def _autocast(_: torch.device) -> Any:
    return torch.autocast("cpu", torch.bfloat16, enabled=False)


MAKERS: tuple[Make, ...] = (_schedule, normal, _flow, _affine, _loader, _autocast)


NAMES = {"of the note": "note"}


def _or_without(of: Any, x: Tensor) -> Tensor:
    try:
        more: Tensor = x * of.extra
        return more
    except AttributeError:
        return x


WAYS = {
    "a number": Case(
        lambda of, x: x * of.note, lambda of, n, _: setattr(of, "note", 1.0 + n), lambda of, _: setattr(of, "note", 1.0)
    ),
    "in a dictionary": Case(
        lambda of, x: x * of.table["k"][0],
        lambda of, n, _: of.table["k"].__setitem__(0, 1.0 + n),
        lambda of, _: setattr(of, "table", {"k": [1.0]}),
    ),
    "another tensor": Case(
        lambda of, x: x * of.weight,
        lambda of, n, place: setattr(of, "weight", numbers_on(place, 1.0 + n)),
        lambda of, place: setattr(of, "weight", numbers_on(place, 1.0)),
    ),
    "a list that grows": Case(
        lambda of, x: x * sum(of.items),
        lambda of, n, _: of.items.append(1.0 * n),
        lambda of, _: setattr(of, "items", [1.0]),
    ),
    "new, by getattr": Case(
        lambda of, x: x * getattr(of, "extra", 1.0), lambda of, n, _: setattr(of, "extra", 1.0 + n)
    ),
    "new, by an exception": Case(_or_without, lambda of, n, _: setattr(of, "extra", 1.0 + n)),
    "gone": Case(
        lambda of, x: x * (2.0 if hasattr(of, "note") else 1.0),
        lambda of, *_: vars(of).pop("note", None),
        lambda of, _: setattr(of, "note", 2.0),
    ),
    "by vars": Case(
        lambda of, x: x * vars(of)["note"],
        lambda of, n, _: setattr(of, "note", 1.0 + n),
        lambda of, _: setattr(of, "note", 1.0),
    ),
    "by a text of another place": Case(
        lambda of, x: x * getattr(of, NAMES["of the note"]),
        lambda of, n, _: setattr(of, "note", 1.0 + n),
        lambda of, _: setattr(of, "note", 1.0),
    ),
    "by a partial call": Case(
        lambda of, x: x * of.ask("note"),
        lambda of, n, _: setattr(of, "note", 1.0 + n),
        lambda of, _: vars(of).update(note=1.0, ask=functools.partial(getattr, of)),
    ),
    "by a format": Case(
        lambda of, x: x * float("{of.note}".format(of=of)),  # noqa: UP032  # which names the attribute in a text
        lambda of, n, _: setattr(of, "note", 1.0 + n),
        lambda of, _: setattr(of, "note", 1.0),
    ),
    "new, by vars": Case(lambda of, x: x * vars(of).get("extra", 1.0), lambda of, n, _: setattr(of, "extra", 1.0 + n)),
    "of its class": Case(
        lambda of, x: x * of.scale,
        lambda of, n, _: setattr(type(of), "scale", 1.0 + n),
        lambda of, _: setattr(type(of), "scale", 1.0),
    ),
    "a function": Case(
        lambda of, x: of.scaled(x),
        lambda of, n, _: setattr(of, "scaled", lambda value: value * n),
        lambda of, _: setattr(of, "scaled", lambda value: value),
    ),
}
"""What of any object of a library a step may use by itself."""


class _Scaled(transforms.Transform):
    """A user's, whose methods only the package calls."""

    domain = codomain = constraints.real
    bijective = True
    factor = 2.0

    def _call(self, x: Tensor) -> Tensor:
        return x * self.factor

    def log_abs_det_jacobian(self, x: Tensor, _: Tensor) -> Tensor:
        return x * 0 + self.factor


class _Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2.0


def _scaled(_: torch.device) -> Any:
    return _Scaled()


def _node(_: torch.device) -> Any:
    graph = torch.fx.symbolic_trace(_Twice()).graph
    return next(node for node in graph.nodes if node.op == "call_function")


METHODS = {
    "the last rate": Case(
        lambda of, x: x * of.get_last_lr()[0], lambda of, *_: (of.optimizer.step(), of.step()), make=_schedule
    ),
    "base rates": Case(
        lambda of, x: x * of._get_closed_form_lr()[0],
        lambda of, n, _: of.base_lrs.__setitem__(0, 0.1 * n),
        make=_schedule,
    ),
    "a state dictionary": Case(
        lambda of, x: x * of.state_dict()["gamma"], lambda of, n, _: setattr(of, "gamma", 0.1 * n), make=_schedule
    ),
    "another location": Case(
        lambda of, x: of.log_prob(x), lambda of, n, place: setattr(of, "loc", numbers_on(place, 1.0 * n)), make=normal
    ),
    "a method that is hidden": Case(
        lambda of, x: of.log_prob(x), lambda of, n, _: setattr(of, "log_prob", lambda x: x * n), make=normal
    ),
    "of what it stands on": Case(
        lambda of, x: of.log_prob(x),
        lambda of, n, place: setattr(of.base_dist, "scale", numbers_on(place, 1.0 * n)),
        make=_flow,
    ),
    "in a list": Case(
        lambda of, x: of.log_prob(x), lambda of, n, _: setattr(of.transforms[0], "scale", 1.0 + n), make=_flow
    ),
    "one more in a list": Case(
        lambda of, x: of.log_prob(x), lambda of, *_: of.transforms.append(_affine(torch.device("cpu"))), make=_flow
    ),
    "by a property": Case(lambda of, x: of.inv(x), lambda of, n, _: setattr(of, "loc", 1.0 * n), make=_affine),
    "by its part": Case(
        lambda of, x: x + of.mean,
        lambda of, n, place: setattr(of._dirichlet, "concentration", numbers_on(place, 1.0 * n, 1.0).reshape(1, 2)),
        make=lambda place: distributions.Beta(numbers_on(place, 1.0), numbers_on(place, 2.0), False),
    ),
    "by a function": Case(
        lambda of, x: x + distributions.kl_divergence(of, of.other),
        lambda of, n, place: setattr(of.other, "loc", numbers_on(place, 1.0 * n)),
        lambda of, place: setattr(of, "other", normal(place)),
        normal,
    ),
    "by a user's method": Case(lambda of, x: of(x), lambda of, n, _: setattr(of, "factor", 1.0 * n), make=_scaled),
    "a member in C": Case(
        lambda of, x: x * of.args[1], lambda of, n, _: setattr(of, "args", (of.args[0], 1.0 * n)), make=_node
    ),
    "a setting": Case(
        lambda of, x: x * of.recompile_limit,
        lambda of, n, _: setattr(of, "recompile_limit", n),
        lambda of, _: setattr(of, "recompile_limit", 8),
        lambda _: importlib.import_module("torch._dynamo.config"),
    ),
    "a bound": Case(
        lambda of, x: x * of.check(x),
        lambda of, n, _: setattr(of, "upper_bound", 3.0 if n % 2 else 0.1),
        make=lambda _: constraints.interval(0.0, 0.4),
    ),
    "a length": Case(
        lambda of, x: x * len(of), lambda of, n, _: setattr(of.batch_sampler, "batch_size", n), make=_loader
    ),
    "a data set's tensor": Case(
        lambda of, x: x * of[0][0].to(x.device),
        lambda of, *_: of.tensors[0].add_(1.0),
        make=lambda _: data.TensorDataset(torch.arange(6.0)),
    ),
}
"""What methods of libraries use of their objects."""


def _in_context(of: Any, x: Tensor) -> Tensor:
    with of as factor:
        return x * float(factor)


PYTHONS = {
    "a context": Case(
        _in_context, lambda of, n, _: setattr(of, "enter_result", 1.0 * n), make=lambda _: contextlib.nullcontext(1.0)
    ),
    "a distribution": Case(
        lambda of, x: x * of.mean,
        lambda of, n, _: setattr(of, "_mu", 1.0 * n),
        make=lambda _: statistics.NormalDist(1.0, 2.0),
    ),
    "a cell": Case(
        lambda of, x: x * of.cell_contents,
        lambda of, n, _: setattr(of, "cell_contents", 1.0 * n),
        make=lambda _: types.CellType(1.0),
    ),
}
"""The same of objects of Python's own library."""


def libraries_written(places: list[torch.device], capture: Capture) -> list[float]:
    """A step writes attributes of a library's object and class, and nothing else reads them in it."""
    of, found = _schedule(places[0]), []
    kind = type(of)

    def step(x: Tensor, mark: int) -> Tensor:
        of.mark = mark
        of.gamma = 0.5
        kind.mark = mark
        vars(of).pop("left", None)
        return x * 2

    captured = capture(step)
    for call in range(CALLS):
        found.append(float(captured(numbers_on(places[0], 1.0 + call), call % 2).sum()))
        found += [of.mark, of.gamma, kind.mark, float("left" in vars(of))]
        if call in CHANGED_BEFORE:
            of.gamma, of.left = 2.0, 1
    if isinstance(captured, pw.CapturedStep):
        assert captured.replays
    return found


def libraries_of_c(places: list[torch.device], capture: Capture) -> list[float]:
    """What is in a container that is written in C nobody can compare: such a step is traced, and says so."""
    script: Any = torch._C
    of, found = script.ScriptDict({"k": 2.0}), []

    @capture
    def step(x: Tensor) -> Tensor:
        scaled: Tensor = x * of["k"]
        return scaled

    for call in range(CALLS):
        found.append(float(step(numbers_on(places[0], 1.0 + call)).sum()))
        if call in CHANGED_BEFORE:
            of["k"] = 1.0 * call
    expect(step, replays=0, texts=("a ScriptDict, and what is in it",))
    return found


def libraries_that_wait(places: list[torch.device], capture: Capture) -> list[float]:
    """A distribution that checks its arguments reads them: such a step is traced, and is told how not to."""

    @capture
    def step(x: Tensor) -> Tensor:
        made: Any = distributions.Normal(x, x + 1.0, validate_args=True)  # torch.compile changes the default
        score: Tensor = made.log_prob(x * x)
        return score

    found = [float(step(numbers_on(places[0], 1.0 + call)).sum()) for call in range(4)]
    expect(step, replays=0, texts=("validate_args=False",))
    return found


def libraries_optimizers(places: list[torch.device], capture: Capture) -> list[float]:
    """Some of timm's are replayed. Of others it is said that it is them who keep a step from that."""
    place, found = places[0], list[Tensor]()
    for name, text in (
        *(("lion", ""), ("adopt", "._single_tensor_adopt() that asks: choose"), ("lamb", "lamb.Lamb.step() that does")),
        *(("madgradw", "madgrad.MADGRAD.step() that does so, choose"), ("lookahead_adamw", "")),
    ):
        torch.manual_seed(0)
        model = network().to(place)
        optimizer = timm.optim.create_optimizer_v2(model, opt=name, lr=0.01)
        step = capture(training_step(model, optimizer, place))
        SAID.clear()
        for x, y in batches(14):
            found.append(step(x, y))
        expect(step, replays=11 if name == "lion" else 0, texts=(text,) if text else ())
        found += (parameter.sum() for parameter in model.parameters())
    return numbers(found)


@torch.compile(backend="eager")
def _mixed(x: Tensor, factor: float) -> Tensor:
    return torch.einsum("ab,cb->ac", x, x).tanh() @ x * factor + x.sum()


def compiled_functions(places: list[torch.device], capture: Capture) -> list[float]:
    """``torch.compile`` in a step: what it compiles is recorded as it was written, and changes of it are seen."""
    place, found = places[0], list[Tensor]()
    torch.manual_seed(0)
    model, held = network().to(place), types.SimpleNamespace(factor=0.5)
    compiled: Any = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.mse_loss(compiled(_mixed(x.to(place), held.factor)), y.to(place))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for call, (x, y) in enumerate(batches()):
        if call == 8:
            held.factor = 0.25
        if call == 12:
            model[1] = nn.Sigmoid()
        found.append(step(x, y))
    assert getattr(step, "replays", 10) >= 10, SAID
    return numbers(found)


def _without_note(of: Any, _: torch.device) -> None:
    for one in (of, F.relu, nn.Conv2d, nn.Linear, Tensor, string.Template):
        if "note" in vars(one):
            delattr(one, "note")


class _Text(string.Template):
    """A user's, whose attributes only Python's library reads."""


class _Other(string.Template):
    delimiter = "%"


def _two_of_one_name(place: torch.device) -> Any:
    """Two classes of a user's that one statement makes, and their objects."""

    def make(factor: float) -> Any:
        class Scaled:
            weight = numbers_on(place, factor)
            times = factor

            def __call__(self, x: Tensor) -> Tensor:
                return x * self.weight * self.times * factor

        return Scaled()

    return make(3.0), make(2.0)


def _of_one_name(_: torch.device) -> Any:
    """A method that has a variable of its function's with the name of an attribute of its object."""
    times = 3.0

    class Scaled:
        def __init__(self) -> None:
            self.times = 7.0

        def scale(self, x: Tensor) -> Tensor:
            return x * self.times * times

    return Scaled().scale


def _note(of: Any, number: int, _: torch.device) -> None:
    of.note = 1.0 + number


ELSEWHERE = {
    "of a function": Case(
        lambda _, x: x * getattr(F.relu, "note", 1.0), lambda _, n, place: _note(F.relu, n, place), _without_note
    ),
    "of a function in a list": Case(lambda of, x: x * getattr(of, "note", 1.0), _note, _without_note, lambda _: F.silu),
    "of a class": Case(
        lambda _, x: x * (2.0 if hasattr(nn.Conv2d, "note") else 1.0),
        lambda _, n, place: _note(nn.Conv2d, n, place),
        _without_note,
    ),
    "of a part's class": Case(
        lambda of, x: x * getattr(of, "note", 1.0),
        lambda _, n, place: _note(nn.Linear, n, place),
        _without_note,
        lambda _: nn.Linear(2, 2),
    ),
    "of tensors": Case(
        lambda _, x: x * getattr(x, "note", 1.0), lambda _, n, place: _note(Tensor, n, place), _without_note
    ),
    "of a class of Python's": Case(
        lambda _, x: x * vars(string.Template).get("note", 1.0),
        lambda _, n, place: _note(string.Template, n, place),
        _without_note,
    ),
    "that only Python's library reads": Case(
        lambda of, x: x * len(of.safe_substitute(a="345")),
        lambda of, n, _: setattr(type(of), "pattern", (_Other if n % 2 else string.Template).pattern),
        lambda of, _: setattr(type(of), "pattern", string.Template.pattern),
        lambda _: _Text("$a"),
    ),
    "of the second class of a name": Case(
        lambda of, x: of[0](x) + of[1](x),
        lambda of, n, _: setattr(type(of[1]), "times", 1.0 * n),
        make=_two_of_one_name,
    ),
    "a tensor of the first class of a name": Case(
        lambda of, x: of[0](x) + of[1](x),
        lambda of, n, place: setattr(type(of[0]), "weight", numbers_on(place, 1.0 * n)),
        make=_two_of_one_name,
    ),
    "that a variable has the name of": Case(
        lambda of, x: of(x), lambda of, n, _: setattr(of.__self__, "times", 1.0 * n), make=_of_one_name
    ),
}
"""Attributes of functions and classes, and of what has the name of something else."""


class _Convolution(nn.Conv1d):
    times = 1.0

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        made: Tensor = super()._conv_forward(x * self.times, weight, bias)
        return made


def _layer(kind: type[nn.Module]) -> Make:
    def make(place: torch.device) -> nn.Module:
        torch.manual_seed(0)
        return kind(1, 1, 2, padding=1).to(place)

    return make


_PLAIN: dict[type, dict[str, Any]] = {kind: dict(vars(kind)) for kind in (nn.Conv1d, nn.Sequential)}


def _replace(kind: type, name: str, number: int, other: Any) -> None:
    """Puts something else there, and at the last change what was there at first."""
    setattr(kind, name, other if number < max(CHANGED_BEFORE) else _PLAIN[kind][name])


def _average(_: torch.device) -> Any:
    return torch.optim.swa_utils.get_ema_avg_fn(0.5)


def _set_decay(of: Any, number: int, _: torch.device) -> None:
    function = getattr(of, "__wrapped__", of)
    cell = function.__closure__[function.__code__.co_freevars.index("decay")]
    cell.cell_contents = number / 20


LAYERS = {
    "that forward calls": Case(
        lambda of, x: of(x[None]).sum().detach() + x,
        lambda _, n, __: _replace(nn.Conv1d, "_conv_forward", n, lambda of, x, *_: x * float(n)),
        make=_layer(nn.Conv1d),
    ),
    "of Python's syntax": Case(
        lambda of, x: x * float(len(of)),
        lambda _, n, __: _replace(nn.Sequential, "__len__", n, lambda _: n),
        make=lambda _: nn.Sequential(nn.ReLU(), nn.Tanh()),
    ),
    "of one's own in the place of a layer's": Case(
        lambda of, x: of(x[None]).sum().detach() + x,
        lambda _, n, __: setattr(_Convolution, "times", 1.0 + n),
        lambda *_: setattr(_Convolution, "times", 1.0),
        _layer(_Convolution),
    ),
    "with a number in its closure": Case(lambda of, x: of(x, torch.ones_like(x), 1), _set_decay, make=_average),
}
"""Methods and functions of libraries that code does not name."""


def libraries_of_layers(places: list[torch.device], capture: Capture) -> list[float]:
    """What is replaced in a class of a library's layers, or in a function that a library has made."""
    return outcomes(LAYERS, places, capture)


def libraries_read(places: list[torch.device], capture: Capture) -> list[float]:
    """Attributes that a step reads, or looks for."""
    return outcomes(WAYS, places, capture, MAKERS)


def libraries_used(places: list[torch.device], capture: Capture) -> list[float]:
    """Attributes that methods and functions of the library use."""
    return outcomes(METHODS | PYTHONS, places, capture, MAKERS)


def libraries_elsewhere(places: list[torch.device], capture: Capture) -> list[float]:
    """Attributes of functions and classes that come, and of classes of one name."""
    return outcomes(ELSEWHERE, places, capture, MAKERS)


SCENARIOS = (
    libraries_read,
    libraries_elsewhere,
    libraries_of_layers,
    libraries_used,
    libraries_written,
    libraries_of_c,
    libraries_that_wait,
    libraries_optimizers,
    compiled_functions,
)
