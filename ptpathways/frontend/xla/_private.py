"""The names of torch and torch_xla that are not public, or that ``init`` replaces: all are looked for first.

``docs/design/patches.md`` says what each is for. A release that lacks one is refused by name, and not met in the middle
of a loop.
"""

from __future__ import annotations

import importlib
import importlib.util
import types
import weakref
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ptpathways import core, native
from ptpathways.frontend.xla import _xla

TORCH = "2.9.0"
TORCH_XLA = "2.9.0"

BINDING = (
    "_check_tensor_need_materialization",
    "_get_executed_fallback_ops",
    "_get_tensors_handle",
    "_prepare_to_exit",
    "_unsafe_buffer_pointer",
    "_xla_counter_value",
    "_xla_custom_call",
    "_xla_get_all_device_attributes",
    "_xla_get_cpu_tensors",
    "_xla_get_default_device",
    "_xla_get_default_device_ordinal",
    "_xla_get_rng_seed",
    "_xla_get_tensor_id",
    "_xla_metric_data",
    "_xla_num_runtime_devices",
    "_xla_runtime_is_initialized",
    "_xla_set_default_device",
    "_xla_set_rng_seed",
    "_xla_step_marker",
    "_xla_sync_live_tensors",
    "_xla_sync_multi",
    "_xla_tensors_from_aten",
    "_xla_user_computation",
    "_xla_wait_device_ops",
)
"""Of ``torch_xla._XLAC``."""

SPMD_BINDING = (
    "OpSharding",
    "XlaShardingSpec",
    "_get_local_shard_replica_and_indices",
    "_get_local_shards",
    "_get_xla_op_sharding",
    "_get_xla_sharding_spec",
    "_get_xla_sharding_specs",
    "_get_xla_sharding_type",
    "_global_tensor_from_cpu_shards",
    "_load_local_shards",
    "_mark_manual_sharding",
    "_spmd_full_to_shard_shape",
    "_spmd_shard_to_full_shape",
    "_xla_annotate_custom_sharding",
    "_xla_set_replication_devices",
    "_xla_clear_sharding",
    "_xla_mark_sharding",
    "_xla_tensors_from_aten",
)
"""What torch_xla's SPMD functions look up in the binding, which ``loops._spmd`` replaces."""

OTHERS: Mapping[str, tuple[str, ...]] = {
    "torch": (
        "Tensor._use_count",
        "Tensor.to",
        "Tensor.contiguous",
        "Tensor.copy_",
        "Tensor.reshape",
        "Tensor.cpu",
        "Tensor.tolist",
        "inference_mode",
        "manual_seed",
        "nn.Module._apply",
        "nn.Module.load_state_dict",
        "_C.DispatchKeySet",
        "_C.TensorBase",
        "_C._dispatch_keys",
        "_C._dispatch_get_registrations_for_dispatch_key",
        "_C._autograd.CreationMeta",
        "_C._autograd._get_creation_meta",
        "_C._autograd._set_creation_meta",
        "_C._autograd._top_saved_tensors_default_hooks",
        "_C._current_autograd_node",
        "_C._functionalization.apply_view_meta_sequence",
        "_C._functionalization.get_view_meta_sequence",
        "_C._functionalization.InverseReturnMode",
        "_C._functorch.peek_interpreter_stack",
        "_C._is_alias_of",
        "_C._len_torch_dispatch_stack",
        "_C._len_torch_function_stack",
        "_C._storage_Use_Count",
        "_C._swap_tensor_impl",
        "_GLOBAL_DEVICE_CONTEXT",
        "_TorchCompileInductorWrapper",
        "_foreach_add",
        "_foreach_add_",
        "_foreach_addcmul_",
        "_foreach_copy_",
        "_foreach_div",
        "_foreach_div_",
        "_foreach_lerp_",
        "_foreach_maximum_",
        "_foreach_mul",
        "_foreach_mul_",
        "_foreach_neg",
        "_foreach_sqrt",
        "_foreach_sub_",
        "_from_functional_tensor",
        "_functionalize_commit_update",
        "_functionalize_replace",
        "_C._functionalization.get_view_meta_sequence",
        "_grouped_mm",
        "_is_functional_tensor",
        "_is_functional_tensor_base",
        "random.manual_seed",
        "_ops.HigherOrderOperator",
        "_ops.OpOverload",
        "_register_device_module",
        "_sync",
        "_to_functional_tensor",
    ),
    "torch.autograd.forward_ad": ("_current_level",),
    "torch.autograd.graph": ("_get_sid", "_get_tid"),
    "torch.overrides": ("_get_current_function_mode_stack", "_pop_mode", "_push_mode"),
    "torch._utils": (
        "_get_restore_location",
        "_rebuild_device_tensor_from_cpu_tensor",
        "_restore_device_fake_mode",
    ),
    "torch._weights_only_unpickler": ("_get_allowed_globals",),
    "torch.jit._builtins": ("_register_builtin",),
    "torch.library": ("get_kernel", "Library"),
    "torch._functorch.pyfunctorch": ("temporarily_clear_interpreter_stack",),
    "torch._subclasses.fake_tensor": ("FakeTensorMode", "is_fake"),
    "torch.optim.optimizer": ("_get_fused_kernels_supported_devices",),
    "torch_xla.distributed.parallel_loader": (
        "MpDeviceLoader.__iter__",
        "ParallelLoader._loader_worker",
        "ParallelLoader.send_cpu_data_to_device",
    ),
    "torch_xla.experimental.plugins": ("DevicePlugin", "register_plugin"),
    "torch_xla.experimental.scan": ("Scan", "_scan_impl_flat"),
    "torch_xla.runtime": (
        "addressable_runtime_device_count",
        "global_runtime_device_attributes",
        "global_runtime_device_count",
        "is_spmd",
        "use_spmd",
    ),
}


