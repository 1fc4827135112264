"""Programs: sharded dataflow graphs, and their lowering to one plan per host (paper 3, 4.2, 4.5). Pure values.

Building (see ``ProgramBuilder``)::

    mesh = Mesh((2,), ("x",))
    rows = ValueType("f32", (2,), Sharding.from_spec(mesh, ("x",)))
    double = Function("a", "s0", (rows,), (rows,), source="fig2.py:3", digest=digest_of(module))
    builder = ProgramBuilder("f", source="fig2.py:9")
    builder.slice("s0", mesh)
    v = builder.argument("f32", (2,), name="v")  # lies where, and as, its first user wants it
    (x,) = builder.compute(double, [v], source="fig2.py:10")
    program = builder.build([x])

Looking: ``print(program)``, ``parse(text)``, ``to_json`` / ``from_json``, ``to_svg(program)``, ``explain(program)``.

Lowering::

    placed = place(program, {"s0": [0, 1]}, hosts={0: 0, 1: 0})  # slice -> devices, device -> host
    lowered = lower(infer_transfers(placed))
    functions = [session.register(module_of(p.function), devices=p.devices) for p in lowered.functions]
    session.register_program(lowered.name, lowered.plans, lowered.inputs, lowered.outputs, functions=functions,
                             source=lowered.source)

and then ``run_program(program, arguments, donated=lowered.donated)``. ``lowered_for`` does the three passes at once.
``lowered.inputs[i]`` says where argument i must lie: the slice's devices, position by position;
``program.arguments[i].outputs[0].type`` how.

A ``Function``'s ``donated`` inputs are those that its module names as buffer donors; which of them a call really gives
up, lowering decides.

A program with host calls (irregular nodes) is cut with ``split`` into regular segments between them; ``segments`` cuts
one node by one, for sequential dispatch.
"""

from __future__ import annotations

from ptpathways.ir._build import Handle, ProgramBuilder
from ptpathways.ir._estimate import Estimate, FunctionCost, LiveValue, estimate, shard_bytes
from ptpathways.ir._explain import explain
from ptpathways.ir._json import from_json, to_json
from ptpathways.ir._lowered_for import lowered_for
from ptpathways.ir._parse import parse
from ptpathways.ir._plan import (
    CopyDict,
    ExecuteDict,
    FreeDict,
    Lowered,
    PieceDict,
    PlacedFunction,
    PlanDict,
    PortDict,
    ReceiveDict,
    SendDict,
    SlotDict,
    StepDict,
    lowered_text,
    plan_text,
)
from ptpathways.ir._program import Kind, Node, Program, Value, topological
from ptpathways.ir._segments import Segment, segments, split
from ptpathways.ir._svg import to_svg
from ptpathways.ir._text import to_text
from ptpathways.ir._types import DTYPES, Function, Slice, ValueType, digest_of
from ptpathways.ir._verify import verify
from ptpathways.ir.passes import infer_transfers, lower, place

__all__ = [
    "DTYPES",
    "CopyDict",
    "Estimate",
    "ExecuteDict",
    "FreeDict",
    "Function",
    "FunctionCost",
    "Handle",
    "Kind",
    "LiveValue",
    "Lowered",
    "Node",
    "PieceDict",
    "PlacedFunction",
    "PlanDict",
    "PortDict",
    "Program",
    "ProgramBuilder",
    "ReceiveDict",
    "Segment",
    "SendDict",
    "Slice",
    "SlotDict",
    "StepDict",
    "Value",
    "ValueType",
    "digest_of",
    "estimate",
    "explain",
    "from_json",
    "infer_transfers",
    "lower",
    "lowered_for",
    "lowered_text",
    "parse",
    "place",
    "plan_text",
    "segments",
    "shard_bytes",
    "split",
    "to_json",
    "to_svg",
    "to_text",
    "topological",
    "verify",
]
