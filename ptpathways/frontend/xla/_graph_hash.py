"""PyTorch/XLA finds compiled computations by a hash that leaves out which value is used where.

``x * w + v + w`` and ``x * w + w + v`` have one hash where all three tensors have one shape: the second formula would
run the first one's computation. ``csrc/torch_kernels/graph_hash.cc`` says why, and what it changes.
"""

from __future__ import annotations

import ctypes
import warnings

from ptpathways.frontend.xla import _plain, _xla

_ERROR_BYTES = 512


def register() -> None:
    """Has different graphs get different hashes, or warns that they do not. Idempotent; before anything is traced."""
    library = _plain.native_library()
    if library is None:
        why = "the library that sees to it was not built for this torch"
    else:
        library.ptpathways_distinguish_graphs.restype = ctypes.c_bool
        library.ptpathways_distinguish_graphs.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        path = vars(_xla.binding())["__file__"]
        if library.ptpathways_distinguish_graphs(path.encode(), error, _ERROR_BYTES):
            return
        why = error.value.decode(errors="replace")
    warnings.warn(
        "PyTorch/XLA may take two formulas for one and give wrong results, where they differ only in which input is "
        f"used where (x * w + v + w and x * w + w + v): {why}. Build ptpathways where torch 2.9.0 is installed, with "
        "`make native` or `pip install .` (docs/install.md)",
        RuntimeWarning,
        stacklevel=2,
    )
