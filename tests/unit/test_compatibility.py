"""The compatibility tool: edit lists and the tables."""

from __future__ import annotations

import pytest

from tools.compatibility import _edits as edits
from tools.compatibility import _table as table
from tools.compatibility._examples import EXAMPLES

PROGRAM = """import this
def main():
    device = 'here'
    model = Net()
    for batch in loader:
        model = Net()
main()"""


def test_lines_come_after_or_instead_with_the_indentation_of_the_line_found() -> None:
    text, changed = edits.apply(
        PROGRAM,
        [
            edits.instead("device =", "start()", "device = 'there'"),
            edits.after("import", "import that"),
            edits.after("model = Net()", "prepare(model)", nth=2),
        ],
    )
    assert text.splitlines() == [
        "import this", "import that", "def main():", "    start()", "    device = 'there'", "    model = Net()",
        "    for batch in loader:", "        model = Net()", "        prepare(model)", "main()",
    ]  # fmt: skip
    assert changed == 4


def test_a_line_taken_away_counts_as_one_and_the_last_line_may_be_followed() -> None:
    text, changed = edits.apply(PROGRAM, [edits.instead("device ="), edits.after("main()", "end()")])
    assert "device" not in text and text.endswith("main()\nend()\n") and changed == 2


def test_nothing_to_do_changes_nothing() -> None:
    assert edits.apply(PROGRAM, []) == (PROGRAM, 0)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (edits.after("nowhere", "x"), "'nowhere', found: none"),
        (edits.after("model", "x"), "exactly one line should begin with 'model', found: 4, 6"),
        (edits.after("model", "x", nth=3), "at least 3 lines"),
    ],
)
def test_an_edit_for_another_version_is_refused(edit: edits.Edit, said: str) -> None:
    with pytest.raises(edits.EditError, match=said):
        edits.apply(PROGRAM, [edit])


def test_two_edits_for_one_line_are_refused() -> None:
    with pytest.raises(edits.EditError, match="two edits are for line 3"):
        edits.apply(PROGRAM, [edits.after("device", "x"), edits.instead("device =", "y")])


@pytest.mark.parametrize("key", [example.key for example in EXAMPLES])
def test_every_edit_list_is_small_and_joins_the_cluster(key: str) -> None:
    (example,) = (example for example in EXAMPLES if example.key == key)
    new = [line for edit in example.edits for line in edit.lines]
    assert len(new) <= 8
    assert sum("pw.init()" in line for line in new) == 1 and sum(line.startswith("import ") for line in new) == 1


ROW = {"lines": 4, "difference": 3.2e-7, "noise": 0.012, "recompiles": 0, "fallbacks": [], "client_ms": 12.4}


def test_a_line_of_the_table_says_what_was_measured() -> None:
    assert table.line("GPT", ROW) == "| GPT | 4 | 3e-7 | 1e-2 | 0 | none | 12 |"
    fallen = table.line("GPT", {**ROW, "fallbacks": ["aten::nonzero"], "noise": None, "difference": float("inf")})
    assert fallen == "| GPT | 4 | not the same losses |  | 0 | `aten::nonzero` | 12 |"


def test_a_failure_is_a_line_with_its_last_words() -> None:
    text = table.line("GPT", {"lines": 4, "error": "Traceback\n  ...\nValueError: a | b"})
    assert text == "| GPT | 4 | failed: ValueError: a / b | | | | |"


def test_tables_keep_their_order_and_say_what_was_not_run() -> None:
    text = table.models_table([("b", "B"), ("a", "A"), ("c", "C")], {"a": ROW, "b": ROW}).splitlines()
    assert [line.split("|")[1].strip() for line in text[:4]] == ["model", "---", "B", "A"]
    assert text[4:] == ["", "Not in this run: C."]
