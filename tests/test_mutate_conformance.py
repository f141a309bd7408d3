"""The edits that make rows of docs/conformance.md untrue can be made, and are noticed."""

import ast
from pathlib import Path

import mutate_conformance
from conformance_mutations import MUTATIONS
from conformance_own import OWN, ROWS
from conformance_table import conformance, functions_of

ROOT = Path(__file__).resolve().parents[1]


def test_the_old_text_of_every_edit_stands_once_in_its_file() -> None:
    texts = {edit.file: (ROOT / edit.file).read_text("utf-8") for edit in MUTATIONS}
    parsed = {file: ast.dump(ast.parse(text)) for file, text in texts.items()}
    for edit in MUTATIONS:
        text = texts[edit.file]
        assert text.count(edit.old) == 1, edit
        changed = ast.dump(ast.parse(text.replace(edit.old, edit.new)))
        assert changed != parsed[edit.file], f"{edit} changes nothing"
    assert len(set(MUTATIONS)) == len(MUTATIONS)


def test_every_edit_belongs_to_a_row_with_tests() -> None:
    rows = [row for row in [*conformance(), *ROWS] if mutate_conformance.tests_of(row)]
    tested = {number for row in rows for number in row.numbers}
    assert {edit.row for edit in MUTATIONS} <= tested


def test_the_rules_of_our_own_formats_have_tests_and_edits() -> None:
    """Those of docs/conformance.md are looked at by tests/test_docs.py."""
    assert {edit.row for edit in OWN} == {number for row in ROWS for number in row.numbers}
    for row in ROWS:
        for test in mutate_conformance.tests_of(row):
            file, _, function = test.partition("::")
            assert function in functions_of(ROOT / file), test


def test_fast_rows_notice_their_edits() -> None:
    fast = {"B-3-07", "B-3-10"}
    rows = [row for row in conformance() if fast & set(row.numbers)]
    assert len(rows) == 2
    assert not mutate_conformance.mutate(rows)


def test_an_edit_that_is_no_program_does_not_count(monkeypatch) -> None:
    edit = next(edit for edit in MUTATIONS if edit.row == "B-3-07")
    wrong = edit._replace(new=edit.old.replace("ID_SIZE", "no_such_name"))
    monkeypatch.setattr(mutate_conformance, "MUTATIONS", [wrong])
    rows = [row for row in conformance() if "B-3-07" in row.numbers]
    assert mutate_conformance.mutate(rows) == ["B-3-07"]


def test_an_edit_that_changes_nothing_survives(monkeypatch) -> None:
    edit = next(edit for edit in MUTATIONS if edit.row == "B-3-07")
    same = edit._replace(new=edit.old + "  # the same")
    monkeypatch.setattr(mutate_conformance, "MUTATIONS", [same])
    rows = [row for row in conformance() if "B-3-07" in row.numbers]
    assert mutate_conformance.mutate(rows) == ["B-3-07"]
