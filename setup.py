"""Builds the native libraries; everything else is declared in pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools.native_build import BuildError, build_library

EXTENSION = "ptpathways.native._native"
TORCH_KERNELS = "ptpathways.native._torch_kernels"
"""No extension of Python but a library of the same name for all of them; there is none where torch is not installed."""


class BuildNative(build_ext):
    """Hands the libraries to tools/native_build.py, which drives CMake."""

    def get_ext_filename(self, fullname: str) -> str:
        """Where a library lies in the package."""
        plain = fullname in (TORCH_KERNELS, TORCH_KERNELS.rpartition(".")[2])
        return f"{fullname.replace('.', '/')}.so" if plain else str(super().get_ext_filename(fullname))

    def build_extension(self, ext: Extension) -> None:
        """Builds ``ext`` where setuptools wants it, from where it goes into the package."""
        target = ext.name.rpartition("._")[2]
        try:
            build_library(target, Path(self.get_ext_fullpath(ext.name)).resolve())
        except BuildError as error:
            raise SystemExit(str(error)) from None


setup(
    ext_modules=[Extension(EXTENSION, sources=[]), Extension(TORCH_KERNELS, sources=[], optional=True)],
    cmdclass={"build_ext": BuildNative},
)
