"""Settings of every test."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Generator

import hypothesis
import pytest

from tests import tiers

# When --budget is used up.
DEADLINE = pytest.StashKey[float]()
# Most of the time of these tests goes into XLA's compiler. The processes that they start inherit this: the same
# computations, with less effort of LLVM to make them fast. The examples' tests run without it, as users do.
QUICK_COMPILES = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("XLA_FLAGS", QUICK_COMPILES)
# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
# What a test compiles is compiled for it, whatever ran before.
os.environ["PTPATHWAYS_CACHE_DIR"] = "off"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A program that did not end in time: what it had printed says what it waited for."""
    report = yield
    expired = call.excinfo.value if call.excinfo is not None else None
    if isinstance(expired, subprocess.TimeoutExpired):
        for name, printed in (("output", expired.stdout), ("errors", expired.stderr)):
            text = printed.decode(errors="replace") if isinstance(printed, bytes) else printed or ""
            report.sections.append((f"The program's {name}", text[-8000:]))
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budget",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="begin no test later than this; those that are left are skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[DEADLINE] = time.monotonic() + config.getoption("--budget")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash[DEADLINE]:
        pytest.skip("no time is left for it (--budget)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.mark_long(items, whole=config.args == config.getini("testpaths") and not config.getoption("keyword"))
    tiers.put_first(items)
