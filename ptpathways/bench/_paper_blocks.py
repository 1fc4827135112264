"""The layers of the paper's models, compiled for the paper's TPUs: how long each takes, without such a TPU.

A layer's backward pass makes its forward pass again (rematerialisation). Weights are float32, products bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import ptpathways as pw
from ptpathways import core
from ptpathways.bench._paper_models import Layout, Model

Layer = Callable[..., Tensor]
_ACTIVATION = ("data", None, None)


@dataclass(frozen=True, slots=True)
class Time:
    """Of one call, in seconds, as XLA's cost analysis and the links' stated rate have it."""

    compute: float
    model: float
    """Collectives along the model axis."""
    data: float
    """Collectives along the data axis: a gradient's sum, and the collecting of weights."""


def times(model: Model, layout: Layout, batch: int) -> dict[str, Any]:
    """Of each function of ``model`` over ``layout`` for ``batch`` sequences, by name: fields of ``Time``.

    A cluster of as many devices must be there.

    Raises:
        PluginNotFound: libtpu is not installed.
        CompileFailed: it does not compile; the message says what and why.
    """
    slice_ = pw.cluster().slice(shape=(layout.data, layout.model), axis_names=("data", "model"))
    program, arguments = _program(model, slice_, batch, layout.fully_sharded)
    compiled = program.compile_for(layout.target, *arguments)
    found = {}
    for function in compiled.functions:
        if function.error:
            raise core.CompileFailed(
                f"{function.name} of {model.name} must compile for {layout.target}: {function.error}"
            )
        moved = {"data": 0.0, "model": 0.0}
        for use in function.collectives or ():
            moved["data" if use.axes == "data" else "model"] += use.seconds
        found[function.name] = asdict(Time(function.seconds, **moved))
    slice_.release()
    return found


def _attend(x: Tensor, source: Tensor, heads: int, weights: Sequence[Tensor], causal: bool) -> Tensor:
    q, k, v = (
        (value @ weight.bfloat16()).unflatten(-1, (heads, -1)).transpose(1, 2)
        for value, weight in zip((x, source, source), weights[:3], strict=True)
    )
    scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    if causal:
        scores = scores + torch.full((q.shape[2], k.shape[2]), -1e9, device=x.device).triu(1)
    mixed: Tensor = scores.softmax(-1).bfloat16() @ v
    return mixed.transpose(1, 2).flatten(2) @ weights[3].bfloat16()


def _normal(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).bfloat16()


def _layer(heads: int, causal: bool, x: Tensor, *weights: Tensor) -> Tensor:
    x = x + _attend(_normal(x), _normal(x), heads, weights[:4], causal)
    return x + F.gelu(_normal(x) @ weights[4].bfloat16()) @ weights[5].bfloat16()


def _crossed(heads: int, x: Tensor, encoded: Tensor, *weights: Tensor) -> Tensor:
    x = x + _attend(_normal(x), encoded, heads, weights[6:], causal=False)
    return _layer(heads, True, x, *weights[:6])


def _program(model: Model, slice_: Any, batch: int, fully_sharded: bool) -> tuple[Any, list[Tensor]]:
    """A program that calls each function once, and arguments for it, of which only the types matter."""
    inner = model.heads * model.head_size
    attention = [(model.width, inner)] * 3 + [(inner, model.width)]
    other = "data" if fully_sharded else None
    columns, rows = (other, "model"), ("model", other)
    attention_placed = [columns] * 3 + [rows]
    shapes = [*attention, (model.width, model.hidden), (model.hidden, model.width)]
    placed = [*attention_placed, columns, rows]

    def x(length: int) -> Tensor:
        return torch.empty(batch, length, model.width, dtype=torch.bfloat16)

    functions: list[tuple[Any, int]] = []
    arguments: list[Tensor] = []

    def add(name: str, function: Callable[..., Any], inputs: list[tuple[Tensor, Any]], outputs: list[Any]) -> None:
        function.__name__ = function.__qualname__ = name
        made = pw.function(function, slice=slice_, in_placements=[place for _, place in inputs], out_placements=outputs)
        functions.append((made, len(inputs)))
        arguments.extend(value for value, _ in inputs)

    def layer(
        suffix: str, function: Layer, states: list[Tensor], weights: list[tuple[int, int]], places: list[Any]
    ) -> None:
        def forward(*inputs: Tensor) -> tuple[Tensor, ...]:
            return (function(*inputs),)

        def backward(gradient: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
            found: tuple[Tensor, ...] = torch.func.vjp(function, *inputs)[1](gradient)
            return found

        given = [(state, _ACTIVATION) for state in states]
        given += [(torch.empty(shape), place) for shape, place in zip(weights, places, strict=True)]
        add(f"forward{suffix}", forward, given, [_ACTIVATION])
        add(f"backward{suffix}", backward, [given[0], *given], [place for _, place in given])

    def decoder(*inputs: Tensor) -> Tensor:
        return _layer(model.heads, True, *inputs)

    def encoder(*inputs: Tensor) -> Tensor:
        return _layer(model.heads, False, *inputs)

    def crossed(*inputs: Tensor) -> Tensor:
        return _crossed(model.heads, *inputs)

    if model.encoder_layers:
        layer("_encoder", encoder, [x(model.encoder_length)], shapes, placed)
        states = [x(model.length), x(model.encoder_length)]
        layer("", crossed, states, [*shapes, *attention], [*placed, *attention_placed])
    else:
        layer("", decoder, [x(model.length)], shapes, placed)

    def head(x: Tensor, targets: Tensor, table: Tensor) -> tuple[Tensor, ...]:
        def loss_of(x: Tensor, table: Tensor) -> Tensor:
            logits = (x @ table.bfloat16()).float()
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

        found: tuple[Tensor, ...] = torch.func.grad(loss_of, argnums=(0, 1))(x, table)
        return found

    def update(weight: Tensor, gradient: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        average = 0.9 * average + gradient
        return weight - 0.01 * average, average

    targets = torch.empty(batch, model.length, dtype=torch.int64)
    table = torch.empty(model.width, model.vocabulary)
    add(
        "head",
        head,
        [(x(model.length), _ACTIVATION), (targets, ("data", None)), (table, columns)],
        [_ACTIVATION, columns],
    )
    weights = torch.empty(model.block_parameters // model.width, model.width)
    add("update", update, [(weights, rows)] * 3, [rows, rows])

    def calls(*values: Any) -> list[Any]:
        results: list[Any] = []
        start = 0
        for function, count in functions:
            made = function(*values[start : start + count])
            results += made if isinstance(made, list | tuple) else [made]
            start += count
        return results

    return pw.program(calls), arguments
