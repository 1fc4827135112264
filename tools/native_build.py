"""Drives the C++ build (CMakeLists.txt, with CMake and Ninja from pip): what setup.py and the Makefile run.

Each set of flags has its own ``build/<variant>/``, so switching between them recompiles nothing. A file lock per
variant makes builds that start at the same time take turns.

Usage::

    python tools/native_build.py test [--sanitize address|thread] [--room ROOM] [--changed-since REF] [--filter TEXT]
        [--no-run]
    python tools/native_build.py test-plugin    # a PJRT plugin for tests; prints its path
    python tools/native_build.py times          # what took how long when it was last built, by target

Environment: ``CXX`` the compiler, ``CXXFLAGS`` further flags, ``PW_JOBS`` compiles at once (the number of cores),
``PW_TEST_PJRT_PLUGIN`` the plugin under test (default: the installed CPU package's), ``PW_TEST_PJRT_OPTIONS`` what its
client is created with (``csrc/pjrt/test_support.h``), ``PW_LIBZMQ`` libzmq (default:
pyzmq's copy), ``PW_ONEDNN`` oneDNN's library (default: that of the package onednn-cpu-gomp).
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
SANITIZERS = ("address", "thread")
TEST_TIMEOUT_SECONDS = 600


class BuildError(RuntimeError):
    """CMake or the compiler failed; their output stands above."""


def _run(command: Sequence[str | Path], quiet: bool = False) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, check=False, text=True, stdout=subprocess.PIPE if quiet else None)
    if done.returncode != 0:
        raise BuildError(f"{done.stdout or ''}{words[0]} failed; what it said stands above")


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _torch() -> Path | None:
    """The folder of torch, whose headers one library needs; None where it is not installed.

    pip builds in an environment of its own, without torch; that of the interpreter may have it all the same.
    """
    found = importlib.util.find_spec("torch")
    places = [] if found is None or found.origin is None else [Path(found.origin).parent]
    places += [Path(sysconfig.get_path(kind)) / "torch" for kind in ("purelib", "platlib")]
    return next((place for place in places if (place / "include").is_dir()), None)


def _definitions(sanitizer: str) -> dict[str, object]:
    import ninja
    import pybind11

    return {
        "CMAKE_MAKE_PROGRAM": Path(ninja.BIN_DIR) / "ninja",
        "PW_PYTHON": sys.executable,
        "PW_INCLUDES": f"{sysconfig.get_paths()['include']};{pybind11.get_include()}",
        "PW_VERSION": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        "PW_SANITIZE": sanitizer,
        "PW_TORCH": _torch() or "",
    }


def check_compiler() -> None:
    """Raises BuildError when there is no C++ compiler to start."""
    chosen = os.environ.get("CXX", "")
    names = (chosen.split()[0],) if chosen.split() else ("c++", "g++", "clang++")
    if not any(map(shutil.which, names)):
        raise BuildError(
            f"a C++20 compiler is required to build ptpathways, and there is no {' or '.join(names)} here: install one "
            "(on Debian: apt install g++), or name it with CXX; a wheel that was built elsewhere needs none "
            "(docs/install.md)"
        )


def build(*targets: str, sanitizer: str = "") -> Path:
    """Builds targets of CMakeLists.txt; returns the variant's folder. Raises BuildError."""
    import cmake

    check_compiler()
    program = Path(cmake.CMAKE_BIN_DIR) / "cmake"
    folder = BUILD / (sanitizer or "release")
    with _lock(folder):
        definitions = [f"-D{name}={value}" for name, value in _definitions(sanitizer).items()]
        _run([program, "-G", "Ninja", "-S", ROOT, "-B", folder, *definitions], quiet=True)
        jobs = os.environ.get("PW_JOBS") or str(os.cpu_count() or 2)
        _run([program, "--build", folder, "--target", *targets, "--parallel", jobs])
    return folder


def build_library(target: str, output: Path) -> None:
    """Builds one of the package's two libraries and puts it at ``output``. Raises BuildError.

    Args:
        target: ``"native"``, which is both the Python extension and the PJRT plugin, or ``"torch_kernels"``, which
            needs torch's headers; where torch is not installed that is told, and nothing is built.
    """
    if _torch() is not None:
        try:
            build("native", "torch_kernels")  # together they keep all processors busy
        except BuildError:
            build(target)
    elif target == "torch_kernels":
        print("no torch here: operations will be traced about a tenth slower (docs/install.md)", file=sys.stderr)
        return
    else:
        build(target)
    built = BUILD / "release" / f"{target}.so"
    # In one step: a process that has the old library mapped keeps the old file.
    output.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(built, output.with_suffix(".new"))
    output.with_suffix(".new").rename(output)


def build_times(log: str) -> dict[str, float]:
    """Seconds of compiling and linking by target, the longest first, out of Ninja's log: of each file the last time."""
    latest = {}
    for line in log.splitlines():
        if not line.startswith("#"):
            start, end, _, output, _ = line.split("\t")
            latest[output] = (int(end) - int(start)) / 1000
    found: dict[str, float] = defaultdict(float)
    for output, seconds in latest.items():
        found[output.removeprefix("CMakeFiles/").partition(".dir/")[0]] += seconds
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def rooms_with_tests() -> list[str]:
    """Rooms of csrc that have a *_test.cc."""
    return sorted({path.parent.name for path in (ROOT / "csrc").glob("*/*_test.cc")})


