"""A model's graph divided into stages: what each runs, takes from earlier ones, and gives to later ones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ptpathways import core
from ptpathways.pipelines._aliases import Aliases, written_by
from ptpathways.pipelines._flat import modes_of
from ptpathways.pipelines._model import ModelGraph, source_of, value_of
from ptpathways.pipelines._operations import INSTEAD


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
    """What later stages take; of the last stage: the loss, and its weight if it has one."""

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
    with modes_of(node, device):
        target: Any = INSTEAD.get(node.target, node.target)
        return target(*args, **kwargs)


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
    aliases = Aliases(graph.module.graph.nodes)
    _check_written(graph, stage_of, aliases)
    everywhere = _free(graph, aliases)
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
    ends = [graph.loss] if graph.weight is None else [graph.loss, graph.weight]
    for end in ends:
        given[stage_of[end]][end] = None
    if any(stage_of[end] != count - 1 for end in ends):
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


def _check_written(graph: ModelGraph, stage_of: dict[str, int], aliases: Aliases) -> None:
    """Raises ModelCannotBeCut when a stage changes in place what another one reads afterwards in memory of its own.

    A stage takes copies of what earlier ones made. So a change is seen only through the value that it was taken as.
    """
    order = {node.name: place for place, node in enumerate(graph.nodes)}

    def taken_as(node: fx.Node, stage: int) -> fx.Node:
        """What a value looks at, as far as a stage knows: something that the stage took or made."""
        while stage_of.get(node.name) == stage:
            whole = node.all_input_nodes[0] if node.target is operator.getitem else node  # a tuple has no memory
            inner = next((one for one in whole.all_input_nodes if aliases.same(one, node)), None)
            if inner is None:
                break
            node = inner
        return node

    for node in graph.nodes:
        stage = stage_of[node.name]
        for written in written_by(node):
            memory = taken_as(written, stage)
            for value in aliases.of(written):
                for user in value.users:
                    if order.get(user.name, -1) <= order[node.name]:
                        continue
                    its, made = stage_of[user.name], stage_of.get(value.name)
                    if its == made != stage:
                        continue  # what that stage made it of is another user
                    if stage in (its, made) and taken_as(value, stage) is memory:
                        continue
                    raise core.ModelCannotBeCut(
                        f"{node.target} at {source_of(node) or 'an unknown line'} changes a value in place that an "
                        f"earlier stage made and {user.target} at {source_of(user) or 'an unknown line'} uses once "
                        "more; use the operation that gives a new value (inplace=False), or cut elsewhere"
                    )


def _free(graph: ModelGraph, aliases: Aliases) -> set[str]:
    """Nodes that depend on numbers only, draw none at random, and are not changed afterwards."""
    changed = {value.name for node in graph.nodes for one in written_by(node) for value in aliases.of(one)}
    found: set[str] = set()
    for node in graph.nodes:
        target: Any = node.target
        drawn = isinstance(target, torch._ops.OpOverload) and (
            torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable
        )
        if not drawn and node.name not in changed and all(other.name in found for other in node.all_input_nodes):
            found.add(node.name)
    return found
