"""clang-tidy over the rooms of C++, with the checks of ``.clang-tidy``. Needs a built tree: each room is looked at as
it is compiled, as one source. What needs torch's headers is left out.

Usage::

    python -m pip install clang-tidy==19.1.0
    python tools/tidy.py [--fix] [ROOM ...]    # default: every room
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "release"
SOURCE = "unity_0_cxx.cxx"
ROOM_TIMEOUT_S = 1200


def sources(rooms: list[str]) -> dict[str, Path]:
    """The one source of each room, by the room's name.

    Raises:
        SystemExit: the tree is not built, or there is no such room.
    """
    found = {path.parent.parent.stem: path for path in sorted(BUILT.glob(f"CMakeFiles/*.dir/Unity/{SOURCE}"))}
    found = {room: path for room, path in found.items() if (ROOT / "csrc" / room).is_dir() and room != "torch_kernels"}
    if not found:
        raise SystemExit(f"clang-tidy needs a built tree, got none in {BUILT}; run `make native`")
    unknown = sorted(set(rooms) - set(found))
    if unknown:
        raise SystemExit(f"expected rooms among {', '.join(found)}; got {', '.join(unknown)}")
    return {room: found[room] for room in rooms or found}


def command(source: Path, fix: bool) -> list[str]:
    """
    Raises:
        SystemExit: clang-tidy is not installed.
    """
    import pybind11

    spec = importlib.util.find_spec("clang_tidy")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("clang-tidy is not installed; run `python -m pip install clang-tidy==19.1.0`")
    program = Path(next(iter(spec.submodule_search_locations))) / "data" / "bin" / "clang-tidy"
    asked = [str(program), "--quiet", "--header-filter=.*/csrc/.*", *(["--fix"] if fix else []), str(source)]
    outside = (pybind11.get_include(), sysconfig.get_paths()["include"])
    places = [f"-I{ROOT}", f"-I{BUILT / 'include'}", *(f"-isystem{place}" for place in outside)]
    return [*asked, "--", "-std=c++20", "-Wno-deprecated-declarations", *places]


def look_at(room: str, source: Path, fix: bool) -> tuple[str, float]:
    """What clang-tidy says of the room, empty when there is nothing to say; and the seconds that it took."""
    start = time.monotonic()
    done = subprocess.run(
        command(source, fix), cwd=ROOT, capture_output=True, text=True, check=False, timeout=ROOM_TIMEOUT_S
    )
    said = done.stdout + done.stderr if done.returncode != 0 else ""
    return said, time.monotonic() - start


def main(arguments: list[str]) -> int:
    """Exit code 0 when no room has anything to mend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM")
    parser.add_argument("--fix", action="store_true", help="mend what clang-tidy can mend; one room after the other")
    options = parser.parse_args(arguments)
    chosen = sources(options.rooms)
    at_once = 1 if options.fix else int(os.environ.get("PW_JOBS", "0")) or os.cpu_count()
    bad = 0
    with ThreadPoolExecutor(at_once) as pool:
        looked = {room: pool.submit(look_at, room, source, options.fix) for room, source in chosen.items()}
        for room, future in looked.items():
            said, seconds = future.result()
            bad += bool(said)
            print(f"{room}: {'something to mend' if said else 'fine'} ({seconds:.0f} s)", flush=True)
            print(said, end="", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
