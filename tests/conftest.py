"""Settings of every test."""

from __future__ import annotations

import os

# Most of the time of these tests goes into XLA's compiler. The processes that they start inherit this: the same
# computations, with less effort of LLVM to make them fast. The examples' tests run without it, as users do.
QUICK_COMPILES = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("XLA_FLAGS", QUICK_COMPILES)
# What a test compiles is compiled for it, whatever ran before.
os.environ["PTPATHWAYS_CACHE_DIR"] = "off"
