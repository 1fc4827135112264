"""Whether a state fits a pipeline's model and optimizer, before anything of it is loaded."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ptpathways import core
from ptpathways.pipelines._optimizer import OptimizerRule

_SAVED = "pipe.state_dict() gives one that fits"


def check(state: Any, model: nn.Module, rule: OptimizerRule) -> None:
    """Raises TypeError or PipelineError unless it is a state of this model and of an optimizer of this kind."""
    if not isinstance(state, Mapping):
        raise TypeError(
            "the state of a pipeline must be a dictionary {'model': ..., 'optimizer': ...}, got a "
            f"{type(state).__name__}; {_SAVED}"
        )
    missing = [key for key in ("model", "optimizer") if key not in state]
    if missing:
        raise core.PipelineError(
            f"the state of a pipeline is {{'model': ..., 'optimizer': ...}}, and {missing} is missing; of a model "
            "alone: pipe.module.load_state_dict(state)"
        )
    _check_model(state["model"], model)
    check_optimizer(state["optimizer"], rule)


def _check_model(state: Any, model: nn.Module) -> None:
    """Loads the shapes of a state into the shapes of the model, as torch does."""
    if not isinstance(state, Mapping):
        raise TypeError(f"the state of model {type(model).__name__} must be a dictionary, got a {type(state).__name__}")
    shapes = {
        key: torch.empty_like(value, device="meta") if isinstance(value, Tensor) else value
        for key, value in state.items()
    }
    try:
        _shell(model, {}).load_state_dict(shapes)
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        raise core.PipelineError(f"{error}; nothing was changed") from None


def _shell(module: nn.Module, known: dict[int, nn.Module]) -> nn.Module:
    """A module with the same code and names, the tensors of which have no values."""
    if id(module) in known:
        return known[id(module)]
    made: nn.Module = object.__new__(type(module))
    known[id(module)] = made
    made.__dict__.update(vars(module))
    made.__dict__["set_extra_state"] = lambda state: None
    made.__dict__["_modules"] = {
        name: None if part is None else _shell(part, known) for name, part in module._modules.items()
    }
    for home in ("_parameters", "_buffers"):
        made.__dict__[home] = {
            name: None if part is None else torch.empty_like(part, device="meta", requires_grad=part.requires_grad)
            for name, part in getattr(module, home).items()
        }
    return made


def check_optimizer(state: Any, rule: OptimizerRule) -> None:
    """Loads a state into a copy of the optimizer and records a step of it."""
    kind = type(rule.optimizer)
    if not isinstance(state, Mapping) or not {"state", "param_groups"} <= set(state):
        have = ", ".join(map(repr, state)) if isinstance(state, Mapping) else f"a {type(state).__name__}"
        raise core.PipelineError(
            f"the state of optimizer {kind.__name__} must be {{'state': ..., 'param_groups': ...}}, as its "
            f"state_dict() gives it, got {have or 'nothing'}. Nothing was changed"
        )
    shadow: Any = object.__new__(kind)
    shadow.__dict__.update({key: value for key, value in vars(rule.optimizer).items() if key != "step"})
    for name in [name for name in vars(shadow) if name.startswith("_optimizer_") and "hooks" in name]:
        shadow.__dict__[name] = collections.OrderedDict()
    shadow.param_groups = [dict(group) for group in rule.optimizer.param_groups]
    shadow.state = collections.defaultdict(dict)
    try:
        shadow.load_state_dict({**state})
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        held = state["state"].values() if isinstance(state["state"], Mapping) else ()
        keys = sorted({str(key) for one in held if isinstance(one, Mapping) for key in one})
        raise core.PipelineError(
            f"the state does not fit optimizer {kind.__name__}: {type(error).__name__}: {error}. It has "
            f"{', '.join(keys) or 'nothing'} for parameters; load that of another optimizer of the same kind and with "
            "the same groups. Nothing was changed"
        ) from None
    names = {id(parameter): name for name, parameter in rule.parameters.items()}
    for parameter, tensors in shadow.state.items():
        for key, value in tensors.items():
            if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                raise core.PipelineError(
                    f"{key!r} of parameter {names[id(parameter)]!r} in the state of optimizer {kind.__name__} must "
                    f"have the shape {tuple(parameter.shape)}, got {tuple(value.shape)}. Nothing was changed"
                )
    try:
        OptimizerRule(shadow, names).try_out()
    except core.PipelineError as error:
        raise core.PipelineError(f"{error}. Nothing was changed") from None
