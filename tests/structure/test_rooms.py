"""The house: a room imports only rooms below it, through their doors; files stay readable."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ptpathways"

PYTHON_ROOMS = [
    "core",
    "sharding",
    "schedules",
    "native",
    "ir",
    "platforms",
    "launch",
    "programs",
    "frontend",
    "data",
    "checkpoint",
    "metrics",
    "train",
    "pipelines",
    "lightning",
    "testing",
    "bench",
    "cli",
]
"""From the lowest up."""
NO_TORCH = {"core", "sharding", "schedules", "native", "ir", "platforms", "launch", "programs"}
"""What a worker's process, or the process that starts it, may load."""

CPP_ROOMS = {
    "base": 0,
    "wire": 1,
    "transport": 2,
    "dataplane": 3,
    "kernels": 3.5,
    "hlo": 3.75,  # of modules' bytes: needs no device
    "pjrt": 4,
    "store": 5,
    "plan": 5.5,
    "scheduler": 6,
    "collective": 6.5,
    "worker": 7,
    "controller": 7,
    "client": 7,  # these three never include each other
    "sim": 7.5,  # hosts of a controller, in its own process
    "values": 8,
    "compiled": 8.25,
    "capture": 8.5,
    "plugin": 8.75,
    "bindings": 9,
    "torch_kernels": 9,  # includes none of these
    "testing": 10,
}
LINES_MAX = 600
MEETS_IN_TORCHS_STORE = PACKAGE / "launch" / "torchrun.py"
"""Runs in torchrun's own processes, never in a worker's, and imports torch only inside functions."""


