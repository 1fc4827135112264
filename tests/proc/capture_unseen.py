"""Scenarios of captured steps that read what lies far from them: switches of libraries, locks, files, other modules.

Each probe is a number that a step computes with, and a way to change it. A captured step must follow the change, or be
traced at every call and say so.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import copy
import decimal
import functools
import gc
import hashlib
import importlib
import logging
import mmap
import multiprocessing
import os
import pickle
import random
import string
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from tests.proc.capture_basis import SAID, Capture, batches, expect, network, numbers, training_step

Probe = tuple[Callable[[], Any], Callable[[], Any]]
CALLS, CHANGED = 6, 4
FACTOR = 2.0
_held: list[Any] = []


def _follow(capture: Capture, place: torch.device, probes: Iterator[Probe]) -> list[float]:
    """What steps give that multiply by what a probe reads, before and after its change."""
    found: list[Tensor] = []
    for read, change in probes:

        def one(x: Tensor, read: Callable[[], Any] = read) -> Tensor:
            result: Tensor = (x.to(place) * float(read())).sum()
            return result

        step, told = capture(one), len(SAID)
        for call in range(CALLS):
            if call == CHANGED:
                change()
            found.append(step(batches(1)[0][0]))
        if isinstance(step, pw.CapturedStep):
            assert len(SAID) > told, (read.__code__.co_firstlineno, step.replays)
            assert not any("site-packages" in text for text in SAID[told:]), SAID[told:]  # lines are the user's
    return numbers(found)


def _divided(by: Any) -> float:
    try:
        return float(np.isinf(np.ones(2) / by).sum())
    except FloatingPointError:
        return 3.0


def switches(places: list[torch.device], capture: Capture) -> list[float]:
    """Of torch, NumPy and Python, which functions of theirs tell."""
    backends: Any = torch.backends

    def benchmark() -> None:
        backends.cudnn.benchmark = True

    def precision() -> None:
        decimal.getcontext().prec = 3

    def module() -> types.ModuleType:
        return sys.modules["unseen_module"]

    def leave() -> None:
        os.environ["PTPATHWAYS_UNSEEN"] = "3"

    sys.modules["unseen_module"] = types.ModuleType("unseen_module")
    module().K = 2.0  # type: ignore[attr-defined]
    os.environ["PTPATHWAYS_UNSEEN"] = "2"
    sys.modules.pop("unseen_too", None)
    numbers_of_numpy = np.array([1.23456, 0.0])
    threads, level = torch.get_num_threads(), sys.getrecursionlimit()
    torch.set_num_threads(2)
    probes: list[Probe] = [
        (lambda: backends.cudnn.benchmark, benchmark),
        (lambda: backends.cuda.flash_sdp_enabled(), lambda: backends.cuda.enable_flash_sdp(False)),
        (lambda: torch.get_num_threads(), lambda: torch.set_num_threads(1)),
        (lambda: np.get_printoptions()["precision"], lambda: np.set_printoptions(precision=4)),
        (lambda: decimal.Decimal(1) / decimal.Decimal(3), precision),
        (lambda: sys.getrecursionlimit(), lambda: sys.setrecursionlimit(level + 7)),
        (lambda: gc.isenabled(), gc.disable),
        (lambda: sys.modules["unseen_module"].K, lambda: setattr(module(), "K", 3.0)),
        (lambda: os.environ["PTPATHWAYS_UNSEEN"], leave),
        (lambda: len(str(numbers_of_numpy)), lambda: np.set_printoptions(precision=2)),
        (lambda: _divided(numbers_of_numpy), lambda: np.seterr(all="raise")),
        (lambda: numbers_of_numpy.strides[0] / 8, lambda: setattr(numbers_of_numpy, "strides", (0,))),
        (lambda: "unseen_too" in sys.modules, lambda: sys.modules.setdefault("unseen_too", module())),
        (lambda: len(warnings.filters), lambda: warnings.simplefilter("always", ImportWarning)),
        (lambda: datetime.now().microsecond * 0, lambda: None),
    ]
    with decimal.localcontext(), np.printoptions(), np.errstate(), warnings.catch_warnings():
        try:
            return _follow(capture, places[0], iter(probes))
        finally:
            gc.enable()
            backends.cudnn.benchmark = False
            backends.cuda.enable_flash_sdp(True)
            torch.set_num_threads(threads)
            sys.setrecursionlimit(level)


def objects_of_python(places: list[torch.device], capture: Capture) -> list[float]:
    """Loggers, locks, mapped and shared memory, templates, errors."""
    logger, lock = logging.getLogger("unseen"), threading.Lock()
    logger.setLevel(logging.WARNING)
    mapped, shared = mmap.mmap(-1, 16), multiprocessing.Value("d", 2.0)
    text, part, error = string.Template("1$a"), Fraction(3, 2), ValueError("an error")
    globals()["FACTOR"] = 2.0
    weights, ordered = {"a": 1.0, "b": 2.0}, collections.OrderedDict(a=1.0)
    terms, pairs, names = weights.values(), weights.items(), ordered.keys()
    word, digest = collections.UserString("2"), hashlib.sha256(b"1")
    bound: Any = functools.partial(lambda value: value, 2.0)
    node = inmost = types.SimpleNamespace()
    for _ in range(90):
        inmost.next = types.SimpleNamespace()
        inmost = inmost.next
    inmost.value = 2.0

    def follow(of: Any) -> float:
        while hasattr(of, "next"):
            of = of.next
        value: float = of.value
        return value

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    own, numbers_of, drawn = random.Random(1), np.random.default_rng(1), torch.Generator().manual_seed(2)

    def copied() -> torch.Generator:
        return torch.Generator().set_state(drawn.get_state())

    def forked() -> float:
        with torch.random.fork_rng(devices=[]):
            return float(torch.rand(()))

    def restored() -> float:
        state = random.getstate()
        number = random.random()
        random.setstate(state)
        return number

    probes: list[Probe] = [
        (lambda: logger.isEnabledFor(logging.DEBUG), lambda: logger.setLevel(logging.DEBUG)),
        (lambda: lock.locked(), lock.acquire),
        (lambda: mapped[0], lambda: mapped.__setitem__(0, 3)),
        (lambda: shared.value, lambda: setattr(shared, "value", 3.0)),
        (lambda: text.substitute(a="2"), lambda: setattr(text, "template", "2$a")),
        (lambda: part, lambda: setattr(part, "_numerator", 9)),
        (lambda: isinstance(error.__cause__, KeyError), lambda: setattr(error, "__cause__", KeyError("one"))),
        (lambda: follow(node), lambda: setattr(inmost, "value", 3.0)),
        (lambda: sum(terms), lambda: weights.__setitem__("a", 3.0)),
        (lambda: sum(len(key) * value for key, value in pairs), lambda: weights.pop("b")),
        (lambda: len(names), lambda: names.mapping and ordered.update(b=1.0)),
        (lambda: float(word), lambda: setattr(word, "data", "3")),
        (lambda: digest.digest()[0], lambda: digest.update(b"more")),
        (lambda: bound(), lambda: bound.__setstate__((bound.func, (3.0,), {}, None))),
        (lambda: torch.initial_seed() % 97, lambda: torch.manual_seed(5)),
        (lambda: float(torch.get_rng_state()[0]), lambda: torch.manual_seed(6)),
        (lambda: random.getstate()[1][3] % 97, lambda: random.seed(4)),
        (lambda: own.getstate()[1][3] % 97, lambda: own.seed(4)),
        (lambda: np.random.get_state(legacy=False)["state"]["key"][3] % 97, lambda: np.random.seed(4)),
        (lambda: numbers_of.bit_generator.state["state"]["state"] % 97, numbers_of.random),
        (lambda: float(drawn.get_state()[:64].float().sum()), lambda: drawn.manual_seed(5)),
        (lambda: float(drawn.clone_state().initial_seed() % 97), lambda: drawn.manual_seed(6)),
        (lambda: float(torch.rand((), generator=copied())), lambda: drawn.manual_seed(7)),
        (forked, lambda: torch.manual_seed(8)),
        (lambda: copy.deepcopy(own).random(), lambda: own.seed(5)),
        (lambda: float(pickle.loads(pickle.dumps(numbers_of)).random()), numbers_of.random),
        (restored, lambda: random.seed(9)),
        (torch.sparse.check_sparse_tensor_invariants.is_enabled, torch.sparse.check_sparse_tensor_invariants.enable),
        (torch.is_warn_always_enabled, lambda: torch.set_warn_always(not torch.is_warn_always_enabled())),
        (
            torch.__future__.get_swap_module_params_on_conversion,
            lambda: torch.__future__.set_swap_module_params_on_conversion(True),
        ),
        (lambda: eval("FACTOR * 1.0"), lambda: globals().__setitem__("FACTOR", 3.0)),
        (lambda: sys._getframe().f_globals["FACTOR"], lambda: globals().__setitem__("FACTOR", 4.0)),
    ]
    try:
        return _follow(capture, places[0], iter(probes))
    finally:
        torch.set_warn_always(False)
        torch.sparse.check_sparse_tensor_invariants.disable()
        torch.__future__.set_swap_module_params_on_conversion(False)


def classes(places: list[torch.device], capture: Capture) -> list[float]:
    """What is registered with abstract ones or derives from them, metaclasses, classes made of texts, orders."""

    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Other:
        pass

    class Meta(type):
        k = 2.0

    class OfMeta(metaclass=Meta):
        pass

    class Key:
        k = 2.0

    @runtime_checkable
    class HasPart(Protocol):
        def part(self) -> float: ...

    space: dict[str, Any] = {}
    exec("class OfText:\n    k = 2.0\n    def get(self):\n        return self.k\n", space)
    other, made, key = Other(), space["OfText"](), Key()
    by_key, ordered = {key: 1}, types.SimpleNamespace(a=2.0, b=3.0)

    def turn() -> None:
        value = ordered.a
        del ordered.a
        ordered.a = value

    probes: list[Probe] = [
        (lambda: isinstance(other, Abstract), lambda: Abstract.register(Other)),
        (lambda: isinstance(other, Sequence), lambda: Sequence.register(Other)),
        (lambda: isinstance(key, HasPart), lambda: setattr(Key, "part", lambda self: 1.0)),
        (lambda: len(Other.__subclasses__()), lambda: _held.append(type("Derived", (Other,), {}))),
        (lambda: OfMeta.k, lambda: setattr(Meta, "k", 3.0)),
        (lambda: made.get(), lambda: setattr(space["OfText"], "k", 3.0)),
        (lambda: next(iter(by_key)).k, lambda: setattr(key, "k", 3.0)),
        (lambda: next(iter(vars(ordered).values())), turn),
    ]
    return _follow(capture, places[0], iter(probes))


def installed_packages(places: list[torch.device], capture: Capture) -> list[float]:
    """What an installed package answers about nothing that is compared, and its objects' numbers."""
    import sklearn
    from sklearn.linear_model import LinearRegression

    fitted = LinearRegression().fit(np.array([[1.0], [3.0]]), np.array([1.0, 3.0]))
    frame = importlib.import_module("pandas").DataFrame({"a": [2.0]})
    other = LinearRegression().fit(np.array([[1.0], [3.0]]), np.array([1.0, 3.0]))
    probes: list[Probe] = [
        (lambda: sklearn.get_config()["assume_finite"], lambda: sklearn.set_config(assume_finite=True)),
        (lambda: fitted.coef_[0], lambda: fitted.coef_.__setitem__(0, 7.0)),
        (lambda: frame.values[0, 0], lambda: frame.__setitem__("a", [3.0])),
        (lambda: other.predict([[2.0]])[0], lambda: other.coef_.__setitem__(0, 7.0)),
    ]
    with sklearn.config_context(assume_finite=False):
        return _follow(capture, places[0], iter(probes))


