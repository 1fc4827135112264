"""What a model's Python does while it is exported that its graph does not show: each of it is noticed, and refused.

An exported graph has the operations of the forward pass. It has no hook, no backward pass that the user wrote, and no
attribute that was changed.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import operator
import sys
import threading
from collections.abc import Collection, Iterator
from typing import Any, TextIO

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from ptpathways import core, frontend

_OWN_FUNCTIONS = frozenset({"_NoopSaveInputs"})
"""Of torch's checkpoints that keep gradients as they are."""
_PLAIN = (bool, int, float, str, type(None))
_OF_MODULES = frozenset(vars(nn.Module()))
_CONTAINERS = (list, dict, set)
_LEFT_ALONE = frozenset({"training", "_parameters", "_buffers", "_modules"})


@contextlib.contextmanager
def observed(model: str) -> Iterator[dict[tuple[int, str], nn.Module]]:
    """Inside, a model may be exported: one thread at a time, without torch's output, and refusing what is not seen.

    Gives the modules whose attributes are read inside, by their ids and the attributes' names.

    Raises:
        ModelCannotBeCut: inside, where the code registers a hook, sets ``.data``, calls ``backward`` or
            ``torch.autograd.grad``, or applies a ``torch.autograd.Function`` of its own.
    """
    reads: dict[tuple[int, str], nn.Module] = {}
    with (
        frontend.exclusively(),
        _silent(),
        _functions_refused(model),
        _Refusing(model),
        _compiled_as_written(),
        _reading(reads),
    ):
        yield reads


class _Refusing(TorchFunctionMode):
    """Refuses calls that export would forget."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self._model = model
        hook = "registers a hook on a tensor, which a stage's backward pass would not call"
        inner = "computes gradients in its forward pass, which are not part of its graph"
        tensor: Any = Tensor
        self._refused = {
            tensor.data.__set__: "sets the data of a tensor, which would stay the same in every step",
            tensor.register_hook: hook,
            tensor.register_post_accumulate_grad_hook: hook,
            tensor.backward: inner,
            torch.autograd.grad: inner,
            torch.autograd.backward: inner,
        }

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        what = self._refused.get(function)
        if what is not None:
            raise _refusal(self._model, what)
        return function(*args, **(kwargs or {}))


def _refusal(model: str, what: str) -> core.ModelCannotBeCut:
    source = frontend.user_source_line()
    return core.ModelCannotBeCut(f"model {model} {what}{f' (at {source})' if source else ''}; leave that out")


@contextlib.contextmanager
def _functions_refused(model: str) -> Iterator[None]:
    """A ``torch.autograd.Function`` leaves only its forward pass in a graph, which then has another gradient."""
    module: Any = torch.autograd.function
    known, thread = module._is_setup_context_defined, threading.get_ident()

    def ask(setup_context: Any) -> Any:  # the first thing that apply() calls, however apply was kept by the user
        if threading.get_ident() == thread:
            kind = sys._getframe(1).f_locals.get("cls")
            name, home = getattr(kind, "__name__", "?"), getattr(kind, "__module__", "")
            if not home.startswith("torch._") and not (home.startswith("torch.") and name in _OWN_FUNCTIONS):
                raise _refusal(
                    model,
                    f"applies the torch.autograd.Function {name}, whose backward is not part of its graph (reentrant "
                    "checkpoints are one: use_reentrant=False is none); write it with operations that torch can "
                    "differentiate",
                )
        return known(setup_context)

    module._is_setup_context_defined = ask
    try:
        yield
    finally:
        module._is_setup_context_defined = known


@contextlib.contextmanager
def _compiled_as_written() -> Iterator[None]:
    """Inside, what ``torch.compile`` made runs as it was written: a graph of operations is what is asked for."""
    stance: Any = torch.compiler.set_stance
    with stance("force_eager"):
        yield


@contextlib.contextmanager
def _reading(reads: dict[tuple[int, str], nn.Module]) -> Iterator[None]:
    """Inside, notes which attributes of modules this thread reads."""
    kind: Any = nn.Module
    thread = threading.get_ident()

    def read(module: nn.Module, name: str) -> Any:
        if threading.get_ident() == thread:
            reads[id(module), name] = module
        return object.__getattribute__(module, name)

    kind.__getattribute__ = read
    try:
        yield
    finally:
        del kind.__getattribute__


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Inside, what this thread prints is dropped: torch prints graphs. What others print is not."""
    out, error = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _OthersOnly(out), _OthersOnly(error)
    log, thread = logging.getLogger("torch._subclasses.fake_tensor"), threading.get_ident()

    def others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    log.addFilter(others)  # it logs each error that is raised
    try:
        yield
    finally:
        log.removeFilter(others)
        sys.stdout, sys.stderr = out, error


