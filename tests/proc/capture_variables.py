"""Scenarios of captured steps: what functions of installed packages look up for themselves changes between calls."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributions, nn
from torch.distributions import constraints, transforms
from torch.nn import functional as F

import ptpathways as pw
from tests.proc.capture_basis import Capture, expect
from tests.proc.capture_cases import CALLS, CHANGED_BEFORE, Case, numbers_on, outcomes
from tests.proc.capture_libraries import normal

_DEFAULTS = F.layer_norm.__defaults__
_CONSTANT = vars(distributions.gumbel)["euler_constant"]
_PROBABILITIES = vars(distributions.bernoulli)["logits_to_probs"]
_ATTENTION = nn.MultiheadAttention.forward.__defaults__
_DIVERGENCES = dict(distributions.kl._KL_REGISTRY)
_TRANSFORMS = dict(distributions.transform_to._registry)


def _gumbel(place: torch.device) -> Any:
    return distributions.Gumbel(numbers_on(place, 0.0), numbers_on(place, 1.0), validate_args=False)


def _register_a_divergence(_: Any, number: int, __: torch.device) -> None:
    def divergence(p: Any, q: Any) -> Any:
        return p.loc * float(number) + q.loc

    distributions.register_kl(distributions.Normal, distributions.Normal)(divergence)
    if number == max(CHANGED_BEFORE):
        distributions.kl._KL_REGISTRY.update(_DIVERGENCES)
        distributions.kl._KL_MEMOIZE.clear()


def _between(number: int, value: Any, plain: Any) -> Any:
    """What is there at a change, and at the last one what was there at first."""
    return value if number < max(CHANGED_BEFORE) else plain


def _set_softness(_: Any, number: int, __: torch.device) -> None:
    kind = type(constraints.positive)
    own: Any = lambda _: transforms.AffineTransform(0.0, float(number))  # noqa: E731
    distributions.transform_to._registry[kind] = _between(number, own, _TRANSFORMS[kind])


VARIABLES = {
    "a number": Case(
        lambda of, x: of.mean + x,
        lambda _, n, __: setattr(distributions.gumbel, "euler_constant", _between(n, n / 10, _CONSTANT)),
        make=_gumbel,
    ),
    "a function": Case(
        lambda _, x: distributions.Bernoulli(logits=x, validate_args=False).probs,
        lambda _, n, __: setattr(
            distributions.bernoulli,
            "logits_to_probs",
            _between(n, distributions.utils.probs_to_logits, _PROBABILITIES),
        ),
    ),
    "what is registered for two classes": Case(
        lambda of, x: distributions.kl_divergence(of, distributions.Normal(x, 1.0 + x * x, validate_args=False)),
        _register_a_divergence,
        make=normal,
    ),
    "what an object has registered": Case(
        lambda _, x: distributions.transform_to(constraints.positive)(x), _set_softness
    ),
    "values of arguments by default": Case(
        lambda _, x: F.layer_norm(x.repeat(4) * torch.arange(4, device=x.device), (4,)) ** 2,
        lambda _, n, __: setattr(F.layer_norm, "__defaults__", _between(n, (None, None, float(n)), _DEFAULTS)),
    ),
    "the same of a method": Case(
        lambda of, x: of(*[x.repeat(3, 1, 2)] * 3)[1].sum().detach() + x,
        lambda _, n, __: setattr(
            nn.MultiheadAttention.forward, "__defaults__", _between(n, (None, True, None, False, False), _ATTENTION)
        ),
        make=lambda place: nn.MultiheadAttention(2, 2).to(place),
    ),
}
"""Global variables of libraries, which only their own functions read."""


def variables_of_packages(places: list[torch.device], capture: Capture) -> list[float]:
    """What is put into global variables and registries of libraries, and into their functions."""
    return outcomes(VARIABLES, places, capture)


_PACKAGE = """
import functools, itertools, os, random, types
import torch

class Config:
    kind = "linear"
    def __init__(self): self.scale, self.nested = 2.0, types.SimpleNamespace(shift=0.5)
class Base:
    factor = 2.0
class Derived(Base):
    pass
class Key:
    pass
class Layer(torch.nn.Module):
    table = {"gain": 2.0}
    def __init__(self):
        super().__init__()
        self.plain = 2.0
    def forward(self, x): return x * self.plain * self.table["gain"]
def made(number):
    def inner(x): return x * number
    return inner
config, key, layer, closed, seen = Config(), Key(), Layer(), made(2.0), {}
by_object = {key: 2.0}
generator, counter = random.Random(1), itertools.count()
def by_config(x): return x * config.scale + config.nested.shift
def by_class(x): return x * Derived.factor
def by_table(x): return x * by_object[key]
def by_layer(x): return layer(x)
def by_closure(x): return closed(x)
def by_environment(x): return x * float(os.environ.get("PTPATHWAYS_TEST_GAIN", "2"))
def with_cache(x):
    seen.setdefault(tuple(x.shape), len(seen))
    return x * 2.0