def _imports(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names += [node.module]
            names += [f"{node.module}.{alias.name}" for alias in node.names if node.module == "ptpathways"]
    return names


def _room_files(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


@pytest.mark.parametrize("room", PYTHON_ROOMS)
def test_python_rooms_import_downwards_through_doors(room: str) -> None:
    for path in _room_files(room):
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] != "ptpathways" or len(parts) < 2 or parts[1] == room or parts[1] not in PYTHON_ROOMS:
                continue
            where = f"{path.relative_to(ROOT)} imports {name}"
            assert PYTHON_ROOMS.index(parts[1]) < PYTHON_ROOMS.index(room), f"{where}, a room above it"
            assert not any(part.startswith("_") for part in parts[2:]), f"{where}, past its door"


def test_every_python_room_is_known() -> None:
    found = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert found <= set(PYTHON_ROOMS), f"{found - set(PYTHON_ROOMS)} have no place in the order of rooms"


FRONTEND_PACKAGES = [
    "base",
    "xla",
    "diagnostics",
    "plans",
    "slices",
    "dataflow",
    "loops",
    "kernels.calls",
    "kernels.arithmetic",
    "kernels.memory",
    "kernels.algebra",
    "kernels.layers",
    "kernels",
    "capture.python",
    "capture.objects",
    "capture.recording",
    "capture",
    "",
]
"""The packages of the front end, from the lowest up; the last are its own modules."""


def _frontend_package(name: str) -> str:
    """The package of a module ``ptpathways.frontend...``, or of a package itself."""
    inner = name.split(".")[2:]
    return ".".join(part for part in inner if not part.startswith("_")) if inner else ""


def _imports_of_types(path: Path) -> set[str]:
    """What is imported only where a type checker looks."""
    tree = ast.parse(path.read_text())
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    inner = [part for node in guarded for part in ast.walk(node)]
    return {part.module for part in inner if isinstance(part, ast.ImportFrom) and part.module}


def test_packages_of_the_front_end_import_downwards() -> None:
    for path in _room_files("frontend"):
        own = _frontend_package(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
        assert own in FRONTEND_PACKAGES, f"{own} has no place in the order of the front end's packages"
        for name in set(_imports(path)) - _imports_of_types(path):
            if not name.startswith("ptpathways.frontend."):
                continue
            other = _frontend_package(name)
            assert other in FRONTEND_PACKAGES and FRONTEND_PACKAGES.index(other) <= FRONTEND_PACKAGES.index(own), (
                f"{path.relative_to(ROOT)} imports {name}, a package above it"
            )


def test_other_rooms_use_the_front_ends_door() -> None:
    for room in PYTHON_ROOMS:
        if room != "frontend":
            for path in _room_files(room):
                assert not [name for name in _imports(path) if name.startswith("ptpathways.frontend.")], path


def test_only_the_front_end_imports_torch_xla() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in {"frontend", "bench"}:  # bench measures torch_xla itself, too
            continue
        assert not [name for name in _imports(path) if name.split(".")[0] == "torch_xla"], path


@pytest.mark.parametrize("room", sorted(NO_TORCH))
def test_what_workers_load_never_imports_torch(room: str) -> None:
    for path in _room_files(room):
        if path == MEETS_IN_TORCHS_STORE:
            continue
        assert not [name for name in _imports(path) if name.split(".")[0] in {"torch", "torch_xla"}], path


def test_the_launcher_under_torchrun_imports_torch_only_when_it_runs() -> None:
    at_import = [node for node in ast.parse(MEETS_IN_TORCHS_STORE.read_text()).body if not isinstance(node, ast.If)]
    names = [node for node in at_import if isinstance(node, ast.Import | ast.ImportFrom)]
    assert names and not [node for node in names if "torch" in ast.unparse(node).replace("torchrun", "")]
    others = [
        path for path in _room_files("launch") if path not in {MEETS_IN_TORCHS_STORE, PACKAGE / "launch/__main__.py"}
    ]
    assert not [path for path in others if "torchrun" in str(_imports(path))], "nobody else may load it"


def test_cpp_rooms_include_downwards() -> None:
    for path in sorted((ROOT / "csrc").rglob("*.[ch]*")):
        if path.suffix not in {".h", ".cc"}:
            continue
        room = path.relative_to(ROOT / "csrc").parts[0]
        assert room in CPP_ROOMS, f"{room} has no place in the order of rooms"
        for other in re.findall(r'#include "csrc/(\w+)/', path.read_text()):
            if (
                other == room
                or (other == "testing" and path.stem.endswith(("_test", "test_support")))
                or room == "testing"
            ):
                continue
            assert CPP_ROOMS[other] < CPP_ROOMS[room], f"{path.relative_to(ROOT)} includes {other}"


def test_rooms_below_pjrt_know_nothing_of_its_c_api() -> None:
    for path in sorted((ROOT / "csrc").glob("*/*.[ch]*")):
        if CPP_ROOMS[path.parent.name] < CPP_ROOMS["pjrt"]:
            assert "csrc_generated/pjrt_abi" not in path.read_text(), f"{path.relative_to(ROOT)} needs a device's API"


def test_rooms_below_the_plugin_know_nothing_of_its_table() -> None:
    for room in ("values", "compiled", "capture"):
        for path in sorted((ROOT / "csrc" / room).glob("*.[ch]*")):
            found = re.findall(r"PJRT_Api\b|PJRT_\w+_Args", path.read_text())
            assert not found, f"{path.relative_to(ROOT)} names {found[0]}, which is for csrc/plugin"


def test_headers_comments_are_whole() -> None:
    """The formatter breaks a comment's line that is too long, and leaves the indented rest of its entry below."""
    for path in (ROOT / "csrc").rglob("*.h"):
        broken = re.findall(r"(?m)^(// \S+(?: \S+)?)\n// {8,}", path.read_text())
        assert not broken, f"{path.relative_to(ROOT)}: {broken}"


def test_files_stay_readable() -> None:
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "csrc").rglob("*.cc"), *(ROOT / "csrc").rglob("*.h")]
    files += [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    long = {str(path.relative_to(ROOT)): count for path in files if (count := path.read_text().count("\n")) > LINES_MAX}
    assert not long, f"files over {LINES_MAX} lines: {long}"


def test_the_public_names_are_documented() -> None:
    import ptpathways

    missing = [name for name in ptpathways.__all__ if not (getattr(ptpathways, name).__doc__ or "").strip()]
    assert not missing, f"public names without a docstring: {missing}"
