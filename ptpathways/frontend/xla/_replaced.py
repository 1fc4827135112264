"""C++ functions of torch that are replaced while the process runs, because no kernel can mend what they cause.

- PyTorch/XLA finds compiled computations by a hash that leaves out which value is used where. ``x * w + v + w`` and
  ``x * w + w + v`` have one hash where all three tensors have one shape: the second formula would run the first one's
  computation (``csrc/torch_kernels/graph_hash.cc``).
- A number as an index of a tensor without dimensions, ``loss[1]``, would end the process: torch reads the tensor's
  first size (``csrc/torch_kernels/no_sizes.cc``).
"""

from __future__ import annotations

import ctypes
import warnings

from ptpathways.frontend.xla import _plain, _xla

_ERROR_BYTES = 512
_CONSEQUENCES = {
    "ptpathways_distinguish_graphs": "PyTorch/XLA may take two formulas for one and give wrong results, where they "
    "differ only in which input is used where (x * w + v + w and x * w + w + v)",
    "ptpathways_give_sizes_an_address": "an index of a tensor without dimensions (loss[1]) ends the process",
}
"""By function of the library: what the user has to expect without it."""


def register() -> None:
    """Replaces them, or warns of what follows where that is not possible. Idempotent; before anything is traced."""
    library = _plain.native_library()
    path = vars(_xla.binding())["__file__"].encode()
    for name, consequence in _CONSEQUENCES.items():
        why = "the library that sees to it was not built, or is an older one"
        if (function := getattr(library, name, None)) is not None:
            function.restype = ctypes.c_bool
            function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
            error = ctypes.create_string_buffer(_ERROR_BYTES)
            if function(path, error, _ERROR_BYTES):
                continue
            why = error.value.decode(errors="replace")
        warnings.warn(
            f"{consequence}: {why}. Build ptpathways where torch 2.9.0 is installed, with `make native` or "
            "`pip install .` (docs/install.md)",
            RuntimeWarning,
            stacklevel=2,
        )