@contextlib.contextmanager
def _instead(space: Any, name: str, value: Any) -> Iterator[None]:
    had, old = name in vars(space), getattr(space, name)
    setattr(space, name, value)
    try:
        yield
    finally:
        setattr(space, name, old) if had else delattr(space, name)


def methods_of_tensors(places: list[torch.device], capture: Capture) -> list[float]:
    """Somebody puts his own function in the place of a method of tensors, an operator, an optimizer's function."""
    model = network().to(places[0])
    train = capture(training_step(model, torch.optim.SGD(model.parameters(), lr=0.05), places[0]))

    @capture
    def step(x: Tensor) -> Tensor:
        return (x.to(places[0]).abs() * 2.0).sum()

    plain_abs, plain_mul, sgd = Tensor.abs, Tensor.__mul__, sys.modules["torch.optim.sgd"]
    plain_sgd = vars(sgd)["sgd"]
    found = []
    for place, (x, y) in enumerate(batches(8)):
        with contextlib.ExitStack() as stack:
            if place in (4, 5):
                stack.enter_context(_instead(Tensor, "abs", lambda of: plain_abs(of) + 1))
            if place == 6:
                stack.enter_context(_instead(Tensor, "__mul__", lambda of, by: plain_mul(of, by) + 1))
            if place == 5:
                double = lambda *given, **more: [plain_sgd(*given, **more) for _ in range(2)]  # noqa: E731
                stack.enter_context(_instead(sgd, "sgd", double))
            found += [step(x), train(x, y)]
    return numbers(found)


