"""``safetensors.torch.save_model`` and ``load_model`` of models on devices, as accelerate's ``load_state`` calls them.

The library finds tied weights by the addresses of their storages, and tensors of XLA devices have none: it fails. Here
such tensors are told apart by their storages themselves.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def register() -> None:
    """Makes the library, where it is installed, know tied weights on devices. Idempotent."""
    if importlib.util.find_spec("safetensors") is None:
        return
    from safetensors import torch as library

    shared: Any = getattr(library, "_find_shared_tensors", None)
    complete: Any = getattr(library, "_is_complete", None)
    if shared is None or complete is None or hasattr(shared, "__wrapped__"):  # another version, or done
        return

    @functools.wraps(shared)
    def find_shared(state_dict: dict[str, torch.Tensor]) -> list[set[str]]:
        own = {name: tensor for name, tensor in state_dict.items() if tensor.device.type == "xla"}
        found: dict[int, set[str]] = {}
        for name, tensor in own.items():
            found.setdefault(tensor.untyped_storage()._cdata, set()).add(name)
        others = {name: tensor for name, tensor in state_dict.items() if name not in own}
        return [*shared(others), *found.values()]

    @functools.wraps(complete)
    def is_complete(tensor: torch.Tensor) -> bool:
        if tensor.device.type != "xla":
            return bool(complete(tensor))
        return tensor.untyped_storage().nbytes() == tensor.nbytes

    vars(library).update(_find_shared_tensors=find_shared, _is_complete=is_complete)