class _OthersOnly:
    """A stream that drops what the thread that made it writes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() == self._thread:
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _same(one: Any, other: Any) -> bool:
    """Whether two lists, dictionaries or sets have the same elements."""
    if len(one) != len(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(one[key] is other[key] for key in one)
    return one == other if isinstance(one, set) else all(map(operator.is_, one, other))


def _fill(container: Any, elements: Any) -> None:
    container.clear()
    (container.extend if isinstance(container, list) else container.update)(elements)


class Attributes:
    """The attributes of a model before its forward pass, to compare with those after it."""

    def __init__(self, model: nn.Module, temporary: Collection[str] = ()) -> None:
        """``temporary``: attributes, by path, that may hold other tensors afterwards."""
        self._model = type(model).__name__
        self._temporary = frozenset(temporary)
        self._modules = list(model.named_modules())
        self._tensors = [{**one._parameters, **one._buffers} for _, one in self._modules]
        self._others = [dict(vars(one)) for _, one in self._modules]
        self._contents = [
            {
                name: copy.copy(value)
                for name, value in others.items()
                if type(value) in _CONTAINERS and name not in _OF_MODULES
            }
            for others in self._others
        ]
        self.changed: dict[str, Any] = {}
        """After ``restore``: attributes that were changed and may matter the next time, by path, with what they were
        changed into."""
        self.replaced: dict[str, Tensor] = {}
        """After ``restore``: attributes, by path, that held these tensors, and others afterwards."""

    def restore(self) -> None:
        """Puts everything back.

        Raises:
            ModelCannotBeCut: a parameter or a buffer of the model was replaced.
        """
        replaced: list[tuple[str, str]] = []
        for (path, module), tensors, others, contents in zip(
            self._modules, self._tensors, self._others, self._contents, strict=True
        ):
            for name, kept in contents.items():
                if not _same(others[name], kept):
                    self.changed[f"{path}.{name}" if path else name] = copy.copy(others[name])
                    _fill(others[name], kept)
            for name in {**tensors, **module._parameters, **module._buffers}:
                now = module._parameters.get(name, module._buffers.get(name))
                if now is not tensors.get(name):
                    replaced.append((path, name))
                    home = module._parameters if name in module._parameters else module._buffers
                    home.pop(name, None)
                    if tensors.get(name) is not None:
                        home[name] = tensors[name]
            for name in [*others, *(name for name in vars(module) if name not in others)]:
                if name in _LEFT_ALONE or name.startswith("_forward") or name.startswith("_backward"):
                    continue
                old, now = others.get(name), vars(module).get(name)
                if now is old:
                    continue
                at = f"{path}.{name}" if path else name
                if isinstance(old, Tensor) and at not in self._temporary:
                    self.replaced[at] = old
                elif isinstance(now, Tensor) or (isinstance(now, _PLAIN) and now != old):
                    self.changed[at] = now
                if name in others:
                    module.__dict__[name] = old
                elif isinstance(now, (Tensor, *_PLAIN)):
                    module.__dict__.pop(name, None)
        if replaced:
            path, name = replaced[0]
            raise self._replaces(f"{path}.{name}" if path else name)

    def check_read(self, tensors: Collection[Tensor]) -> None:
        """Raises ModelCannotBeCut if one of ``tensors``, which a graph reads, is one that the forward pass replaced."""
        read = {tensor.untyped_storage()._cdata for tensor in tensors}
        for path, tensor in self.replaced.items():
            if tensor.untyped_storage()._cdata in read:
                raise self._replaces(path)

    def _replaces(self, path: str) -> core.ModelCannotBeCut:
        return core.ModelCannotBeCut(
            f"model {self._model} replaces {path!r} in its forward pass, which every microbatch would do once more; "
            "change it between the steps"
        )

    @contextlib.contextmanager
    def as_changed(self) -> Iterator[None]:
        """Inside, the attributes are what the forward pass left; tensors are zeros."""
        modules = dict(self._modules)
        undo: list[tuple[nn.Module, str, Any, bool]] = []
        for path, value in self.changed.items():
            parent, _, name = path.rpartition(".")
            module = modules[parent]
            undo.append((module, name, vars(module).get(name), name in vars(module)))
            module.__dict__[name] = _pytree.tree_map_only(
                Tensor, lambda one: torch.zeros(one.shape, dtype=one.dtype), value
            )
        try:
            yield
        finally:
            for module, name, old, known in undo:
                if known:
                    module.__dict__[name] = old
                else:
                    module.__dict__.pop(name, None)
