"""frontend: reading the variables of running functions."""

from __future__ import annotations

import sys
import weakref

from ptpathways.frontend.base._frames import variables_of


class Thing:
    """What a variable holds."""


def test_what_a_variable_was_does_not_outlive_it() -> None:
    thing = Thing()
    known = weakref.ref(thing)
    assert variables_of(sys._getframe())["thing"] is thing
    del thing
    assert known() is None


def test_variables_that_somebody_has_asked_for_stay_theirs() -> None:
    thing = Thing()
    mine = locals()
    assert variables_of(sys._getframe())["thing"] is thing
    assert mine["thing"] is thing


def test_variables_of_a_module_are_left_alone() -> None:
    space: dict[str, object] = {"variables_of": variables_of, "sys": sys, "here": 1}
    exec("found = variables_of(sys._getframe())", space)
    assert space["here"] == 1
    found = space["found"]
    assert isinstance(found, dict) and found["here"] == 1


def test_variables_are_what_they_are_now() -> None:
    number = 1
    assert variables_of(sys._getframe())["number"] == 1
    number = 2
    assert variables_of(sys._getframe())["number"] == number
