"""How the microbatches' losses become the batch's, and whether that is the loss of the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree

from ptpathways import core, frontend
from ptpathways.pipelines._flat import Mode, in_mode
from ptpathways.pipelines._model import ModelGraph, source_of
from ptpathways.pipelines._stages import run_node

REDUCTIONS = ("mean", "sum", "weighted")
_ELEMENTS_MAX = 1 << 24
"""Of a model's output, for the loss to be tried out on the CPU."""
_TOLERANCE = 2e-3
"""Relative, between two ways to compute a loss; of types with fewer digits than that, some units of the last."""
_IGNORING = {"aten::cross_entropy_loss": 4, "aten::nll_loss_nd": 4, "aten::nll_loss": 4, "aten::nll_loss2d": 4}
"""Losses that leave out targets, and where they say which; the weights of classes and the reduction come before."""
_MEAN = 1

Loss = Callable[..., Any]


def check_reduction(reduction: str) -> None:
    """Raises PipelineError if there is no such reduction."""
    if reduction not in REDUCTIONS:
        raise core.PipelineError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}")


def try_out(
    loss: Loss, output: Any, targets: Any, samples: int, microbatches: int, reduction: str, mode: Mode | None = None
) -> bool:
    """Computes a loss on the CPU, of the whole batch and of the microbatches, of random outputs and the real targets.

    Args:
        output: what the model returns for one microbatch; of its tensors shape and type count.
        targets: the batch's last entry, whole.
        samples: in a microbatch.
        mode: the autocast in which it runs.

    Raises:
        PipelineError: it is a sum over samples though ``reduction`` is not, or the other way round.

    Warns with PipelineWarning where neither holds; gives whether it did.
    """
    leaves, structure = _pytree.tree_flatten(output)
    wanted, form = _pytree.tree_flatten(targets)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if any(isinstance(leaf, frontend.Future) or _elsewhere(leaf) for leaf in wanted):
        return False  # values that are not here
    if sum(leaf.numel() for leaf in tensors) * microbatches > _ELEMENTS_MAX:
        return False
    generator = torch.Generator().manual_seed(0)
    whole = [_random(leaf, samples, microbatches, generator) for leaf in leaves]

    def part(values: Sequence[Any], number: int) -> list[Any]:
        many = samples * microbatches
        return [
            value[number * samples : (number + 1) * samples]
            if isinstance(value, Tensor) and value.dim() and value.shape[0] == many
            else value
            for value in values
        ]

    def compute(values: Sequence[Any], own: Sequence[Any]) -> tuple[float, float]:
        made = loss(_pytree.tree_unflatten(list(values), structure), _pytree.tree_unflatten(list(own), form))
        return (float(made[0]), float(made[1])) if reduction == "weighted" else (float(made), 1.0)

    try:
        with torch.no_grad(), in_mode(mode), torch.random.fork_rng(devices=[]):
            total, weight = compute(whole, wanted)
            parts = [compute(part(whole, number), part(wanted, number)) for number in range(microbatches)]
    except Exception:  # of values that it does not expect; the graph says what is wrong with it, if anything
        return False
    kinds = [leaf.dtype for leaf in (*tensors, *wanted) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    tolerance = max([_TOLERANCE, *(4 * torch.finfo(kind).eps for kind in kinds)])
    value = total / weight if weight else float("nan")
    if value != value:
        return False
    added, weights = sum(one for one, _ in parts), sum(one for _, one in parts)
    found = {"sum": added, "mean": added / microbatches, "weighted": added / weights if weights else 0.0}
    if _close(found[reduction], value, tolerance):
        return False
    other = next((name for name in ("sum", "mean") if _close(found[name], value, tolerance)), "")
    if other and reduction != "weighted":
        raise core.PipelineError(
            f"reduction={reduction!r}, but the loss is the {other} over the samples: of a whole batch it is the "
            f"{other} of its microbatches' losses; pass reduction={other!r}, or another loss"
        )
    frontend.warn(
        f"the loss of a whole batch is not the {reduction} of its microbatches' losses (with random outputs of the "
        f"model {value:.4g} and {found[reduction]:.4g}), and so are gradients not those of eager PyTorch. {_WAY}",
        core.PipelineWarning,
    )
    return True


_WAY = (
    "If it is a mean over what counts (ignore_index, class weights), pass reduction='weighted' and a loss that returns "
    "(sum, weight), such as (F.cross_entropy(out, y, reduction='sum'), (y != -100).sum()); a loss that compares the "
    "samples of a batch with each other sees only those of a microbatch"
)


class Ignoring:
    """Watches whether the losses of a graph leave out unequal numbers of targets in the microbatches."""

    def __init__(self, graph: ModelGraph, microbatches: int, reduction: str, *, tried: bool) -> None:
        """``tried``: ``try_out`` has seen the loss, so class weights were noticed."""
        self._graph = graph
        self._microbatches = microbatches
        self._losses: list[tuple[fx.Node, fx.Node, list[fx.Node], int]] = []
        self.warned = False
        if reduction != "mean" or microbatches == 1:
            return
        for node in graph.nodes:
            place = _IGNORING.get(getattr(getattr(node.target, "_schema", None), "name", ""))
            if place is None or (len(node.args) > 3 and node.args[3] != _MEAN):
                continue
            if len(node.args) > 2 and node.args[2] is not None and not tried:
                self._warn(f"the loss at {source_of(node)} has weights of classes")
            targets, ignored = node.args[1], node.args[place] if len(node.args) > place else -100
            labels = _made_of_batch(graph, targets)
            if labels is not None and isinstance(targets, fx.Node) and isinstance(ignored, int):
                self._losses.append((node, targets, labels, ignored))

    def look(self, pieces: Sequence[Any]) -> None:
        """At a batch's leaves as (microbatches, samples, ...). Warns, once."""
        for node, targets, nodes, ignored in self._losses:
            if self.warned:
                return
            given = {name: pieces[place] for name, place in self._graph.batch.items()}
            sources = {one.name for each in nodes for one in each.all_input_nodes if one.name in given}
            sources |= {targets.name} & set(given)
            if any(not isinstance(given[name], Tensor) or _elsewhere(given[name]) for name in sources):
                continue
            if not any(bool((given[name] == ignored).any()) for name in sources):
                continue
            counts = [
                int((self._targets(targets, nodes, given, number) != ignored).sum())
                for number in range(self._microbatches)
            ]
            if len(set(counts)) > 1:
                self._warn(
                    f"the loss at {source_of(node) or 'an unknown line'} leaves out targets (ignore_index={ignored}), "
                    f"and the microbatches have {min(counts)} to {max(counts)} others"
                    + (": the mean of none is NaN" if not min(counts) else "")
                )

    def _targets(self, targets: fx.Node, nodes: Sequence[fx.Node], given: dict[str, Any], number: int) -> Tensor:
        known = {
            name: value[number] if isinstance(value, Tensor) and value.dim() else value for name, value in given.items()
        }
        for node in nodes:
            known[node.name] = run_node(node, self._graph.module, lambda one: known[one.name], torch.device("cpu"))
        found: Tensor = known[targets.name]
        return found

    def _warn(self, what: str) -> None:
        self.warned = True
        frontend.warn(
            f"{what}: the mean of the microbatches' losses is not the loss of the whole batch. {_WAY}",
            core.PipelineWarning,
        )


def _made_of_batch(graph: ModelGraph, target: Any) -> list[fx.Node] | None:
    """The operations that make a loss's targets, if they are made of the batch alone."""
    if not isinstance(target, fx.Node):
        return None
    needed: set[fx.Node] = set()
    waiting = [target]
    while waiting:
        node = waiting.pop()
        if node.op == "call_function" and node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
        elif node.op != "call_function" and node.name not in graph.batch:
            return None
    return [node for node in graph.nodes if node in needed]


def _elsewhere(leaf: Any) -> bool:
    return isinstance(leaf, frontend.Future) or (isinstance(leaf, Tensor) and leaf.device.type != "cpu")


def _random(leaf: Any, samples: int, microbatches: int, generator: torch.Generator) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    shape = list(leaf.shape)
    if shape and shape[0] == samples:
        shape[0] *= microbatches
    if not leaf.is_floating_point():
        return torch.zeros(shape, dtype=leaf.dtype)
    return (torch.rand(shape, generator=generator) * 0.9 + 0.05).to(leaf.dtype)


def _close(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * abs(other) + 1e-6
