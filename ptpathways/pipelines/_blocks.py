"""Where a model can be cut: between its blocks, which are the entries of its ``nn.Sequential`` or ``nn.ModuleList``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ptpathways import core
from ptpathways.pipelines._model import ModelGraph, module_path, source_of, value_of

_LISTS = (nn.Sequential, nn.ModuleList)


@dataclass(frozen=True, slots=True)
class Block:
    """A run of operations that is not cut: one call of a block, with what stands between it and the next."""

    path: str
    """Of the module, in the user's model."""
    first: int
    """Its first node."""
    cost: float
    """Of one forward pass: floating point operations, and a little for each element that is written."""


def paths_of(model: nn.Module) -> list[str]:
    """The blocks of a model, by their paths. Lists of blocks inside of lists count by their entries."""
    found = _paths("", model)
    if found:
        return found
    raise core.ModelCannotBeCut(
        f"model {type(model).__name__} has no sequence of blocks: it is no nn.Sequential, and none of its parts "
        f"({', '.join(name for name, _ in model.named_children()) or 'it has none'}) is or has an nn.Sequential or "
        "nn.ModuleList; put its blocks into one, or say where to cut with stages=['name of the first module of the "
        "second stage', ...]"
    )


def _paths(path: str, module: nn.Module) -> list[str]:
    dot = f"{path}." if path else ""
    if isinstance(module, _LISTS):
        blocks: list[str] = []
        for name, child in module.named_children():
            inner = _paths(dot + name, child) if isinstance(child, _LISTS) and _composite(child) else []
            blocks += inner or [dot + name]
        return blocks
    deep: list[str] = []
    flat: list[str] = []
    for name, child in module.named_children():
        if isinstance(child, _LISTS) and not _composite(child):
            flat += _paths(dot + name, child)
        else:
            deep += _paths(dot + name, child)
    return deep or flat


def _composite(module: nn.Module) -> bool:
    """Whether a list's entries are modules with parts of their own."""
    return any(next(child.children(), None) is not None for child in module.children())