def order_of_hooks(places: list[torch.device], capture: Capture) -> list[float]:
    """Two hooks of a module, and which comes first."""
    layer: Any = nn.Linear(8, 1).to(places[0])
    first = layer.register_forward_hook(lambda module, given, result: result * 2)
    layer.register_forward_hook(lambda module, given, result: result + 1)

    @capture
    def step(x: Tensor) -> Tensor:
        result: Tensor = layer(x.to(places[0])).sum().detach()
        return result

    found = []
    for place, (x, _) in enumerate(batches(7)):
        if place == 4:
            layer._forward_hooks.move_to_end(first.id)
        found.append(step(x))
    return numbers(found)


def devices_asked_for(places: list[torch.device], capture: Capture) -> list[float]:
    """A step that asks for a device when its model has run: what expects a new model then is no concern of it.

    Another model runs between the calls, so that it is expected anew in each of them.
    """
    model, other = network().to(places[0]), network().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(places[0])), y.to(places[0]))
        if places[0].type != "cpu":
            assert pw.device() is not None
        loss.backward()
        optimizer.step()
        return loss.detach()

    found = []
    for x, y in batches(8):
        found += [step(x, y), other(x.to(places[0])).detach().sum()]
    expect(step, replays=5, said=0)
    return numbers(found)