LATE: Mapping[str, tuple[str, ...]] = {
    "torch_xla._dynamo.dynamo_bridge": ("extract_compiled_graph",),
    "torch_xla.core.dynamo_bridge": ("extract_compiled_graph",),
}
"""Of modules that are executed when they are used (``_late``); they are looked for then (``check_late``)."""


def check() -> None:
    """Raises VersionMismatch naming what this installation of torch and torch_xla lacks."""
    lacking = missing("torch_xla._XLAC", _xla.binding(), (*BINDING, *SPMD_BINDING))
    for module, names in OTHERS.items():
        try:
            lacking += missing(module, importlib.import_module(module), names)
        except ImportError:
            lacking.append(module)
    lacking += [module for module in LATE if importlib.util.find_spec(module) is None]
    if not owners_are_told():
        lacking.append("a tensor's flag in its Python object that says which of the two owns the other")
    if not holders_are_counted():
        lacking.append("the counts of who holds a tensor and its memory")
    if lacking:
        raise _mismatch(lacking)


def check_late(module: types.ModuleType) -> None:
    """The same of a module of ``LATE``, which has just been executed."""
    if lacking := missing(module.__name__, module, LATE[module.__name__]):
        raise _mismatch(lacking)


def _mismatch(lacking: Sequence[str]) -> core.VersionMismatch:
    import torch
    import torch_xla

    return core.VersionMismatch(
        f"ptpathways {core.__version__} is made for torch {TORCH} and torch_xla {TORCH_XLA}; torch "
        f"{torch.__version__} and torch_xla {torch_xla.__version__} lack {', '.join(lacking)}, which it uses or "
        f"replaces: install torch=={TORCH} torch_xla=={TORCH_XLA}"
    )


def owners_are_told() -> bool:
    """Whether ``native.owns_its_tensor`` reads the installed torch's objects rightly, in both of their states."""
    import torch

    with torch.inference_mode(False), torch.enable_grad():  # whatever the caller is in
        leaf = torch.zeros((), requires_grad=True, device="cpu")
        graph = leaf * 1  # it saves the leaf
    found = weakref.ref(leaf)
    owned = native.owns_its_tensor(leaf)
    del leaf
    kept = found()  # from here on torch has it, and Python sees an object that does not own it
    lent = kept is not None and not native.owns_its_tensor(kept)
    if kept is not None:
        kept._fix_weakref()  # type: ignore[attr-defined]
    del graph
    return owned and lent and kept is not None and native.owns_its_tensor(kept)


def holders_are_counted() -> bool:
    """Whether ``native.count_holders`` and ``native.are_held`` read the installed torch's objects rightly, and torch
    makes one Python object of a memory, which counts once however many have it."""
    import torch

    with torch.inference_mode(False):
        alone, shared = torch.zeros(2, device="cpu"), torch.zeros(2, device="cpu")
        kept = [shared.detach(), torch.zeros(2, device="cpu", requires_grad=True)]
        kept[1].grad = shared  # which torch refers to from there
    memory = [torch.Tensor.untyped_storage(tensor) for tensor in (alone, shared)]
    places = array("Q", (one._cdata for one in memory))
    uses = [torch._C._storage_Use_Count(place) for place in places]
    found = native.count_holders({0: alone, 1: shared})
    told = [uses, [tensor._use_count() for tensor in (alone, shared)], [*places]]  # type: ignore[attr-defined]
    held = [native.are_held(places[:1], uses[0]), native.are_held(places, uses[0])]
    one = torch.Tensor.untyped_storage(alone) is memory[0]
    return one and found[1:] == told and uses[0] < uses[1] and told[1][0] < told[1][1] and held == [True, False]


def missing(name: str, module: Any, names: Iterable[str]) -> list[str]:
    """Which of the dotted ``names`` the module ``name`` lacks."""
    lacking = []
    for dotted in names:
        found = module
        for part in dotted.split("."):
            found = getattr(found, part, None)
        if found is None:
            lacking.append(f"{name}.{dotted}")
    return lacking
