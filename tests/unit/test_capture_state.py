"""What a captured step is found to depend on, and whether a change of it is noticed. No devices."""

from __future__ import annotations

import argparse
import collections
import contextvars
import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import ptpathways as pw
from ptpathways.frontend.capture import _keys
from ptpathways.frontend.capture.objects import _walk
from ptpathways.frontend.capture.python._contents import setting_key
from ptpathways.frontend.capture.recording._step_arguments import Call, Rules, modes, text_of

CONFIG = types.SimpleNamespace(scale=2.0)
NUMBER = 1.0


class Ordered(dict[str, int]):
    """Has an attribute beside what is in it."""

    level = 1


class Slotted:
    """Keeps its attribute in a slot."""

    __slots__ = ("__weakref__", "width")

    def __init__(self) -> None:
        self.width = 3


class Options:
    """Settings as attributes of a class."""

    depth = 3


class Net(nn.Module):
    """A module of the user's, with all kinds of attributes."""

    portion = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(1, 1), nn.Tanh())
        self.act = F.gelu
        self.config = argparse.Namespace(rate=0.1)
        self.weights = [0.5, 0.5]
        self._slope = 0.1
        self.register_buffer("mask", None)

    def forward(self, x: Any) -> Any:
        return self._scaled(self.act(self.inner(x)))

    def _scaled(self, x: Any) -> Any:
        return x * NUMBER * self.portion * Options.depth


def key_of(function: Callable[..., Any], *args: Any) -> Any:
    """What a replay of the function would take for granted."""
    return _keys.key_of(Call(args, {}, Rules()), _walk.walk(function, (args, {}), args))


def test_a_default_device_that_was_taken_back_is_the_cpu() -> None:
    """Torch's own question for it fails then."""
    before = dict(modes())
    torch.set_default_device("cpu")
    torch.set_default_device(None)
    assert dict(modes()) == before and before["the default device"] == "cpu"


def test_a_step_is_looked_into_wherever_it_was_written() -> None:
    """Also in a file that is nobody's, such as that of ``python -c``, or a library's."""
    model = nn.Linear(1, 1)
    names: dict[str, Any] = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    exec(compile("def step(x):\n    helper()\ndef helper():\n    optimizer.step()\n", "<string>", "exec"), names)
    found = _walk.walk(names["step"], ())
    assert list(found.optimizers.values()) == [names["optimizer"]] and "helper.optimizer.0.lr" in found.options
    assert not _walk.walk(torch.optim.SGD.step, ()).optimizers


def test_a_global_of_an_attributes_name_is_not_looked_at() -> None:
    model = nn.Linear(1, 1)
    names: dict[str, Any] = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "step": 1, "scale": 2.0}
    text = "def train(x):\n    loss = lambda: x * scale\n    optimizer.step()\n    return loss()\n"
    exec(compile(text, "<string>", "exec"), names)
    settings = _walk.walk(names["train"], ()).settings
    assert "scale" in settings and "step" not in settings


def _own(default: float) -> Callable[..., Any]:
    return lambda x, shift=default: x + shift


def _hooked(world: dict[str, Any]) -> None:
    world["net"].register_forward_hook(lambda module, inputs, output: output * 2)