def wrapped_functions(places: list[torch.device], capture: Capture) -> list[float]:
    """Somebody's function around one of torch's, from the beginning: it is applied once, in a recorded call, too."""
    model = network().to(places[0])
    plain_loss, plain_backward = F.mse_loss, Tensor.backward
    found = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(_instead(F, "mse_loss", lambda *given: plain_loss(*given) * 3))
        double: Any = lambda of: plain_backward(of * 2)  # type: ignore[no-untyped-call]  # noqa: E731
        stack.enter_context(_instead(Tensor, "backward", double))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        step = capture(training_step(model, optimizer, places[0], lambda made, wanted: F.mse_loss(made, wanted)))
        for x, y in batches(6):
            found += [step(x, y), model[0].bias.detach().sum().clone()]
    return numbers(found)


def functions_of_torch_itself(places: list[torch.device], capture: Capture) -> list[float]:
    """What a training step calls without naming it: methods of all modules, of its optimizer, and of autograd."""

    def first(plain: Any) -> Any:
        return lambda self, *given: list(plain(self, *given))[:1]

    def doubled(plain: Any) -> Any:
        return lambda tensors, *given, **more: plain(tensors * 2, *given, **more)

    def nothing(plain: Any) -> Any:
        return lambda self, group, *given: False

    spaces = [
        (nn.Module, "parameters", first),
        (torch.autograd, "backward", doubled),
        (torch.optim.SGD, "_init_group", nothing),
    ]
    found = []
    for space, name, wrap in spaces:
        model = network().to(places[0])
        train = training_step(model, torch.optim.SGD(model.parameters(), lr=0.05), places[0])

        @capture
        def step(x: Tensor, y: Tensor, model: Any = model, train: Any = train) -> Tensor:
            loss: Tensor = train(x, y) + sum(part.detach().sum() for part in model.parameters())
            return loss

        for place, (x, y) in enumerate(batches(7)):
            with contextlib.ExitStack() as stack:
                if place > 4:
                    stack.enter_context(_instead(space, name, wrap(vars(space)[name])))
                found += [step(x, y), model[0].bias.detach().sum().clone()]
    return numbers(found)


