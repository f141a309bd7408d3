"""The edits that make rows of docs/conformance.md untrue can be made, and are noticed."""

import mutate_conformance
from conformance_mutations import MUTATIONS
from test_docs import ROOT, conformance


def test_the_old_text_of_every_edit_stands_once_in_its_file() -> None:
    for edit in MUTATIONS:
        assert (ROOT / edit.file).read_text("utf-8").count(edit.old) == 1, edit
        assert edit.old != edit.new


def test_every_edit_belongs_to_a_row_with_tests() -> None:
    tested = {n for row in conformance() if mutate_conformance.tests_of(row) for n in row.numbers}
    assert {edit.row for edit in MUTATIONS} <= tested


def test_fast_rows_notice_their_edits() -> None:
    fast = {"B-3-07", "B-3-10"}
    rows = [row for row in conformance() if fast & set(row.numbers)]
    assert len(rows) == 2
    assert not mutate_conformance.mutate(rows)


def test_an_edit_that_changes_nothing_survives(monkeypatch) -> None:
    edit = next(edit for edit in MUTATIONS if edit.row == "B-3-07")
    same = edit._replace(new=edit.old + "  # the same")
    monkeypatch.setattr(mutate_conformance, "MUTATIONS", [same])
    rows = [row for row in conformance() if "B-3-07" in row.numbers]
    assert mutate_conformance.mutate(rows) == ["B-3-07"]
