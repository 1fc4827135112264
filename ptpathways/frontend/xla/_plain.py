"""Calls of a wrapped kernel that need no wrapper, kept out of Python.

A wrapper of a kernel costs 3 to 8 us at each call, and the GIL, which a backward pass takes otherwise for none of its
operations. Its author says with ``hands_on`` for which arguments it hands them on as they are; for those a kernel in
C++ (``csrc/torch_kernels``) calls the wrapped one. Tests compare the two.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ptpathways import native

_ERROR_BYTES = 1024


class Plain(enum.IntFlag):
    """What arguments must be for a wrapper to hand them on. Each is said of every tensor, but where it names one.

    Calls with a list of tensors, a complex number or a size that is a symbol always reach the wrapper.
    """

    FLOATING = 1
    """A floating type, of 16 bits, too."""
    REAL = 2
    """Not complex."""
    WIDE = 4
    """No float of 16 bits."""
    WITH_DIMENSIONS = 8
    NONEMPTY = 16
    DIMENSIONS_NAMED = 32
    """The second argument is a list of numbers with something in it."""
    UNIT_FACTORS = 64
    """Numbers are 1."""
    NONNEGATIVE = 128
    """Whole numbers are not below 0."""
    MATRICES = 256
    """The first argument is a tensor of at least two dimensions."""
    NORMALIZATION = 512
    """Of ``native_batch_norm``, in training and without running statistics: the kernel in C++ shifts the values, as the
    wrapper does (``frontend/kernels/layers/_normalization``), and calls the wrapped one."""
    SAME_TYPES = 1024
    """One type, but for tensors that torch has made of numbers."""
    MASKED = 2048
    """``SAME_TYPES`` does not mean the first argument."""
    TENSORS = 4096
    """None that torch has made of a number."""
    SMALL_NUMBERS = 8192
    """Numbers are whole, from 0 to 127, which all types but booleans have; no floats beside integers."""
    FITS = 16384
    """The first argument, in which the result is written, is of no smaller kind than others and numbers: of booleans,
    integers, floats and complex numbers."""
    KEEPS_SHAPE = 32768
    """Others can be broadcast to the first argument's shape."""
    NO_VIEW = 65536
    """Holds its elements itself."""
    NO_STATISTICS = 131072
    """Of ``native_batch_norm``: without running statistics."""
    NO_NUMBER = 262144
    """The first argument is no tensor of the CPU without dimensions."""
    AT_MOST_MATRICES = 524288
    """The first argument has at most two dimensions."""
    UNTIL_REFUSED = 1048576
    """What the kernel raises of them is the wrapper's, which is called when the kernel has refused. Lists of tensors
    and complex numbers are handed on, too, where nothing else is said."""
    UP_TO_DATE = 2097152
    """The first argument has seen all that was written to its memory; the kernel in C++ sees to that."""
    NO_DOUBLE = 4194304
    """No float64."""
    NO_GRADIENT = 8388608
    """Of ``detach``: the first argument is no view that autograd is about to keep as a gradient, and that repeats
    elements or whose memory others have (``frontend/kernels/memory/_gradients``). Of most of these the kernel in C++
    makes a tensor of its own, too."""
    ONCE = 16777216
    """The first argument shows no element several times, as far as can be seen at once."""
    OWN_TYPE = 33554432
    """Of ``mean``: without ``dtype=``. The kernel in C++ calls the wrapped one with the first argument's, as the
    wrapper does: PyTorch/XLA traces it otherwise for what ``tanh`` has made than for what ``+`` has made."""


Wrapper = TypeVar("Wrapper", bound=Callable[..., Any])

_ATTRIBUTE = "_hands_on"


def hands_on(plain: Plain) -> Callable[[Wrapper], Wrapper]:
    """Says of a wrapper that it hands such arguments to the kernel as they are, and returns what that returns.

    Of ``Plain.NORMALIZATION``: that it does what the kernel in C++ does.
    """

    def marked(wrapper: Wrapper) -> Wrapper:
        setattr(wrapper, _ATTRIBUTE, plain)
        return wrapper

    return marked


def of_wrapper(wrapper: Callable[..., Any]) -> Plain | None:
    """What was said of it."""
    plain: Plain | None = getattr(wrapper, _ATTRIBUTE, None)
    return plain


class Remembered:
    """A kernel, before a wrapper takes its place.

    Args:
        name: of the operator, with its overload: ``"aten::sum.dim_IntList"``.
        key: the dispatch key.

    Raises:
        RuntimeError: torch has no such operator, or no kernel of it.
    """

    def __init__(self, name: str, key: str) -> None:
        self._name = name
        operator, _, overload = name.partition(".")
        self._error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._kernel: int | None = None
        if (library := native_library()) is not None:
            words = (operator.encode(), overload.encode(), key.encode())
            self._kernel = library.ptpathways_remember_kernel(*words, self._error, _ERROR_BYTES)
            self._check(self._kernel is not None)

    def hand_on(self, plain: Plain) -> None:
        """To be called when the wrapper is registered. Raises RuntimeError when torch refuses."""
        if (library := native_library()) is not None:
            self._check(library.ptpathways_hand_on(self._kernel, int(plain), self._error, _ERROR_BYTES))

    def _check(self, done: bool) -> None:
        if not done:
            raise RuntimeError(f"{self._name} cannot be wrapped: {self._error.value.decode(errors='replace')}")


@functools.cache
def native_library() -> ctypes.CDLL | None:
    """None where there is none for this torch: then every call goes through Python, and a warning says so."""
    import torch

    path = native.find_torch_kernels()
    needed = f"torch {torch.__version__.partition('+')[0]}, plain {sum(Plain)}"
    built = "there is none"
    if path is not None:
        library = ctypes.CDLL(path)
        library.ptpathways_built_for.restype = ctypes.c_char_p
        built = library.ptpathways_built_for().decode()
        if built == needed:
            library.ptpathways_remember_kernel.restype = ctypes.c_void_p
            library.ptpathways_remember_kernel.argtypes = [*[ctypes.c_char_p] * 4, ctypes.c_size_t]
            library.ptpathways_hand_on.restype = ctypes.c_bool
            library.ptpathways_hand_on.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
            return library
    warnings.warn(
        f"operations are traced about a tenth slower than they could be: a library for '{needed}' is required "
        f"beside the C++ extension, got: {built}; build ptpathways where that torch is installed, with "
        "`make native` or `pip install .` (docs/install.md)",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
