"""PyTorch's side: the plugin's registration with PyTorch/XLA, slices as torch devices, cuts and transfers.

The only room that imports torch_xla. Importing it imports neither torch nor torch_xla: ``init`` must be able to come
first, because PyTorch/XLA takes its settings when it is loaded.
"""

from __future__ import annotations

from ptpathways.frontend._decorator import program
from ptpathways.frontend._device_parts import (
    DevicePart,
    generator_states,
    make_own,
    parts_of,
    session,
    set_generator_states,
    submit_pending,
)
from ptpathways.frontend._init import (
    Cluster,
    Host,
    cluster,
    device,
    devices,
    init,
    shutdown,
    trace,
)
from ptpathways.frontend.base._batch_tree import flatten_batch, is_host_tensor
from ptpathways.frontend.base._hooks import at_cuts, at_shutdown
from ptpathways.frontend.base._identity import swap
from ptpathways.frontend.base._locator import user_source_line, warn
from ptpathways.frontend.base._recorded import is_recording
from ptpathways.frontend.capture._captured_step import CapturedStep, CaptureWarning
from ptpathways.frontend.capture.recording._cpu_draws import loading
from ptpathways.frontend.dataflow._function import CompiledFunction, IrregularFunctionWarning, function
from ptpathways.frontend.dataflow._program import Program
from ptpathways.frontend.dataflow._times import timed_runs
from ptpathways.frontend.dataflow._upload import put
from ptpathways.frontend.diagnostics._busy import device_seconds
from ptpathways.frontend.diagnostics._compile_notice import in_notebook
from ptpathways.frontend.diagnostics._cpu_operands import explain
from ptpathways.frontend.diagnostics._recompiles import Recompile, RecompileWarning, recompiles
from ptpathways.frontend.diagnostics._recompiles import begin_anew as begin_warm_up
from ptpathways.frontend.diagnostics._recompiles import expected as expected_compiles
from ptpathways.frontend.diagnostics._wait_stats import WaitStats, wait_stats
from ptpathways.frontend.kernels.calls._fallback import ClientFallbackWarning, client_operations
from ptpathways.frontend.loops._optimizer_lists import take_lists
from ptpathways.frontend.loops._optimizer_options import choose_option
from ptpathways.frontend.loops._optimizer_state import before_step as optimizer_state_hook
from ptpathways.frontend.loops._pipeline import Part, Pipeline, Placement
from ptpathways.frontend.loops._read_warnings import WaitWarning
from ptpathways.frontend.loops._scalars import fetch_beside, settle, snapshot, submit_means
from ptpathways.frontend.loops._step import cut_count, step, wait
from ptpathways.frontend.slices._feeding import upload
from ptpathways.frontend.slices._future import Future, get
from ptpathways.frontend.slices._mesh import BatchLayout, batch_layout, copies, layout_of_tensor, size_of
from ptpathways.frontend.slices._rng import manual_seed, seed
from ptpathways.frontend.slices._shard import lay, said_of, shard, tiling_of
from ptpathways.frontend.slices._slice import VirtualSlice
from ptpathways.frontend.slices._transfer import transfer, value_of
from ptpathways.frontend.xla._dtypes import name_of as dtype_name
from ptpathways.frontend.xla._dtypes import torch_dtype
from ptpathways.frontend.xla._record import RecordedStep, Recording, Ref, play, record
from ptpathways.frontend.xla._trace import DataDependent, TensorSpec, exclusively
from ptpathways.sharding import Tiling

__all__ = [
    "BatchLayout",
    "CaptureWarning",
    "CapturedStep",
    "ClientFallbackWarning",
    "Cluster",
    "CompiledFunction",
    "DataDependent",
    "DevicePart",
    "Future",
    "Host",
    "IrregularFunctionWarning",
    "Part",
    "Pipeline",
    "Placement",
    "Program",
    "Recompile",
    "RecompileWarning",
    "RecordedStep",
    "Recording",
    "Ref",
    "TensorSpec",
    "Tiling",
    "VirtualSlice",
    "WaitStats",
    "WaitWarning",
    "at_cuts",
    "at_shutdown",
    "batch_layout",
    "begin_warm_up",
    "choose_option",
    "client_operations",
    "cluster",
    "copies",
    "cut_count",
    "device",
    "device_seconds",
    "devices",
    "dtype_name",
    "exclusively",
    "expected_compiles",
    "explain",
    "fetch_beside",
    "flatten_batch",
    "function",
    "generator_states",
    "get",
    "in_notebook",
    "init",
    "is_host_tensor",
    "is_recording",
    "lay",
    "layout_of_tensor",
    "loading",
    "make_own",
    "manual_seed",
    "optimizer_state_hook",
    "parts_of",
    "play",
    "program",
    "put",
    "recompiles",
    "record",
    "said_of",
    "seed",
    "session",
    "set_generator_states",
    "settle",
    "shard",
    "shutdown",
    "size_of",
    "snapshot",
    "step",
    "submit_means",
    "submit_pending",
    "swap",
    "take_lists",
    "tiling_of",
    "timed_runs",
    "torch_dtype",
    "trace",
    "transfer",
    "upload",
    "user_source_line",
    "value_of",
    "wait",
    "wait_stats",
    "warn",
]