def asked_by_text(places: list[torch.device], capture: Capture) -> list[float]:
    """What a step names in texts, or by names that it computes; an optimizer's defaults; what the CPU's tensors are."""
    record, other = types.SimpleNamespace(weight=1.0), types.SimpleNamespace(weight=1.0)
    layer, trained = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    module: Any = types.ModuleType("capture_unseen_settings")
    module.weight = 1.0
    sys.modules[module.__name__] = module
    names = [module.__name__]

    def reading(names: list[str] = names) -> float:
        weight: float = sys.modules[names[0]].weight
        return weight

    def importing(names: list[str] = names) -> float:
        weight: float = importlib.import_module(names[0]).weight
        return weight

    def change(of: Any) -> Callable[[], None]:
        return lambda: setattr(of, "weight", FACTOR)

    def trains_less() -> None:
        layer.weight.requires_grad_(False)

    def has_a_gradient() -> None:
        trained.weight.grad = torch.ones(2, 2)

    probes: list[Probe] = [
        (lambda: f"{record.weight}", change(record)),
        (lambda: f"{other.weight}", change(other)),
        (lambda: optimizer.defaults["lr"], lambda: optimizer.defaults.update(lr=FACTOR)),
        (lambda: sum(one.numel() for one in layer.parameters() if one.requires_grad), trains_less),
        (lambda: 1.0 if trained.weight.grad is None else FACTOR, has_a_gradient),
        (reading, change(module)),
        (importing, change(module)),
    ]
    return _follow(capture, places[0], iter(probes))


def warnings_as_errors(places: list[torch.device], capture: Capture) -> list[float]:
    """A warning of torch that a filter makes an error, in the step or for its caller; and one that the step notes."""
    weight = torch.ones(1, 2, device=places[0])
    found: list[float] = []

    def loss(x: Tensor) -> Tensor:
        weight.mul_(0.9)
        return F.mse_loss(weight * x.to(places[0]), torch.ones(1, 2).to(places[0]))  # of another size, says torch

    def catches(x: Tensor) -> Tensor:
        try:
            return loss(x)
        except UserWarning:
            return weight.sum() * 0

    def notes(x: Tensor) -> Tensor:
        with warnings.catch_warnings(record=True) as noted:
            value = loss(x)
        return value + len(noted)

    cases: list[tuple[Any, Any]] = [(loss, "error"), (catches, "error"), (notes, "always")]
    for function, action in cases:
        step = capture(function)
        for place in range(9):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if place in (6, 7):
                    warnings.filterwarnings(action, "Using a target size", UserWarning)
                try:
                    found.append(float(step(torch.ones(3, 2))))
                except UserWarning as warning:
                    assert "target size" in str(warning), warning
                    found.append(-1.0)
        found.append(float(weight.sum()))
        if isinstance(step, pw.CapturedStep):
            assert step.replays >= 3, step
    return found


SCENARIOS = (
    warnings_as_errors,
    asked_by_text,
    wrapped_functions,
    functions_of_torch_itself,
    switches,
    objects_of_python,
    classes,
    installed_packages,
    methods_of_tensors,
    order_of_hooks,
    devices_asked_for,
)
