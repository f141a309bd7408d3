"""`drupelet flash checks`: what a person answers is kept, one line each, and asked only once."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from drupelet_tools.flash import checks as sheet
from drupelet_tools.flash.check_list import BOARDS, NUMBER, TEXT, YES_NO, checks_of
from drupelet_tools.flash.command import app
from drupelet_tools.flash.errors import FlashError


def run(file: Path, typed: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["checks", "--out", str(file), *words], input=typed)


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


def test_answers_are_kept_and_the_next_call_goes_on(file: Path) -> None:
    ids = [check.id for check in checks_of("rp2")]
    first = run(file, "Pico, B2\ns\nyes\n")
    assert first.exit_code == 0, first.output
    assert [(row["check"], row["answer"]) for row in rows(file)] == [
        (ids[0], "Pico, B2"),
        (ids[2], True),
    ]
    assert f"2 of {len(ids)} checks of rp2 have an answer" in first.output
    second = run(file, "no\n")
    assert f"2 of {len(ids)}: {ids[1]}" in second.output, "a skipped check is asked again"
    assert f": {ids[0]}\n" not in second.output
    assert "not as expected; kept" in second.output
    assert rows(file)[-1]["as_expected"] is False


def test_all_answered_asks_nothing(file: Path) -> None:
    checks = checks_of("stm32")
    typed = {YES_NO: "y", NUMBER: "0", TEXT: "a board"}
    run(file, "".join(typed[check.kind] + "\n" for check in checks), "--board", "stm32")
    assert len(rows(file)) == len(checks)
    again = run(file, "", "--board", "stm32")
    assert f"{len(checks)} of {len(checks)} checks of stm32" in again.output
    assert "expected:" not in again.output


def test_a_wrong_answer_is_one_line_and_is_asked_again(file: Path) -> None:
    ids = [check.id for check in checks_of("rp2")]
    skips = "s\n" * ids.index("sleep-current")
    done = run(file, skips + "little\nnan\n0.99\n")
    assert "sleep-current: 'little' is no number of mA; give one such as 1.25" in done.output
    assert "sleep-current: 'nan' is no number" in done.output
    (row,) = rows(file)
    assert (row["answer"], row["unit"], row["as_expected"]) == (0.99, "mA", True)
    assert "MicroPython PR 8832" in row["source"]
    maybe = run(file, "s\nmaybe\n")
    assert "flash: 'maybe' is neither yes nor no; 's' skips it" in maybe.output


def test_a_row_says_board_software_and_date(file: Path) -> None:
    typed = iter(["Pico", "yes"])
    noon = datetime(2026, 11, 24, 12, tzinfo=UTC)
    sheet.walk(
        "rp2", checks_of("rp2")[:2], file, lambda _: next(typed), lambda _: None, lambda: noon
    )
    for row in rows(file):
        assert row["board"] == "rp2"
        assert row["date"] == "2026-11-24T12:00:00+00:00"
        assert row["version"] == sheet.source_version() != ""
        assert re.fullmatch("[0-9a-f]{40}|", row["commit"])


def test_ctrl_c_keeps_what_was_answered(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["Pico"])

    def ask() -> str:
        try:
            return next(typed)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("builtins.input", ask)
    done = run(file, "")
    assert done.exit_code == 130
    assert [row["answer"] for row in rows(file)] == ["Pico"]


def test_show_and_json(file: Path) -> None:
    run(file, "Pico\nno\n")
    shown = run(file, "", "--show")
    assert re.search("flash +no +NOT as expected +2", shown.output)
    assert re.search("led +- +- +-", shown.output)
    rows = json.loads(run(file, "", "--show", "--json").stdout)
    assert [row["answer"] for row in rows] == ["Pico", False]
    other = run(file, "", "--show", "--board", "nrf")
    assert "0 of" in other.output, "answers about another board do not count"


@pytest.mark.parametrize("line", ["{", "[1]", '{"board": "rp2", "check": 1}', "[" * 100_000])
def test_a_damaged_file_is_one_line(file: Path, line: str) -> None:
    file.write_text(line + "\n")
    done = run(file, "Pico\n")
    assert isinstance(done.exception, FlashError)
    assert str(done.exception).startswith(f"{file}, line 1: is no answer of a check")
    assert file.read_text() == line + "\n"


def test_what_cannot_be_written_or_is_no_board(tmp_path: Path) -> None:
    nowhere = run(tmp_path / "no" / "file", "Pico\n")
    assert "cannot be written: No such file" in str(nowhere.exception)
    unknown = run(tmp_path / "file", "", "--board", "unix")
    assert "--board unix: has no checks; one of rp2" in str(unknown.exception)


@pytest.mark.parametrize("board", BOARDS)
def test_every_range_has_a_source(board: str) -> None:
    checks = checks_of(board)
    assert len({check.id for check in checks}) == len(checks)
    for check in checks:
        assert (check.low is None) == (check.high is None) == (not check.source)
        assert check.kind == NUMBER or check.low is None
        assert bool(check.unit) == (check.kind == NUMBER)
