"""Makes an environment for each system that ``ptpathways bench --peers`` compares with: ``.peers/NAME``.

Usage::

    python tools/bench_peers.py [NAME ...]

Without names, all. The versions are those of ``ptpathways/bench/peers/requirements/NAME.txt``; an environment made from
the same file is kept. One that cannot be made is reported, and the others are made nevertheless.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "ptpathways" / "bench" / "peers" / "requirements"
ENVIRONMENTS = ROOT / ".peers"
_INSTALL_TIMEOUT_S = 1800


def make(name: str) -> None:
    """Makes the environment of ``name`` unless it is there. Raises ``CalledProcessError`` when pip fails."""
    wanted = (REQUIREMENTS / f"{name}.txt").read_text()
    folder = ENVIRONMENTS / name
    stamp = folder / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        print(f"{name}: already there")
        return
    venv.create(folder, clear=True, with_pip=True, symlinks=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "-r", str(REQUIREMENTS / f"{name}.txt")], check=True, timeout=_INSTALL_TIMEOUT_S)
    stamp.write_text(wanted)
    print(f"{name}: made {folder}")


def main() -> int:
    known = sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))
    names = sys.argv[1:] or known
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"environments must be among {', '.join(known)}, got {', '.join(unknown)}", file=sys.stderr)
        return 2
    failed = []
    for name in names:
        try:
            make(name)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{name}: not made, {error}", file=sys.stderr)
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
