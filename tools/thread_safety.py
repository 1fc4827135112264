"""Clang's thread-safety analysis of the rooms whose locks are annotated (csrc/base/thread_annotations.h).

The compiler is that of the package ziglang, a whole Clang from pip; it brings libc++, whose mutexes carry the
annotations (libstdc++'s do not). Nothing is linked: each file is only looked at. Needs a built tree, for the
generated headers.

Usage::

    python -m pip install ziglang==0.17.1
    python tools/thread_safety.py [FILE ...]    # default: every file of ROOMS
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# wire, hlo, store, plan and scheduler have no lock. Files of bindings take ten times as long as others, for one lock:
# they are looked at when they are named.
ROOMS = (
    *("base", "transport", "dataplane", "kernels", "pjrt", "collective", "worker", "controller", "client"),
    *("sim", "values", "compiled", "capture", "plugin"),
)
GENERATED = ROOT / "build" / "release" / "include"
MISSING = ROOT / "tools" / "atomic_shared_ptr.h"  # in libc++
FILE_TIMEOUT_S = 600

# What Zig writes into libc++'s configuration when it compiles; here nothing is compiled.
CONFIGURATION = {
    "_LIBCPP_ABI_NAMESPACE": "__1",
    "_LIBCPP_ABI_VERSION": "1",
    "_LIBCPP_ASSERTION_SEMANTIC_DEFAULT": "2",
    "_LIBCPP_ENABLE_THREAD_SAFETY_ANNOTATIONS": "1",
    "_LIBCPP_HARDENING_MODE_DEFAULT": "2",
    "_LIBCPP_HAS_FILESYSTEM": "1",
    "_LIBCPP_HAS_LOCALIZATION": "1",
    "_LIBCPP_HAS_MONOTONIC_CLOCK": "1",
    "_LIBCPP_HAS_MUSL_LIBC": "0",
    "_LIBCPP_HAS_RANDOM_DEVICE": "1",
    "_LIBCPP_HAS_TERMINAL": "1",
    "_LIBCPP_HAS_THREADS": "1",
    "_LIBCPP_HAS_THREAD_API_EXTERNAL": "0",
    "_LIBCPP_HAS_THREAD_API_PTHREAD": "1",
    "_LIBCPP_HAS_THREAD_API_WIN32": "0",
    "_LIBCPP_HAS_TIME_ZONE_DATABASE": "0",
    "_LIBCPP_HAS_UNICODE": "1",
    "_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS": "0",
    "_LIBCPP_HAS_WIDE_CHARACTERS": "1",
    "_LIBCPP_PSTL_BACKEND_SERIAL": "1",
}


def command() -> list[str]:
    """The compiler and its options, without a file.

    Raises:
        SystemExit: ziglang is not installed, or the tree is not built.
    """
    import pybind11

    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the analysis needs a Clang; run `python -m pip install ziglang==0.17.1`")
    if not GENERATED.is_dir():
        raise SystemExit(f"the analysis needs generated headers, got none in {GENERATED}; run `make native`")
    zig = Path(next(iter(spec.submodule_search_locations)))
    library = zig / "lib"
    options = ["--target=x86_64-linux-gnu", "-std=c++20", "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety"]
    places = ["-nostdinc++", "-isystem", str(library / "libcxx" / "include"), "-isystem", str(library / "include")]
    places += ["-isystem", str(library / "libcxxabi" / "include"), "-include", str(MISSING)]
    places += ["-isystem", sysconfig.get_paths()["include"], "-isystem", pybind11.get_include()]
    defined = [f"-D{name}={value}" for name, value in CONFIGURATION.items()]
    return [str(zig / "zig"), "clang", *options, *defined, *places, f"-I{ROOT}", f"-I{GENERATED}"]


def analyse(file: Path) -> str:
    """What the compiler says of the file; empty when there is nothing to say."""
    done = subprocess.run(
        [*command(), str(file)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=FILE_TIMEOUT_S
    )
    return done.stderr if done.returncode != 0 or "warning:" in done.stderr else ""


def main(arguments: list[str]) -> int:
    """Exit code 0 when no file has anything to mend."""
    rooms = (file for room in ROOMS for file in sorted((ROOT / "csrc" / room).glob("*.cc")))
    files = [Path(name) for name in arguments] or [file for file in rooms if not file.name.endswith("_test.cc")]
    with ThreadPoolExecutor(int(os.environ.get("PW_JOBS", "0")) or os.cpu_count()) as pool:
        said = [text for text in pool.map(analyse, files) if text]
    print("".join(said), end="", file=sys.stderr)
    print(f"{len(files)} files, {len(said)} with something to mend")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
