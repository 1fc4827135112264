"""Which waits are told of, and in which words."""

from __future__ import annotations

import gc
import threading
import weakref

from ptpathways.frontend.base._due import Due
from ptpathways.frontend.diagnostics import _long_waits
from ptpathways.frontend.diagnostics._long_waits import Host, Situation


def test_a_wait_is_told_of_when_it_lasts_and_again_when_it_has_lasted_three_times_as_long() -> None:
    due = Due(10.0)
    told = [now for now in range(1, 101) if due.pick([(1, "a value", float(now))], float(now))]
    assert told == [10, 30, 90]


def test_each_wait_of_a_thread_counts_from_its_own_beginning() -> None:
    due = Due(2.0)
    assert not due.pick([(1, "a value", 1.0)], 10.0)
    assert due.pick([(1, "a value", 2.5)], 11.5)
    assert not due.pick([(1, "a value", 0.5)], 12.5), "another wait, for the same"
    assert not due.pick([], 13.0)
    assert due.pick([(1, "a value", 3.0), (2, "a value", 1.0)], 15.0) == [(1, "a value", 3.0)]


def test_a_situation_names_what_is_missing_and_what_its_hosts_do() -> None:
    lines = _long_waits.describe(
        Situation(
            pending=[("run", "function 'f' (train.py:3)", ["a", "b"], 12.0), ("fetch", "4 bytes", ["a"], 11.0)],
            hosts=[
                Host("a", 7, doing=[("runs", "function 'f' (train.py:3)", 12.0)]),
                Host("b", 8, silent_s=3.0, doing=None),
                Host("c", 9, doing=[("waits for host 'b' in a collective of", "function 'f'", 4.0)]),
                Host("d", 10, lost="was killed"),
                Host("e", 11),
            ],
            waiting_for="its turn",
            others=["other (pid 12)"],
            sends=[("a", 1), ("e", 2)],
        )
    )
    assert lines == [
        "not done: function 'f' (train.py:3), submitted 12.0 s ago, on a, b",
        "not fetched: 4 bytes, submitted 11.0 s ago, on a",
        "the controller holds this client's messages back: it waits for its turn (clients with work under way: other "
        "(pid 12))",
        "this process sends 1 value to host 'a'",
        "this process sends 2 values to host 'e'",
        "host 'a' (pid 7) runs function 'f' (train.py:3), for 12.0 s so far",
        "host 'b' (pid 8) does not answer; the controller heard of it 3.0 s ago: it is stopped, or its engine hangs",
        "host 'c' (pid 9) waits for host 'b' in a collective of function 'f', for 4.0 s so far",
        "host 'd' (pid 10) is lost: was killed",
        "host 'e' (pid 11) has nothing to do",
    ]


def test_a_controller_that_does_not_answer_is_said() -> None:
    assert _long_waits.describe(Situation(controller_silent=True)) == ["the controller has not answered within 1 s"]


class Held:
    """Something that is watched, as a tensor in a step's frame would be."""


def test_asking_where_a_thread_waits_keeps_nothing_of_its_frames_alive() -> None:
    """A tensor that lives on would be one more result of the next program, which would be compiled again."""
    began, go_on, found = threading.Event(), threading.Event(), []

    def step() -> None:
        held = Held()
        found.append(weakref.ref(held))
        began.set()
        assert go_on.wait(60)

    thread = threading.Thread(target=step)
    thread.start()
    assert began.wait(60)
    gc.disable()
    try:
        assert __file__ in _long_waits._line_of(thread.ident or 0)
        go_on.set()
        thread.join(60)
        assert found[0]() is None
    finally:
        gc.enable()
