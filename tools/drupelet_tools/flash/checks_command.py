"""`drupelet flash checks`: what only real hardware can answer, asked of whoever has it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from drupelet_host.base import output
from drupelet_host.cli.common import AsJson, path, table

_INTERRUPTED = 130
_VERDICTS = {True: "as expected", False: "NOT as expected", None: "-"}


def checks(
    board: Annotated[str, typer.Option("--board", help="rp2, esp32, stm32 or nrf.")] = "rp2",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", parser=path, show_default=False,
            help="Where answers are kept; drupelet-checks-BOARD.jsonl if not given.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Ask nothing; print all checks.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Ask what only a real board can show, and keep the answers.

    's' skips a check, Ctrl-C ends; the next call asks what has no answer yet.
    """
    from drupelet_tools.flash import checks as sheet
    from drupelet_tools.flash.check_list import BOARDS, checks_of
    from drupelet_tools.flash.errors import FlashError

    if board not in BOARDS:
        raise FlashError(f"--board {board}: has no checks; one of {', '.join(BOARDS)}")
    questions = checks_of(board)
    file = out or Path(f"drupelet-checks-{board}.jsonl")
    interrupted = False
    if not show:
        try:
            sheet.walk(board, questions, file, _ask, _say, lambda: datetime.now(UTC))
        except EOFError:
            _say("")  # the input ended: as if the rest were skipped
        except KeyboardInterrupt:
            _say("")
            interrupted = True
    answers = sheet.latest(sheet.read(file))
    rows = [(check, answers.get((board, check.id))) for check in questions]
    if as_json:
        output.print_json([row for _check, row in rows if row is not None])
    else:
        if show:
            table(
                ("check", "answer", "verdict", "date"),
                [(check.id, *_cells(row)) for check, row in rows],
            )
        count = sum(row is not None for _check, row in rows)
        output.line(f"{count} of {len(rows)} checks of {board} have an answer, in {file}")
    if interrupted:
        raise typer.Exit(_INTERRUPTED)


def _cells(row: dict[str, Any] | None) -> tuple[str, str, str]:
    if row is None:
        return "-", "-", "-"
    answer = row["answer"]
    text = {True: "yes", False: "no"}[answer] if isinstance(answer, bool) else str(answer)
    verdict = row.get("as_expected")
    shown = _VERDICTS[verdict if isinstance(verdict, bool) else None]
    return f"{text} {row['unit']}".strip(), shown, row["date"]


def _say(text: str) -> None:
    """To the person, beside standard output, which is for the result."""
    typer.echo(text, err=True)


def _ask(question: str) -> str:
    typer.echo(f"  {question} ", err=True, nl=False)
    return input()