def _set(what: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    def change(world: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(world[what], name, value)

    return change


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "the class of a module": lambda world: world.update(criterion=nn.L1Loss()),
    "the class of a part of a module": lambda world: world["net"].inner.__setitem__(1, nn.Sigmoid()),
    "a part more": lambda world: world["net"].inner.append(nn.Tanh()),
    "a parameter more": lambda world: world["scales"].append(nn.Parameter(torch.ones(1))),
    "a function of a library": lambda world: world.update(loss_fn=F.l1_loss),
    "a function written in C": lambda world: world.update(act=torch.sin),
    "a function of the user's": lambda world: world.update(own=lambda x: x + 2),
    "a function with another default": lambda world: world.update(own=_own(4)),
    "an element of a list": lambda world: world["weights"].__setitem__(1, 0.1),
    "an element more": lambda world: world["weights"].append(0.1),
    "an entry more": lambda world: world["table"].update(more=1),
    "a number of NumPy": lambda world: world.update(beta=np.float32(0.25)),
    "a tensor of the CPU": lambda world: world["offset"].add_(1),
    "another tensor of the CPU": lambda world: world.update(offset=torch.zeros(1)),
    "a namespace": lambda world: setattr(world["config"], "scale", 3.0),
    "a variable in a closure": lambda world: world["other"](2.0),
    "which of two": lambda world: world.update(first=world["second"]),
    "what torch.no_grad is around": lambda world: world.update(quiet=torch.no_grad()(lambda x: x + 3)),
    "an object that cannot be looked into": lambda world: world.update(lock=threading.Lock()),
    "what is in a queue": lambda world: world["queue"].append(2),
    "what is in an array": lambda world: world["array"].__setitem__(1, 5),
    "what is in a set": lambda world: world["members"].add(5),
    "the order of a set": lambda world: (world["members"].clear(), world["members"].update([9, 1])),
    "the sign of a part of a complex number": lambda world: world.update(complex=complex(1, -0.0)),
    "the sign of a zero of NumPy": lambda world: world.update(zero=np.float32(-0.0)),
    "the format of bytes": lambda world: world.update(bytes=world["bytes"].cast("i")),
    "what a masked array is filled with": lambda world: world["masked"].set_fill_value(7.0),
    "an attribute of a function": lambda world: setattr(world["own"], "members", 4),
    "an attribute that hides that of the class": _set("net", portion=0.25),
    "a hook of a tensor": lambda world: world["net"].inner[0].weight.register_hook(lambda gradient: gradient * 2),
    "a default of a function": lambda world: setattr(world["own"], "__defaults__", (9,)),
    "a keyword of a partial call": lambda world: world["partial"].keywords.update(end="b"),
    "an attribute of a dictionary's subclass": lambda world: setattr(world["ordered"], "level", 2),
    "an attribute of a tensor": lambda world: setattr(world["offset"], "scale", 2.0),
    "a context variable": lambda world: world["variable"].set(2),
    "a global variable by its text": lambda world: world.update(by_text=3),
    "a slot": lambda world: setattr(world["slotted"], "width", 5),
    "what a weak reference leads to": lambda world: setattr(world["weak"](), "width", 7),
    "an element of a long list": lambda world: world["long"].__setitem__(20_000, 5),
    "a function that somebody puts into a library": lambda world: world["library"].__dict__.update(loss=len),
    "a hook": _hooked,
    "a function of a module": _set("net", act=F.relu),
    "an attribute with an underscore": _set("net", _slope=0.2),
    "a list of a module": lambda world: world["net"].weights.__setitem__(0, 0.25),
    "a namespace of a module": lambda world: setattr(world["net"].config, "rate", 0.2),
    "a buffer that was None": _set("net", mask=torch.ones(1)),
}


def _world() -> dict[str, Any]:
    world: dict[str, Any] = {
        "net": Net(),
        "criterion": nn.MSELoss(),
        "loss_fn": F.mse_loss,
        "scales": nn.ParameterList([torch.ones(1)]),
        "act": torch.cos,
        "own": _own(3),
        "weights": [0.5, 0.5],
        "table": {"first": 1},
        "beta": np.float32(0.5),
        "offset": torch.zeros(1),
        "config": types.SimpleNamespace(scale=2.0),
        "first": nn.Tanh(),
        "second": nn.Tanh(),
        "quiet": torch.no_grad()(lambda x: x + 1),
        "lock": threading.Lock(),
        "queue": collections.deque([1]),
        "array": np.zeros(3),
        "members": {1, 9},  # which collide: the one that was put in first is the first
        "complex": complex(1, 0.0),
        "zero": np.float32(0.0),
        "bytes": memoryview(bytes(16)),
        "masked": np.ma.array([1.0, 2.0], mask=[False, True], fill_value=3.0),
        "slotted": Slotted(),
        "partial": functools.partial(print, end="a"),
        "ordered": Ordered(),
        "variable": contextvars.ContextVar("variable", default=1),
        "long": [0] * 30_000,
        "library": types.ModuleType("a_library"),
    }
    world["kept"] = Slotted()
    world["weak"] = weakref.ref(world["kept"])
    world["library"].loss = max
    factor = 1.0

    def scaled(x: Any) -> Any:
        return x * factor

    def other(value: float) -> None:
        nonlocal factor
        factor = value

    world.update(scaled=scaled, other=other)
    source = "def step(x):\n    " + "; ".join(world) + "; library.loss; net.portion; own.members"
    source += "; globals()['by_text']\n"
    world["by_text"] = 2
    exec(compile(source, __file__, "exec"), world)
    return world


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed_and_makes_another_computation(change: str) -> None:
    world = _world()
    before, found = key_of(world["step"]), _walk.walk(world["step"], ())
    assert found.still_holds() and key_of(world["step"]) == before
    CHANGES[change](world)
    assert not found.still_holds()
    assert key_of(world["step"]) != before


@pytest.mark.parametrize(
    ("where", "name"), [(Net, "portion"), (Options, "depth"), (None, "NUMBER"), (CONFIG, "scale"), (Net, "_scaled")]
)
def test_what_methods_of_the_users_classes_read_is_guarded(monkeypatch: Any, where: Any, name: str) -> None:
    net = Net()

    def step(x: Any) -> Any:
        return net(x) * CONFIG.scale

    before, found = key_of(step), _walk.walk(step, ())
    assert found.still_holds()
    changed = (lambda self, x: x) if name == "_scaled" else 7
    if where is None:
        monkeypatch.setitem(globals(), name, changed)
    else:
        monkeypatch.setattr(where, name, changed)
    assert not found.still_holds() and key_of(step) != before


def test_what_a_scheduler_notes_for_itself_is_no_option() -> None:
    """It equals the rate at first, and would be taken for it."""
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    torch.optim.lr_scheduler.LinearLR(optimizer)

    def step() -> None:
        optimizer.step()

    options = _walk.walk(step, ()).options
    assert "optimizer.0.lr" in options and "optimizer.0.initial_lr" not in options


class Trainer:
    """Keeps more than its step uses."""

    def __init__(self) -> None:
        self.history = [1.0]
        self.epoch = 0
        self.table = Table()
        self.scale = 2.0

    def step(self, x: Any) -> Any:
        return x * self.table["a"] * self._factor()

    def _factor(self) -> float:
        return self.scale

    def loop(self) -> None:
        self.history.append(2.0)
        self.epoch += 1


class Table:
    """Reads by an operator."""

    def __init__(self) -> None:
        self._values = {"a": 1.0}

    def __getitem__(self, name: str) -> float:
        return self._values[name]


def test_of_an_object_matters_what_the_step_mentions() -> None:
    trainer = Trainer()
    before, found = key_of(trainer.step), _walk.walk(trainer.step, ())
    trainer.loop()
    assert found.still_holds() and key_of(trainer.step) == before
    trainer.table._values["a"] = 3.0
    assert not found.still_holds() and key_of(trainer.step) != before
    trainer.table._values["a"] = 1.0
    assert key_of(trainer.step) == before
    trainer.scale = 1.0
    assert key_of(trainer.step) != before


def test_what_is_made_anew_but_alike_is_the_same_computation() -> None:
    world = _world()
    before = key_of(world["step"])
    fresh = _world()
    for name in ("criterion", "first", "second", "config", "weights", "table"):
        world[name] = fresh[name]
    assert key_of(world["step"]) == before


def test_arguments_that_are_not_plain_are_told_apart() -> None:
    def step(beta: Any) -> Any:
        return beta

    assert len({key_of(step, np.float32(n)) for n in range(20)}) == 20
    assert key_of(step, np.float32(1)) == key_of(step, np.float32(1)) != key_of(step, np.float64(1))
    assert len({key_of(step, object()) for _ in range(20)}) == 20
    assert key_of(step, {1, 9}) == key_of(step, {1, 9}) != key_of(step, {9, 1})
    assert key_of(step, {frozenset({1, 9}): 1}) == key_of(step, {frozenset({1, 9}): 1})
    assert key_of(step, {frozenset({1, 9}): 1}) != key_of(step, {frozenset({9, 1}): 1})
    assert key_of(step, {(1, frozenset({1, 9})): 1}) != key_of(step, {(1, frozenset({9, 1})): 1})
    for kind in (complex, np.complex64, np.complex128):
        assert len({key_of(step, kind(complex(*parts))) for parts in ((0.0, 0.0), (0.0, -0.0), (-0.0, 0.0))}) == 3
    assert key_of(step, np.float64(0.0)) != key_of(step, np.float64(-0.0))
    assert key_of(step, np.zeros(1, np.dtype("f8", metadata={"k": 1}))) != key_of(step, np.zeros(1))
    assert key_of(step, memoryview(bytes(4))) != key_of(step, memoryview(bytes(4)).cast("B", (2, 2)))
    assert text_of(setting_key(-0.0)) == "-0.0" and text_of(setting_key(np.float64(0.5))) == "np.float64(0.5)"
    assert key_of(step, types.SimpleNamespace(a=1)) == key_of(step, types.SimpleNamespace(a=1))
    assert key_of(step, types.SimpleNamespace(a=1)) != key_of(step, types.SimpleNamespace(a=2))
    assert key_of(step, F.relu) != key_of(step, F.gelu)


def test_an_optimizer_that_wraps_another_one_is_not_known() -> None:
    """It may step or not as its own state says; accelerate's has no groups itself."""

    class Wrapping(torch.optim.Optimizer):
        def __init__(self, of: torch.optim.Optimizer) -> None:
            self.optimizer = of

    wrapping = Wrapping(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1))
    found = _walk.walk(lambda: wrapping.step(), ())
    assert "wrapping (" in found.unknown and "use the optimizer itself" in found.unknown