def drawn(x): return x * generator.random()
def counted(x): return x * float(next(counter))
def undrawn(x): return x * 2.0 if generator is not None else x
"""


@functools.cache
def _package() -> Any:
    """A module as an installed package has it."""
    filename = os.path.join(sysconfig.get_paths()["purelib"], "an_installed_package.py")
    module = types.ModuleType("an_installed_package")
    module.__file__ = filename
    sys.modules[module.__name__] = module
    exec(compile(_PACKAGE, filename, "exec"), vars(module))
    return module


def _within(name: str) -> Callable[[Any, Tensor], Tensor]:
    """A step that calls the function."""
    function = vars(_package())[name]

    def step(_: Any, x: Tensor) -> Any:
        return function(x)

    return step


def _package_cases() -> dict[str, Case]:
    of = _package()
    return {
        "attributes": Case(_within("by_config"), lambda _, n, __: setattr(of.config, "scale", _between(n, n / 4, 2.0))),
        "attributes of attributes": Case(
            _within("by_config"), lambda _, n, __: setattr(of.config.nested, "shift", _between(n, n / 4, 0.5))
        ),
        "a class's base": Case(
            _within("by_class"), lambda _, n, __: setattr(of.Base, "factor", _between(n, n / 4, 2.0))
        ),
        "what hides it": Case(_within("by_class"), _hide_factor),
        "an object's entry": Case(
            _within("by_table"), lambda _, n, __: of.by_object.__setitem__(of.key, _between(n, n / 4, 2.0))
        ),
        "a layer": Case(_within("by_layer"), lambda _, n, __: setattr(of.layer, "plain", _between(n, n / 4, 2.0))),
        "a container of a layer's class": Case(
            lambda layer, x: layer(x),
            lambda _, n, __: of.Layer.table.__setitem__("gain", _between(n, n / 4, 2.0)),
            make=lambda _: of.Layer(),
        ),
        "a closure": Case(
            _within("by_closure"),
            lambda _, n, __: setattr(of.closed.__closure__[0], "cell_contents", _between(n, n / 4, 2.0)),
        ),
        "the environment": Case(
            _within("by_environment"),
            lambda _, n, __: os.environ.__setitem__("PTPATHWAYS_TEST_GAIN", str(_between(n, n / 4, 2.0))),
        ),
    }


def _hide_factor(_: Any, number: int, __: torch.device) -> None:
    if number < max(CHANGED_BEFORE):
        _package().Derived.factor = number / 4
    else:
        del _package().Derived.factor


def variables_of_objects(places: list[torch.device], capture: Capture) -> list[float]:
    """What functions of packages look up in objects, classes and closures of their own."""
    return outcomes(_package_cases(), places, capture)


def variables_with_caches(places: list[torch.device], capture: Capture) -> list[float]:
    """A cache that the package fills, in the step and outside, does not end the replays."""
    cached = vars(_package())["with_cache"]
    step = capture(lambda x: cached(x))
    found = []
    for call in range(CALLS):
        cached(torch.ones(call + 20))
        found.append(float(step(numbers_on(places[0], 1.0 + call)).sum()))
    expect(step, replays=12)
    return found


def variables_that_draw(places: list[torch.device], capture: Capture) -> list[float]:
    """From a generator or an iterator of their own: such a step is traced."""
    found = []
    for name in ("drawn", "counted"):
        function = vars(_package())[name]
        function(1.0)
        step = capture(lambda x, function=function: function(x))
        values = [float(step(numbers_on(places[0], 1.0)).sum()) for _ in range(6)]
        expect(step, replays=0, texts=("draws from",))
        found.append(float(len(set(values))))
    return found


def variables_that_the_program_draws_from(places: list[torch.device], capture: Capture) -> list[float]:
    """Where generators are that functions of packages only mention says nothing: the program draws between calls."""
    found = []
    function, draw = vars(_package())["undrawn"], vars(_package())["generator"].random
    of_the_place: Callable[[], torch.device] = pw.device if places[0].type == "xla" else lambda: places[0]
    model: Any = nn.Linear(3, 1).to(places[0])

    @capture
    def step(x: Tensor) -> Tensor:
        value: Tensor = model(function(x.to(of_the_place()))).sum()
        return value.detach()

    for call in range(CALLS):
        draw()
        found.append(float(step(torch.full((2, 3), float(torch.rand(1)) * 0.0 + call))))
    expect(step, replays=CALLS - 2, said=0)
    return found


SCENARIOS = (
    variables_that_the_program_draws_from,
    variables_of_objects,
    variables_of_packages,
    variables_that_draw,
    variables_with_caches,
)
