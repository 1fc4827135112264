"""A model's graph divided into stages: what each runs, takes from earlier ones, and gives to later ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ptpathways import core
from ptpathways.pipelines._model import ModelGraph, source_of, value_of, written_by

_NESTED = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4, "tag_activation_checkpoint": 0}
"""Operations that run a part of the graph in another mode: how many settings come before the part."""


@dataclass(frozen=True, slots=True)
class StageGraph:
    """One stage, as names of nodes and placeholders of the model's graph."""

    number: int
    graph: ModelGraph
    nodes: tuple[fx.Node, ...]
    parameters: tuple[str, ...]
    """Placeholders."""
    buffers: tuple[str, ...]
    """Placeholders, of constants too."""
    batch: tuple[str, ...]
    """Placeholders of the batch's tensors that it reads."""
    inputs: tuple[str, ...]
    """What it takes from earlier stages."""
    outputs: tuple[str, ...]
    """What later stages take; of the last stage: the loss."""

    def run(self, values: dict[str, Any], device: torch.device) -> list[Tensor]:
        """Runs the stage's operations on ``values``, by name; the outputs."""
        known = dict(values)
        for node in self.nodes:
            known[node.name] = run_node(node, self.graph.module, lambda one: known[one.name], device)
        return [known[name] for name in self.outputs]


def run_node(node: fx.Node, owner: fx.GraphModule, value: Callable[[fx.Node], Any], device: torch.device) -> Any:
    """Runs one operation of an exported graph with the user's devices replaced by ``device``."""

    def argument(one: fx.Node) -> Any:
        return getattr(owner, str(one.target)) if one.op == "get_attr" else value(one)

    args, kwargs = fx.node.map_arg((node.args, node.kwargs), argument)
    if isinstance(kwargs.get("device"), torch.device):
        kwargs = {**kwargs, "device": device}
    args = tuple(device if isinstance(one, torch.device) else one for one in args)
    target: Any = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        return _run_nested(node, target, args, device)
    return target(*args, **kwargs)


def _run_nested(node: fx.Node, target: Any, args: tuple[Any, ...], device: torch.device) -> Any:
    settings = _NESTED.get(target.name())
    if settings is None:
        raise core.ModelCannotBeCut(f"{target.name()} at {source_of(node)} cannot be part of a stage")
    part, operands = args[settings], args[settings + 1 :]

    def run() -> Any:
        known: dict[str, Any] = {}
        given = iter(operands)
        for one in part.graph.nodes:
            if one.op == "placeholder":
                known[one.name] = next(given)
            elif one.op == "call_function":
                known[one.name] = run_node(one, part, lambda inner: known[inner.name], device)
            elif one.op == "output":
                return fx.node.map_arg(one.args[0], lambda inner: known[inner.name])
        return None

    if target.name() == "wrap_with_set_grad_enabled":
        with torch.set_grad_enabled(args[0]):
            return run()
    if target.name() == "wrap_with_autocast":
        kind, dtype, enabled, cache = args[:4]
        kind = device.type if kind in ("cpu", "cuda") else kind
        with torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=cache):
            return run()
    return run()


def divide(graph: ModelGraph, firsts: Sequence[int]) -> list[StageGraph]:
    """The stages that begin at the nodes ``firsts``.

    What depends on nothing but numbers (positions, masks) is made by every stage that uses it.
    """
    count = len(firsts)
    stage_of: dict[str, int] = {}
    order = {node.name: place for place, node in enumerate(graph.nodes)}
    stage = 0
    for place, node in enumerate(graph.nodes):
        while stage + 1 < count and place >= firsts[stage + 1]:
            stage += 1
        stage_of[node.name] = stage
    for node in graph.nodes:  # parts of a tuple go with what makes it
        maker = node.args[0] if node.args else None
        if isinstance(maker, fx.Node) and isinstance(value_of(maker), tuple | list) and maker.name in stage_of:
            stage_of[node.name] = stage_of[maker.name]
    _check_written(graph, stage_of)
    everywhere = _free(graph)
    needed: list[dict[str, fx.Node]] = [{} for _ in range(count)]  # copies of what is made everywhere
    taken: list[dict[str, None]] = [{} for _ in range(count)]
    given: list[dict[str, None]] = [{} for _ in range(count)]

    def use(stage: int, node: fx.Node) -> None:
        if node.op == "get_attr":
            return
        maker = stage_of.get(node.name)
        if maker is None or maker == stage:
            taken[stage].update({node.name: None} if maker is None else {})
            return
        if node.name in everywhere:
            if node.name not in needed[stage]:
                needed[stage][node.name] = node
                for other in node.all_input_nodes:
                    use(stage, other)
            return
        taken[stage][node.name] = None
        given[maker][node.name] = None

    for node in graph.nodes:
        for other in node.all_input_nodes:
            use(stage_of[node.name], other)
    given[stage_of[graph.loss]][graph.loss] = None
    if stage_of[graph.loss] != count - 1:
        raise core.ModelCannotBeCut("the last stage does not compute the loss; cut the model earlier")
    stages = []
    for number in range(count):
        nodes = [node for node in graph.nodes if stage_of[node.name] == number]
        nodes = sorted([*nodes, *needed[number].values()], key=lambda node: order[node.name])
        names = taken[number]
        stages.append(
            StageGraph(
                number,
                graph,
                tuple(nodes),
                tuple(name for name in graph.parameters if name in names),
                tuple(name for name in (*graph.buffers, *graph.constants) if name in names),
                tuple(name for name in graph.batch if name in names),
                tuple(name for name in names if name in stage_of),
                tuple(given[number]),
            )
        )
    return stages


def _check_written(graph: ModelGraph, stage_of: dict[str, int]) -> None:
    """Raises ModelCannotBeCut when a stage changes a value in place that an earlier one made and a later one reads."""
    order = {node.name: place for place, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        for maker in written_by(node):
            if stage_of.get(maker.name, stage_of[node.name]) == stage_of[node.name]:
                continue
            later = next((user for user in maker.users if order.get(user.name, -1) > order[node.name]), None)
            if later is not None:
                raise core.ModelCannotBeCut(
                    f"{node.target} at {source_of(node) or 'an unknown line'} changes a value in place that an earlier "
                    f"stage made and {later.target} at {source_of(later) or 'an unknown line'} uses once more; use "
                    "the operation that gives a new value (inplace=False), or cut elsewhere"
                )


def _free(graph: ModelGraph) -> set[str]:
    """Nodes that depend on numbers only, and draw none at random."""
    found: set[str] = set()
    for node in graph.nodes:
        target: Any = node.target
        drawn = isinstance(target, torch._ops.OpOverload) and (
            torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable
        )
        nested = isinstance(target, torch._ops.HigherOrderOperator)
        if not drawn and not nested and all(other.name in found for other in node.all_input_nodes):
            found.add(node.name)
    for node in graph.nodes:  # what is changed in place afterwards is no constant
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
            found.difference_update(other.name for other in node.all_input_nodes)
    return found