def blocks_of(graph: ModelGraph, paths: Sequence[str], model: nn.Module) -> list[Block]:
    """The calls of the modules at ``paths``, in the order in which the model runs them; a module may have several.

    Raises:
        ModelCannotBeCut: none of them runs.
    """
    firsts: list[tuple[str, int]] = []
    for place, node in enumerate(graph.nodes):
        path = _owner(module_path(node), paths)
        if path is not None and (not firsts or firsts[-1][0] != path):
            firsts.append((path, place))
    if not firsts:
        raise core.ModelCannotBeCut(f"model {type(model).__name__} runs none of its blocks ({', '.join(paths)})")
    costs = [cost_of(node) for node in graph.nodes]
    starts = [0, *(first for _, first in firsts[1:])]
    ends = [*starts[1:], len(costs)]
    return [
        Block(path, start, sum(costs[start:end])) for (path, _), start, end in zip(firsts, starts, ends, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Cut:
    """How a user wants a model to be cut."""

    model: nn.Module
    stages: int
    names: tuple[str, ...]
    """Of the modules with which the second and later stages begin; empty: evenly between the blocks."""
    blocks: tuple[str, ...]
    """The model's blocks, by path."""

    @classmethod
    def of(cls, model: nn.Module, stages: int | Sequence[str]) -> Cut:
        """
        Raises:
            PipelineError: not a positive number nor names.
            ModelCannotBeCut: the model has no such modules, no blocks, or fewer blocks than stages.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be an nn.Module, got {model!r}")
        away = next((name for name, one in model.named_parameters() if one.device.type != "cpu"), None)
        if away is not None:
            raise core.PipelineError(
                f"model {type(model).__name__} must be on the CPU, from where its parameters go to the slices; "
                f"{away!r} is on {model.get_parameter(away).device}: use model.to('cpu'), or to_empty and a "
                "checkpoint for one on the meta device"
            )
        if isinstance(stages, list | tuple) and not stages:
            stages = 1
        if isinstance(stages, int) and not isinstance(stages, bool):
            if stages < 1:
                raise core.PipelineError(f"stages must be at least 1, got {stages}")
            blocks = tuple(paths_of(model))
            if stages > len(blocks):
                raise _too_many(model, stages, blocks)
            return cls(model, stages, (), blocks)
        if not isinstance(stages, list | tuple) or not all(isinstance(name, str) for name in stages):
            raise core.PipelineError(
                "stages must be a number, or a list of the names of the modules with which the second and later stages "
                f"begin, got {stages!r}"
            )
        known = dict(model.named_modules())
        for name in stages:
            if name not in known:
                near = [one for one in known if one and one.rpartition(".")[0] == name.rpartition(".")[0]]
                raise core.ModelCannotBeCut(
                    f"model {type(model).__name__} has no module {name!r} at which a stage could begin; there are "
                    f"{', '.join(map(repr, near or [one for one, _ in model.named_children()]))}"
                )
        return cls(model, len(stages) + 1, tuple(stages), ())

    def places(self, graph: ModelGraph) -> list[int]:
        """The first node of each stage.

        Raises:
            ModelCannotBeCut: the model does not run its blocks one after the other, or the named modules in their
                order.
        """
        if not self.names:
            blocks = blocks_of(graph, self.blocks, self.model)
            return [blocks[block].first for block in cut_evenly(blocks, self.stages, self.model)]
        places = [0]
        for name in self.names:
            inside = [
                place
                for place, node in enumerate(graph.nodes)
                if (path := module_path(node)) == name or path.startswith(f"{name}.")
            ]
            if not inside or inside[0] <= places[-1]:
                what = "computes nothing" if not inside else "runs before the stage in front of it has begun"
                raise core.ModelCannotBeCut(
                    f"model {type(self.model).__name__} cannot begin a stage with {name!r}, which {what}"
                    f"{_at(graph.nodes[inside[0]]) if inside else ''}; name the modules in the order in which they run"
                )
            places.append(inside[0])
        return places


def _too_many(model: nn.Module, stages: int, blocks: Sequence[str]) -> core.ModelCannotBeCut:
    return core.ModelCannotBeCut(
        f"{stages} stages need at least as many blocks, and model {type(model).__name__} has {len(blocks)} "
        f"({', '.join(blocks[:6])}{', ...' if len(blocks) > 6 else ''}); ask for at most {len(blocks)} stages"
    )


def cut_evenly(blocks: Sequence[Block], stages: int, model: nn.Module) -> list[int]:
    """The first block of each stage, so that the most expensive stage is as cheap as can be.

    Raises:
        ModelCannotBeCut: there are more stages than blocks.
    """
    if stages > len(blocks):
        raise _too_many(model, stages, [block.path for block in blocks])
    costs = [block.cost for block in blocks]
    sums = [0.0, *itertools.accumulate(costs)]
    best: list[list[float]] = [[0.0] + [float("inf")] * len(costs)]
    cut: list[list[int]] = []
    for _ in range(stages):  # the cheapest way to put the first n blocks into so many stages
        row, choice = [float("inf")] * (len(costs) + 1), [0] * (len(costs) + 1)
        for end in range(1, len(costs) + 1):
            for start in range(end):
                worst = max(best[-1][start], sums[end] - sums[start])
                if worst < row[end]:
                    row[end], choice[end] = worst, start
        best.append(row)
        cut.append(choice)
    firsts: list[int] = []
    end = len(costs)
    for choice in reversed(cut):
        end = choice[end]
        firsts.append(end)
    return firsts[::-1]


def cost_of(node: fx.Node) -> float:
    """Floating point operations of a node, and a little for what it writes."""
    values = [leaf for leaf in _leaves(value_of(node)) if isinstance(leaf, torch.Tensor)]
    written = float(sum(value.numel() for value in values))
    if not values or not isinstance(node.target, torch._ops.OpOverload):
        return written
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), value_of)
    modes = [leaf.fake_mode for leaf in values if hasattr(leaf, "fake_mode")]
    if not modes:
        return written
    counter = _Counter()
    with modes[0], torch.no_grad(), counter:
        node.target(*args, **kwargs)
    return counter.total + written


class _Counter(TorchDispatchMode):
    """Adds up floating point operations. Torch's own counter hooks itself into the modules of all threads."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0.0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        count = flop_registry.get(function.overloadpacket)
        if count is not None:
            self.total += float(count(*args, **(kwargs or {}), out_val=made))
        return made


def _leaves(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _owner(path: str, paths: Sequence[str]) -> str | None:
    return next((one for one in paths if path == one or path.startswith(f"{one}.")), None)


def _at(node: fx.Node) -> str:
    source = source_of(node)
    return f" at {source}" if source else ""