def test_a_weak_reference_to_a_tensor_that_only_autograd_has_leads_to_nothing() -> None:
    """One of autograd's threads may be letting it go; who takes a reference then destroys it twice."""
    tensor = torch.zeros(3, requires_grad=True)
    weak = weakref.ref(tensor)

    def step() -> Any:
        return weak()

    def found() -> tuple[str, int]:
        around = _walk.walk(step, ())
        return around.unknown, len(around.versions)

    graph = tensor * 1  # saves it
    assert found() == ("it reaches weak by a weak reference only, and whether that is still there is not compared", 0)
    del tensor
    assert weak() is not None and found() == ("", 0)
    del graph
    assert weak() is None


def test_a_structure_of_arguments_is_shown_as_python_writes_it() -> None:
    leaves, structure = pytree.tree_flatten((([1, 2], {"a": 3}), {"scale": 4.0}))
    assert len(leaves) == 4
    assert text_of(structure) == "(([_, _], {'a': _}), {'scale': _})"


def test_a_warning_of_a_captured_module_names_its_forward() -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    step: Any = pw.program(Model())
    with pytest.warns(pw.CaptureWarning, match="step 'Model' is slow") as caught:
        step._say("is slow")
    assert caught[0].filename == __file__
    assert caught[0].lineno == Model.forward.__code__.co_firstlineno