def rooms_changed_since(reference: str, root: Path = ROOT) -> list[str] | None:
    """Rooms with tests that differ from where this history left ``reference``, the working tree included.

    None: git does not know, as in a checkout without history.
    """

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], cwd=root, check=False, text=True, capture_output=True)
        except OSError:  # there is no git
            return None
        return done.stdout if done.returncode == 0 else None

    base = git("merge-base", "HEAD", reference)
    changed = base and git("diff", "--name-only", "--relative", base.strip(), "--", "csrc")
    fresh = git("ls-files", "--others", "--exclude-standard", "--", "csrc")
    if not base or changed is None or fresh is None:
        return None
    touched = {Path(name).parts[1] for name in (changed + fresh).splitlines()}
    return [room for room in rooms_with_tests() if room in touched]


def _test_environment(room: str) -> dict[str, str]:
    env = dict(os.environ)
    if "PW_TEST_PJRT_PLUGIN" not in env:
        package = importlib.util.find_spec("fastatomstruct_xla_cpu")
        if package is not None and package.origin is not None:
            env["PW_TEST_PJRT_PLUGIN"] = str(Path(package.origin).parent / "libpjrt_cpu.so")
    if "PW_LIBZMQ" not in env:
        package = importlib.util.find_spec("zmq")
        if package is not None and package.origin is not None:
            copies = sorted((Path(package.origin).parent.parent / "pyzmq.libs").glob("libzmq-*.so*"))
            env |= {"PW_LIBZMQ": str(copies[0])} if copies else {}
    if "PW_ONEDNN" not in env:
        with suppress(importlib.metadata.PackageNotFoundError):
            found = [file for file in importlib.metadata.files("onednn-cpu-gomp") or [] if file.name == "libdnnl.so.3"]
            env |= {"PW_ONEDNN": str(found[0].locate())} if found else {}
    env.setdefault("NPROC", "32")  # a wide XLA thread pool, or collectives among many devices starve on few cores
    testing = ROOT / "csrc" / "testing"
    refused = "allocator_may_return_null=1"  # tests ask for more memory than there is, as without a sanitizer
    env.setdefault("TSAN_OPTIONS", f"suppressions={testing / 'tsan.supp'} ignore_noninstrumented_modules=1 {refused}")
    env.setdefault("LSAN_OPTIONS", f"suppressions={testing / 'lsan.supp'}")
    leaks = room != "kernels"  # where the search for leaks crashes in the threads of oneDNN's OpenMP
    env.setdefault("ASAN_OPTIONS", f"detect_odr_violation=0 detect_leaks={leaks:d} {refused}")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    return env


def run_tests(rooms: Sequence[str], sanitizer: str, only: str, run: bool) -> int:
    """Builds and runs the rooms' tests, as many rooms at once as there are cores; returns how many rooms failed."""
    folder = build("tests", sanitizer=sanitizer) if list(rooms) == rooms_with_tests() else None
    binaries = {room: (folder or build(f"{room}_test", sanitizer=sanitizer)) / f"{room}_test" for room in rooms}
    if not run:
        return 0
    failed = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for room, (code, printed) in zip(
            rooms, pool.map(_run_room, binaries.values(), [only] * len(rooms)), strict=True
        ):
            print(f"== {binaries[room].parent.name} {room}\n{printed}", end="", flush=True)
            if code != 0:
                failed.append(room)
    if failed:
        print(f"native tests failed in: {', '.join(failed)}")
    return len(failed)


def _run_room(binary: Path, only: str) -> tuple[int, str]:
    """The exit status of a room's tests, and what they printed."""
    room = binary.name.removesuffix("_test")
    command = [str(binary), *([only] if only else [])]
    try:
        done = subprocess.run(
            command,
            env=_test_environment(room),
            timeout=TEST_TIMEOUT_SECONDS,
            check=False,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired as expired:
        printed = expired.stdout or b""
        told = printed if isinstance(printed, str) else printed.decode(errors="replace")
        return 124, f"{told}\nexpected {room}'s tests to end within {TEST_TIMEOUT_SECONDS} s, they did not\n"
    return done.returncode, done.stdout


def main() -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Builds and tests the C++ side.")
    commands = parser.add_subparsers(dest="command", required=True)
    plugin = commands.add_parser("test-plugin", help="build a PJRT plugin for tests")
    plugin.add_argument("name", nargs="?", default="pod_plugin", help="a file of csrc/testing/plugin, without .cc")
    test = commands.add_parser("test", help="build and run native tests")
    test.add_argument("--room", action="append", help="only this room (may be repeated)")
    test.add_argument("--changed-since", metavar="REF", help="only rooms that differ from where this branch left REF")
    test.add_argument("--sanitize", choices=SANITIZERS)
    test.add_argument("--filter", default="", help="only tests whose name contains this")
    test.add_argument("--no-run", action="store_true", help="build only")
    commands.add_parser("times", help="what took how long when it was last built, by target")
    args = parser.parse_args()
    try:
        if args.command == "times":
            log = BUILD / "release" / ".ninja_log"
            times = build_times(log.read_text()) if log.exists() else {}
            for target, seconds in times.items():
                print(f"{seconds:7.1f} s  {target}")
            print(f"{sum(times.values()):7.1f} s  in all")
            return 0
        if args.command == "test-plugin":
            print(build(args.name) / f"lib{args.name}.so")
            return 0
        rooms = args.room or rooms_with_tests()
        if args.changed_since:
            changed = rooms_changed_since(args.changed_since)
            if not changed:
                why = "git does not say what changed" if changed is None else "no room has changed"
                print(f"no native tests: {why} since {args.changed_since}")
                return 0
            rooms = [room for room in rooms if room in changed]
        return 1 if run_tests(rooms, args.sanitize or "", args.filter, not args.no_run) else 0
    except BuildError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
