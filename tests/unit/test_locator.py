"""frontend: naming the user's line."""

from __future__ import annotations

import concurrent.futures
import functools
import inspect

from ptpathways.frontend import user_source_line


def _here() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def test_it_names_the_innermost_line_that_is_the_users() -> None:
    assert user_source_line() == f"{__file__}:{_here()}"


def test_it_looks_through_python_and_this_package() -> None:
    named = max([0], key=lambda _: user_source_line())  # a frame of this file is innermost, whatever called it
    assert named == 0
    through_the_library = functools.reduce(lambda *_: user_source_line(), ["", ""])
    assert through_the_library == f"{__file__}:{_here() - 1}"


def test_a_thread_without_user_frames_speaks_for_the_main_thread() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        line = pool.submit(user_source_line).result(10)
        assert line == f"{__file__}:{_here() - 1}"
