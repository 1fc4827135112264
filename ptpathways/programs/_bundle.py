"""A program in one file: graph, compiled functions' modules, and values of its arguments. A zip archive.

manifest.json         format, version, package version, which arguments have values, which results become arguments
program.json          the graph (see ``ir.to_json``)
modules/DIGEST.hlo    HloModuleProto, without shardings; the graph has them
arguments/N.npy       the whole N-th argument; bf16 as its bits in uint16
"""

from __future__ import annotations

import errno
import io
import json
import secrets
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ptpathways import core, ir
from ptpathways.programs._shards import numpy_dtype

FORMAT = "ptpathways.bundle"
VERSION = 1
# A date for every entry, so that saving the same program twice gives the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Bundle:
    """What is in such a file."""

    program: ir.Program
    """With virtual slices, not placed."""
    modules: Mapping[str, bytes]
    """HLO modules by digest."""
    values: Mapping[int, npt.NDArray[Any]] = field(default_factory=dict)
    """Arguments by number."""
    follows: Mapping[int, int] | None = None
    """Numbers of results by the numbers of the arguments that they become in the next run; None: that is not known."""

    def save(self, path: str | Path) -> Path:
        """Writes the file, in whole or not at all; its path. Of a link the file that it leads to.

        Raises:
            OSError: it cannot be written, or there is something else of that name.
        """
        target = Path(path)
        file = target.resolve()
        if file.exists() and not file.is_file():
            raise OSError(errno.EEXIST, "expected a file or a new name to save to, got a folder or a device", str(path))
        partial = file.with_name(f"{file.name}.{secrets.token_hex(4)}.part")
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "package": core.__version__,
            "name": self.program.name,
            "values": sorted(self.values),
        }
        if self.follows is not None:
            manifest["follows"] = sorted(self.follows.items())
        try:
            with zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED) as archive:
                _write(archive, "manifest.json", json.dumps(manifest, indent=1).encode())
                _write(archive, "program.json", ir.to_json(self.program).encode())
                for digest, module in sorted(self.modules.items()):
                    _write(archive, f"modules/{digest}.hlo", module)
                for number, value in sorted(self.values.items()):
                    content = io.BytesIO()
                    np.save(content, value, allow_pickle=False)
                    _write(archive, f"arguments/{number}.npy", content.getvalue())
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)
        return target

    @staticmethod
    def load(path: str | Path) -> Bundle:
        """Reads and checks a file that ``save`` wrote.

        Raises:
            InvalidProgram: it is no such file, of another version, or its contents do not fit each other.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                manifest = json.loads(archive.read("manifest.json"))
                if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
                    raise core.InvalidProgram(
                        f"{path} must be a program saved in {FORMAT} version {VERSION}, got "
                        f"{manifest.get('format')!r} version {manifest.get('version')!r}"
                    )
                program = ir.from_json(archive.read("program.json").decode())
                modules = {}
                for function in program.functions:
                    modules[function.digest] = archive.read(f"modules/{function.digest}.hlo")
                    if ir.digest_of(modules[function.digest]) != function.digest:
                        raise core.InvalidProgram(f"{path}: the module of function {function.label} is damaged")
                values = {
                    int(number): np.load(io.BytesIO(archive.read(f"arguments/{int(number)}.npy")), allow_pickle=False)
                    for number in manifest.get("values", [])
                }
                follows = manifest.get("follows")
                follows = None if follows is None else {int(number): int(result) for number, result in follows}
        except core.InvalidProgram:
            raise
        except FileNotFoundError:
            raise core.InvalidProgram(f"a saved program must be a file, and there is none at {path}") from None
        except (
            OSError,
            zipfile.BadZipFile,
            LookupError,
            ValueError,
            AttributeError,
            TypeError,
            RecursionError,
        ) as error:
            raise core.InvalidProgram(f"{path} is no saved program: {type(error).__name__}: {error}") from None
        _check_values(program, values, path)
        _check_follows(program, follows or {}, path)
        return Bundle(program, modules, values, follows)

    def value(self, number: int) -> npt.NDArray[Any]:
        """An argument: as saved, or of its type with made-up values, which are the same each time.

        Those of floating point are from 0 to 0.1, so that rates, variances and second moments may be made up as well.
        """
        saved = self.values.get(number)
        if saved is not None:
            return saved
        kind = self.program.arguments[number].outputs[0].type
        dtype = numpy_dtype(kind.dtype)
        if kind.dtype != "bf16" and dtype.kind not in "fc":
            return np.zeros(kind.shape, dtype)
        made = np.asarray(np.random.default_rng(number).random(kind.shape, np.float32) * np.float32(0.1), np.float32)
        if kind.dtype == "bf16":  # the upper halves of the bits of f32
            return (made.view(np.uint32) >> 16).astype(np.uint16)
        return made.astype(dtype)


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _check_values(program: ir.Program, values: Mapping[int, npt.NDArray[Any]], path: str | Path) -> None:
    arguments = program.arguments
    for number, value in values.items():
        if not 0 <= number < len(arguments):
            raise core.InvalidProgram(f"{path} has a value for argument {number}; the program has {len(arguments)}")
        kind = arguments[number].outputs[0].type
        if value.shape != kind.shape or value.dtype != numpy_dtype(kind.dtype):
            raise core.InvalidProgram(
                f"{path}: argument {number} must be {kind.tensor}, got {value.dtype} of shape {value.shape}"
            )


def _check_follows(program: ir.Program, follows: Mapping[int, int], path: str | Path) -> None:
    for number, result in follows.items():
        if not (0 <= number < len(program.arguments) and 0 <= result < len(program.results)):
            raise core.InvalidProgram(f"{path} chains argument {number} and result {result}; one of them is none")
