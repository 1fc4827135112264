"""A user's module as a graph of operations, by ``torch.export``: what a stage of a pipeline is a part of."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind
from torch.utils import _pytree

from ptpathways import core, frontend
from ptpathways.pipelines._aliases import Aliases, written_by
from ptpathways.pipelines._flat import Mode, autocasts, flatten, in_mode
from ptpathways.pipelines._observed import Attributes, observed

_PYTHON = sysconfig.get_path("stdlib")


class _Whole(nn.Module):
    """The model with its loss: a batch goes in, a scalar comes out, or a pair of them with a weight."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Any] | None,
        begin: Callable[[nn.Module], Attributes],
        seen: Callable[[Any], None],
        weighted: bool,
        mode: Mode | None,
    ) -> None:
        """
        Args:
            mode: of the model and its loss.
            begin: gives the model's attributes before a run.
            seen: is told what the model returns.
        """
        super().__init__()
        self.model = model
        self.loss = loss
        self.begin = begin
        self.seen = seen
        self.weighted = weighted
        self.mode = mode

    def forward(self, *batch: Any) -> Any:
        attributes = self.begin(self.model)
        try:
            with in_mode(self.mode):
                if self.loss is None:
                    found = self.model(*batch)
                else:
                    made = self.model(*batch[:-1])
                    self.seen(made)
                    found = self.loss(made, batch[-1])
        finally:
            attributes.restore()
        if not self.weighted:
            if any(isinstance(leaf, int | float) for leaf in _pytree.tree_leaves(found)):
                raise core.ModelCannotBeCut(
                    f"model {type(self.model).__name__} and its loss must give one scalar, and give a number of Python "
                    "beside it, which would be left out; reduction='weighted' is for a pair of a sum and its weight"
                )
            return found
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise core.ModelCannotBeCut(
                f"with reduction='weighted' a loss gives a pair (sum, weight), got {type(found).__name__}"
            )
        total, weight = found
        if not isinstance(weight, Tensor):
            weight = torch.full((), float(weight), dtype=total.dtype)
        return total.reshape(()), weight.detach().to(total.dtype).reshape(())


@dataclass(frozen=True, slots=True)
class ModelGraph:
    """The operations of a model and its loss for one microbatch."""

    module: fx.GraphModule
    nodes: tuple[fx.Node, ...]
    """Operations, in the order in which the model runs them."""
    parameters: dict[str, str]
    """The model's name of the parameter by the name of its placeholder; tied ones have one name."""
    buffers: dict[str, str]
    constants: dict[str, Tensor]
    """Tensors that the model's code made when it was exported, by placeholder."""
    batch: dict[str, int]
    """Which tensor of the batch, by placeholder."""
    loss: str
    """The node whose value is the loss."""
    weight: str | None
    """The node whose value is the loss's weight, if it has one."""
    output: Any
    """What the model returns to the loss, with tensors that have shape and type; None without a loss."""
    reads: tuple[tuple[nn.Module, str], ...]
    """Modules and names of their attributes that the forward pass has read."""


def export(
    model: nn.Module,
    loss: Callable[..., Any] | None,
    batch: Sequence[Any],
    names: dict[int, str],
    *,
    weighted: bool = False,
    mode: Mode | None = None,
    shapes: tuple[str, str] = ("", ""),
) -> ModelGraph:
    """The model's graph for one microbatch. Runs the model's Python once, on tensors without values.

    Args:
        names: the name of each parameter and buffer of ``model``, by the tensor's id.
        weighted: the loss gives a sum and its weight.
        mode: the autocast in which both run.
        shapes: of the batch, and of one that the model took before, for errors.

    Raises:
        PipelineError: the batch does not fit the model.
        ModelCannotBeCut: its Python depends on values, it changes buffers, or it does not give one scalar.
    """
    name = type(model).__name__
    runs: list[Attributes] = []

    def begin(model: nn.Module) -> Attributes:
        runs.append(Attributes(model, runs[0].changed if runs else ()))
        return runs[-1]

    outputs: list[Any] = []

    def seen(output: Any) -> None:
        outputs.append(_pytree.tree_map(_shape_of, output))

    whole = _Whole(model, loss, begin, seen, weighted, mode)
    tensors = tuple(item.detach().clone() if isinstance(item, Tensor) else item for item in batch)
    with observed(name) as reads:
        program = _program(whole, tensors, name, shapes)
        first = runs[0]
        first.check_read([one for one in program.constants.values() if isinstance(one, Tensor)])
        if first.changed:
            with first.as_changed():
                _check_again(program, _program(whole, tensors, name, shapes), first, name)
    return _graph(
        program,
        model,
        names,
        outputs[0] if outputs else None,
        tuple((module, attribute) for (_, attribute), module in reads.items()),
        weighted,
    )


