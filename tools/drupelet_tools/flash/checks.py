"""The answers of whoever has a real board: asked one by one, kept in a file of JSON lines.

The file has one line for each answer. A check that was skipped has none, so the next walk asks
it again; of two lines about one check the later counts.
"""

import json
import math
import os
import subprocess
from collections.abc import Callable, Iterable
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from drupelet_tools.flash.check_list import NUMBER, YES_NO, Check
from drupelet_tools.flash.errors import FlashError

SKIP = "s"
# An answer is a figure or a line, not a report.
ANSWER_CHARACTERS_MAX = 200
_GIT_S = 10
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "board": str, "check": str, "answer": (bool, float, int, str), "unit": str, "date": str,
}  # fmt: skip
_WORDS = {"y": True, "yes": True, "n": False, "no": False}

Ask = Callable[[str], str]
Say = Callable[[str], None]


def read(path: Path) -> list[dict[str, Any]]:
    """The answers in a file, none if it is not there; raises FlashError."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise FlashError(f"{path}: is no text; name another file with --out") from None
    except OSError as error:
        raise FlashError(f"{path}: cannot be read: {error.strerror}") from None
    return [_row(path, number, line) for number, line in enumerate(text.splitlines(), 1)]


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or not all(
        isinstance(row.get(key), kind) for key, kind in _FIELDS.items()
    ):
        raise FlashError(
            f"{path}, line {number}: is no answer of a check; delete that line, or name another"
            " file with --out"
        )
    return row


def latest(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The row that counts, by board and check."""
    return {(row["board"], row["check"]): row for row in rows}


def source_commit() -> str:
    """The commit of the clone that this command runs from; "" outside of one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, timeout=_GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed.stdout.strip() if completed.returncode == 0 else ""


def source_version() -> str:
    """The version of the package that this command is part of."""
    try:
        return version("drupelet")
    except PackageNotFoundError:
        return ""


def parse(check: Check, text: str) -> bool | float | str:
    """What was typed, as the check's kind; raises FlashError."""
    if len(text) > ANSWER_CHARACTERS_MAX:
        raise FlashError(f"{check.id}: at most {ANSWER_CHARACTERS_MAX} characters")
    if check.kind == YES_NO:
        if text.lower() not in _WORDS:
            raise FlashError(f"{check.id}: {text!r} is neither yes nor no; '{SKIP}' skips it")
        return _WORDS[text.lower()]
    if check.kind == NUMBER:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise FlashError(
                f"{check.id}: {text!r} is no number of {check.unit}; give one such as 1.25, or"
                f" '{SKIP}' to skip it"
            )
        return number
    if not text:
        raise FlashError(f"{check.id}: no answer; '{SKIP}' skips it")
    return text


def walk(
    board: str, checks: list[Check], path: Path, ask: Ask, say: Say, now: Callable[[], datetime]
) -> None:
    """Ask every check that has no answer yet; each answer is in the file before the next one."""
    answered = latest(read(path))
    software = {"version": source_version(), "commit": source_commit()}
    for number, check in enumerate(checks, 1):
        if (board, check.id) in answered:
            continue
        say(f"{number} of {len(checks)}: {check.id}\n  {check.do}\n  {expected(check)}")
        answer = _ask(check, ask, say)
        if answer is None:
            continue
        row = {
            "board": board, "check": check.id, "answer": answer, "unit": check.unit,
            "as_expected": check.fits(answer), "low": check.low, "high": check.high,
            "source": check.source, **software, "date": now().isoformat(timespec="seconds"),
        }  # fmt: skip
        _append(path, row)
        if row["as_expected"] is False:
            say("  not as expected; kept")


def _ask(check: Check, ask: Ask, say: Say) -> bool | float | str | None:
    """The answer; None to skip. Ends with the input (EOFError) or Ctrl-C."""
    unit = f" [{check.unit}]" if check.unit else " [yes/no]" if check.kind == YES_NO else ""
    while True:
        text = ask(f"{check.measure}{unit}").strip()
        if text == SKIP:
            return None
        try:
            return parse(check, text)
        except FlashError as error:
            say(str(error))


def _append(path: Path, row: dict[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FlashError(f"{path}: cannot be written: {error.strerror}") from None


def expected(check: Check) -> str:
    """One line: the range, and where it comes from."""
    if check.kind == YES_NO:
        return "expected: yes"
    if check.low is None or check.high is None:
        return "expected: no figure yet" if check.kind == NUMBER else "for the record"
    span = f"{check.low:g}" if check.low == check.high else f"{check.low:g} to {check.high:g}"
    return f"expected: {span} {check.unit} ({check.source})"
