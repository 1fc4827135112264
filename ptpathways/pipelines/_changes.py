"""What the user changed between two steps: settings that are part of what was compiled, and values on the CPU."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

from ptpathways import core, frontend
from ptpathways.pipelines import _unused

_PLAIN = frozenset({bool, int, float, str, type(None)})
_LISTS = frozenset({list, tuple})
_MAPPINGS = frozenset({dict, OrderedDict})
_MISSING = object()
_OF_MODULES = frozenset(vars(nn.Module())) - {"training"}
"""A module's parts and hooks, which are looked at by themselves."""
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


class Setting:
    """All that a compiled step depends on: the modules there are, what their forward passes read, what is trained."""

    def __init__(self, model: nn.Module, reads: Iterable[tuple[nn.Module, str]], before: Setting | None) -> None:
        """
        Args:
            reads: modules and names of attributes that the forward pass has read.
            before: of earlier exports, what they read counts too.
        """
        self._modules = list(model.modules())
        known = {(id(module), name): module for module, name in before._reads} if before is not None else {}
        inside = {id(module) for module in self._modules}
        for module, name in reads:
            parts = (_OF_MODULES, module._parameters, module._buffers, module._modules)
            everyones = vars(nn.Module).get(name) is _value(module, name)
            if (
                id(module) in inside
                and not everyones
                and not name.startswith("__")
                and not any(name in part for part in parts)
            ):
                known.setdefault((id(module), name), module)
        self._reads: list[tuple[nn.Module, str]] = [(module, name) for (_, name), module in known.items()]
        self._kept: dict[int, Any] = before._kept if before is not None else {}  # so that no other has the same id

    def same_reads(self, other: Setting | None) -> bool:
        return other is not None and len(self._reads) == len(other._reads)

    def now(self, optimizer: torch.optim.Optimizer) -> Any:
        """In a form to compare."""
        found: list[Any] = [self._mark(_value(module, name)) for module, name in self._reads]
        for module in self._modules:
            found.append(type(module))
            found.append(self._mark(module.__dict__.get("forward")))
            for name in _HOOKS:
                hooks = module.__dict__[name]
                if hooks:
                    found.append((name, self._mark(hooks)))
            for parts in (module._modules, module._parameters, module._buffers):
                for part in parts.values():
                    self._kept[id(part)] = part
                    found.append((id(part), part.requires_grad) if isinstance(part, Tensor) else id(part))
        for everywhere in (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks):
            found.append(self._mark(everywhere))
        found.append(membership(optimizer))
        return tuple(found)

    def _mark(self, value: Any) -> Any:
        """A plain value itself, the elements of lists and dictionaries, or else which object it is."""
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if kind in _LISTS:
            return kind, tuple(map(self._mark, value))
        if kind in _MAPPINGS:
            return kind, tuple((self._mark(key), self._mark(item)) for key, item in value.items())
        self._kept[id(value)] = value
        return (id(value), value._version) if isinstance(value, Tensor) else id(value)


def _value(module: nn.Module, name: str) -> Any:
    """Of an attribute of a module or of its class."""
    for home in (module, *type(module).__mro__):
        if name in home.__dict__:
            return home.__dict__[name]
    return _MISSING


def membership(optimizer: torch.optim.Optimizer) -> tuple[tuple[int, ...], ...]:
    """Which parameters are in which group, by their ids."""
    return tuple(tuple(map(id, group["params"])) for group in optimizer.param_groups)


def refuse_hooks(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raises ModelCannotBeCut or PipelineError if there are hooks that a compiled step would not call."""
    everywhere = (torch_module._global_backward_hooks, torch_module._global_backward_pre_hooks)
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks or any(everywhere):
            raise core.ModelCannotBeCut(
                f"module {path or type(model).__name__!r} has backward hooks, which a stage's backward pass would not "
                "call; remove them"
            )
        for name, parameter in module._parameters.items():
            if parameter is not None and (parameter._backward_hooks or parameter._post_accumulate_grad_hooks):
                raise core.ModelCannotBeCut(
                    f"parameter {f'{path}.{name}' if path else name!r} has hooks on its gradient, which a pipeline "
                    "would not call; remove them"
                )
    hooks: list[Any] = [
        [hook for hook in optimizer._optimizer_step_pre_hooks.values() if hook is not _unused.on_step],
        optimizer._optimizer_step_post_hooks,
        [
            hook
            for hook in torch_optimizer._global_optimizer_pre_hooks.values()
            if hook is not frontend.optimizer_state_hook
        ],
        torch_optimizer._global_optimizer_post_hooks,
    ]
    if any(hooks):
        raise core.PipelineError(
            f"optimizer {type(optimizer).__name__} has hooks around its step, which a compiled update would not call; "
            "remove them"
        )


class Mirror:
    """The parameters of the user's module, which are copies of those on the slices, or will be: who changed them?

    ``written`` says that they are what the slices have; from then on a change is the user's.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._values: dict[str, Tensor] = {}

    def clear(self) -> None:
        self._seen.clear()
        self._values.clear()

    def written(self, tensors: Mapping[str, Tensor], *, values: bool) -> None:
        """``values``: keep them, because what is changed through ``.data`` is seen by its values only."""
        for name, tensor in tensors.items():
            self._seen[name] = _mark(tensor)
            if values:
                self._values[name] = tensor.detach().clone()

    def forget_values(self) -> None:
        """The values on the slices are others from now on."""
        self._values.clear()

    def changed(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """The names of those that somebody changed, or took away, since."""
        gone = [name for name in self._seen if name not in tensors]
        return gone + [
            name
            for name, tensor in tensors.items()
            if name in self._seen
            and (
                self._seen[name] != _mark(tensor)
                or (name in self._values and not _same(self._values[name], tensor.detach()))
            )
        ]


def _mark(tensor: Tensor) -> tuple[int, int, int]:
    return id(tensor), tensor._version, tensor.data_ptr()


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


def stale(what: str, names: Iterable[str], way: str) -> core.PipelineError:
    """The error about a change of values on the CPU that are older than those on the slices."""
    return core.PipelineError(
        f"{what} ({', '.join(sorted(names)[:4])}) were changed on the CPU, where they are those of an earlier step; "
        f"{way}"
    )