def _shape_of(leaf: Any) -> Any:
    """A tensor without elements for one that is exported."""
    return torch.empty(tuple(leaf.shape), dtype=leaf.dtype, device="meta") if isinstance(leaf, Tensor) else leaf


def _program(whole: _Whole, batch: tuple[Any, ...], name: str, shapes: tuple[str, str]) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(whole, batch, strict=False)
    except core.PathwaysError:
        raise
    except Exception as error:  # export raises whatever the model's code met
        if type(error) in (RuntimeError, IndexError) or (type(error) is TypeError and "forward()" in str(error)):
            got, before = shapes
            raise core.PipelineError(
                f"model {name} and its loss cannot run on microbatches of {got}{_failing(error, whole.model)}"
                f"{_where(error)}: {type(error).__name__}: {_first_lines(error)}; "
                + (f"the step before had {before}" if before else "pass batches that eager PyTorch takes")
            ) from error
        raise core.ModelCannotBeCut(
            f"model {name} cannot be cut into stages, because exporting its forward pass and its loss as a fixed "
            f"sequence of operations failed{_where(error)}: {type(error).__name__}: {_first_lines(error)}"
        ) from error


def _check_again(
    first: torch.export.ExportedProgram, second: torch.export.ExportedProgram, attributes: Attributes, name: str
) -> None:
    """Raises ModelCannotBeCut, or warns, if what the forward pass leaves in attributes makes its next run another."""
    if str(first.graph) == str(second.graph):
        return
    changed = ", ".join(sorted(attributes.changed))
    if any(not isinstance(value, Tensor) for value in attributes.changed.values()):
        raise core.ModelCannotBeCut(
            f"model {name} changes its attributes ({changed}) in its forward pass and computes something else with "
            "them the next time; a step runs no Python of the model: pass them with the batch, or change them between "
            "the steps"
        )
    frontend.warn(
        f"model {name} keeps tensors in attributes ({changed}) in its forward pass and uses them the next time; in a "
        "pipeline every microbatch does what the first one does, without them",
        core.PipelineWarning,
    )


def _graph(
    program: torch.export.ExportedProgram,
    model: nn.Module,
    names: dict[int, str],
    returned: Any,
    reads: tuple[tuple[nn.Module, str], ...],
    weighted: bool,
) -> ModelGraph:
    signature = program.graph_signature
    held: dict[str, Any] = {
        **dict(program.named_parameters()),
        **dict(program.named_buffers()),
        **program.state_dict,
        **program.constants,
    }
    parameters: dict[str, str] = {}
    buffers: dict[str, str] = {}
    constants: dict[str, Tensor] = {}
    batch: dict[str, int] = {}
    users = 0
    for spec in signature.input_specs:
        name = spec.arg.name
        if spec.kind is InputKind.USER_INPUT:
            batch[name] = users
            users += 1
            continue
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            raise core.ModelCannotBeCut(f"model {type(model).__name__} uses {name!r}, which is no tensor: {spec.kind}")
        assert spec.target is not None
        tensor = held[spec.target]
        own = names.get(id(tensor))
        if spec.kind is InputKind.PARAMETER and own is not None:
            parameters[name] = own
        elif spec.kind is InputKind.BUFFER and own is not None:
            buffers[name] = own
        else:
            constants[name] = tensor.detach()
    flatten(program.graph_module)
    nodes = tuple(node for node in program.graph.nodes if node.op == "call_function")
    _check_sizes(nodes, type(model).__name__)
    _check_types(nodes)
    _check_changes(program.graph, nodes, {**parameters, **buffers}, {*constants, *batch}, type(model).__name__)
    (output,) = program.graph.output_node().args
    leaves = [leaf for leaf in output if isinstance(leaf, fx.Node)] if isinstance(output, tuple) else []
    count = 2 if weighted else 1
    if len(leaves) != count or any(tuple(leaf.meta["val"].shape) not in ((), (1,)) for leaf in leaves):
        shapes = [tuple(leaf.meta["val"].shape) for leaf in leaves]
        raise core.ModelCannotBeCut(
            f"model {type(model).__name__} and its loss must give one scalar, and give "
            f"{f'tensors of shapes {shapes}' if leaves else type(output).__name__}; pass loss=, a function of what the "
            "model returns and the batch's last tensor, or return the loss itself; reduction='weighted' is for a pair "
            "of a sum and its weight"
        )
    return ModelGraph(
        program.graph_module,
        nodes,
        parameters,
        buffers,
        constants,
        batch,
        leaves[0].name,
        leaves[1].name if weighted else None,
        returned,
        reads,
    )


_OF_ONE_TYPE = frozenset(
    f"aten::{name}"
    for name in ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d", "bilinear")
)
"""Operations that eager PyTorch refuses for tensors of different types; exporting and PyTorch/XLA do not."""


