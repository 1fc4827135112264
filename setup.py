"""Builds the native extension; everything else is declared in pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools.native_build import BuildError, build_extension


class BuildNative(build_ext):
    """Hands the one extension to tools/native_build.py, which drives CMake."""

    def build_extension(self, ext: Extension) -> None:
        """Builds ``ext`` where setuptools wants it: in the package for --inplace, else in its build folder."""
        try:
            build_extension(Path(self.get_ext_fullpath(ext.name)).resolve())
        except BuildError as error:
            raise SystemExit(str(error)) from None


setup(
    ext_modules=[Extension("ptpathways.native._native", sources=[])],
    cmdclass={"build_ext": BuildNative},
)
