"""``torch.compile`` of what computes on slices.

Its default, inductor, has no code for XLA devices and fails (``KeyError: 'xla'``). XLA compiles what is traced anyway,
so the graph that dynamo found runs as it was written, and becomes part of the loop's trace.

With ``backend="openxla"`` on slices of several devices PyTorch/XLA's bridge runs what it compiled with values of an
earlier step: from the third step on the losses of a trained model are wrong, without an error (seen with 2.9, also on
its own CPU client). There the graph is traced, too, which gives the right numbers and one computation per step.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.base import _state
from ptpathways.frontend.xla import _private
from ptpathways.frontend.xla._late import when_executed
from ptpathways.frontend.xla._when_imported import when_imported

if TYPE_CHECKING:
    import types

    import torch


def register() -> None:
    """Puts itself before inductor and before PyTorch/XLA's bridge. Idempotent."""
    import torch

    when_imported("torch_xla.core.dynamo_bridge", _trace_divided)  # which torch asks for
    when_executed("torch_xla._dynamo.dynamo_bridge", _trace_divided)
    inductor: Any = torch._TorchCompileInductorWrapper
    compile_by_inductor = inductor.__call__
    if hasattr(compile_by_inductor, "__wrapped__"):
        return

    # Of this package's hook for all forward passes, which may run twice.
    warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")

    @functools.wraps(compile_by_inductor)
    def compile_or_trace(self: Any, model: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        given = [*inputs, *model.parameters(), *model.buffers()]
        if any(isinstance(one, torch.Tensor) and one.device.type == "xla" for one in given):
            return model
        return compile_by_inductor(self, model, inputs)

    inductor.__call__ = compile_or_trace


@contextmanager
def as_written() -> Iterator[None]:
    """Inside, functions from ``torch.compile`` run as they were written. Dynamo's code for them has the same
    operations, but it is other code, and modes of torch functions would be traced into it."""
    if "torch._dynamo" not in sys.modules:  # nothing has been compiled
        yield
        return
    import torch

    with torch.compiler.set_stance("force_eager"):
        yield


def _trace_divided(bridge: types.ModuleType) -> None:
    """Lets the bridge trace graphs on slices of several devices. Idempotent."""
    _private.check_late(bridge)
    compile_alone = vars(bridge)["extract_compiled_graph"]
    if hasattr(compile_alone, "__wrapped__"):
        return

    @functools.wraps(compile_alone)
    def compile_graph(model: torch.fx.GraphModule, args: Any) -> Any:
        if _state.is_running() and _state.runtime().connection is not None:
            table = _state.runtime().slices
            if any(len(table.devices_of(index)) > 1 for index in table.bound()):
                return model
        return compile_alone(model, args)

    vars(bridge)["extract_compiled_graph"] = compile_graph