def _check_sizes(nodes: Sequence[fx.Node], model: str) -> None:
    """Raises ModelCannotBeCut where a number, or the size of a tensor, is known only with values."""
    for node in nodes:
        for leaf in _pytree.tree_leaves(node.meta.get("val")):
            sizes = leaf.shape if isinstance(leaf, Tensor) else [leaf]
            if any(isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) for size in sizes):
                source, path = source_of(node), module_path(node)
                what, instead = (
                    ("tensor whose size", "operations of known size, such as torch.where instead of x[mask]")
                    if isinstance(leaf, Tensor)
                    else ("number that", "a tensor instead")
                )
                raise core.ModelCannotBeCut(
                    f"model {model} computes with a {what} depends on values ({node.target}"
                    f"{f' in module {path!r}' if path else ''}{f' at {source}' if source else ''}), which a compiled "
                    f"stage cannot; use {instead}"
                )


def _check_types(nodes: Sequence[fx.Node]) -> None:
    """Raises PipelineError where tensors of different types meet that must not."""
    for node in nodes:
        if getattr(getattr(node.target, "_schema", None), "name", "") not in _OF_ONE_TYPE or autocasts(node):
            continue
        types = {str(value_of(one).dtype).removeprefix("torch."): None for one in node.all_input_nodes}
        if len(types) > 1:
            source = source_of(node)
            raise core.PipelineError(
                f"{node.target} in module {module_path(node)!r}{f' at {source}' if source else ''} gets tensors of "
                f"types {' and '.join(types)}, which eager PyTorch refuses; convert the batch or the model"
            )


def _check_changes(
    graph: fx.Graph, nodes: Sequence[fx.Node], named: dict[str, str], others: set[str], model: str
) -> None:
    """Raises ModelCannotBeCut if an operation changes what comes in: parameters, buffers, constants, the batch."""
    aliases = Aliases(graph.nodes)
    for node in nodes:
        for written in written_by(node):
            changed = next((one.name for one in aliases.of(written) if one.name in named or one.name in others), None)
            if changed is not None:
                raise changes(model, named.get(changed, changed), module_path(node), source_of(node))
        if node.target is torch.ops.aten.batch_norm.default and node.args[5]:
            raise core.ModelCannotBeCut(
                f"model {model} takes the statistics of a batch in module {module_path(node)!r}, which are others in "
                "each microbatch; use LayerNorm or GroupNorm"
            )


def changes(model: str, changed: str, module: str, source: str) -> core.ModelCannotBeCut:
    """The error about a forward pass that changes what lives longer."""
    if changed.startswith("batch"):
        return core.ModelCannotBeCut(
            f"model {model} changes its input in place{f', in module {module!r}' if module else ''}"
            f"{f' at {source}' if source else ''}, which is your batch; use the operation that gives a new value"
        )
    return core.ModelCannotBeCut(
        f"model {model} changes {changed!r} in its forward pass{f', in module {module!r}' if module else ''}"
        f"{f' at {source}' if source else ''}, which every microbatch would do once more; use layers without running "
        "statistics, such as LayerNorm or GroupNorm, or change it between the steps"
    )


def value_of(node: fx.Node) -> Any:
    """The exported value: a tensor without elements, or a tuple of some."""
    return node.meta["val"]


def module_path(node: fx.Node) -> str:
    """The innermost module that runs a node, by its path in the user's model; empty for the model itself."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    path = re.sub(r"@\d+", "", path)  # a module's later calls
    return path.removeprefix("model").removeprefix(".") if path.startswith("model") else ""


def source_of(node: fx.Node) -> str:
    """The user's line of a node, ``file:line``; empty if it is not known."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [(file, line) for file, line in lines if "/torch/" not in file and "ptpathways/pipelines" not in file]
    return f"{own[-1][0]}:{own[-1][1]}" if own else ""


def spec_of(value: Any) -> frontend.TensorSpec:
    """Shape and type of an exported tensor."""
    return frontend.TensorSpec(tuple(value.shape), frontend.dtype_name(value.dtype))


def _failing(error: BaseException, model: nn.Module) -> str:
    """The innermost module in which an error was raised."""
    paths = {id(module): path for path, module in model.named_modules()}
    met = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    inside = [one for one in met if isinstance(one, nn.Module) and paths.get(id(one))]
    if not inside:
        return ""
    text = repr(inside[-1])
    return (
        f", in module {paths[id(inside[-1])]!r}{f', {text}' if len(text) < 200 and len(text.splitlines()) == 1 else ''}"
    )


def _where(error: BaseException) -> str:
    def own(file: str) -> bool:
        return file.startswith("/") and not any(
            one in file for one in ("site-packages", "ptpathways/pipelines", _PYTHON)
        )

    lines = [(file, line) for file, line in re.findall(r'File "([^"]+)", line (\d+)', str(error)) if own(file)]
    if not lines:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [(frame.filename, str(frame.lineno)) for frame in frames if own(frame.filename)]
    return f" (at {lines[-1][0]}:{lines[-1][1]})" if lines else ""


def _first_lines(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else "without a word")[:400].rstrip(".")
