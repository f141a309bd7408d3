"""Puts tables of the paper's simulations into a document.

The document has a pair of lines for each simulation, `<!-- paper 3 -->` and `<!-- paper end -->`.
The text between them is replaced.
"""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from drupelet_tools.sim.paper import NAMES, Answer

_END = "<!-- paper end -->"
_HEAD = (
    "| protocol | window s | seeds | there % | copies | records | bytes | ± | median h | P90 h "
    "| ± | CPU s |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


class RecordError(Exception):
    """The document cannot be read or written, or has no place for a table."""


def record(path: Path, rows: Sequence[Answer], command: str) -> None:
    """Put the rows of each simulation into the document; raises RecordError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from None
    origin = f"`{command}`, {datetime.now(UTC):%Y-%m-%d}, commit {_commit()}"
    for simulation in NAMES:
        mine = [row for row in rows if row.simulation == simulation]
        if mine:
            text = _put(
                text, path, simulation, f"{origin}; {mine[0].people} people.\n\n{table(mine)}"
            )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}") from None


def table(rows: Sequence[Answer]) -> str:
    """The rows of one simulation in Markdown."""
    lines = [_HEAD]
    for row in rows:
        cells: list[object] = [
            row.protocol, row.window_s, row.seeds,
            f"{row.delivered * 100:.2f}", _cell(row.copies), _cell(row.multiplier_records),
            _cell(row.multiplier_bytes), _cell(row.multiplier_bytes_interval),
            _cell(row.latency_median_h), _cell(row.latency_p90_h),
            _cell(row.latency_p90_interval_h), f"{row.cpu_s:.0f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _put(text: str, path: Path, simulation: int, what: str) -> str:
    mark = f"<!-- paper {simulation} -->"
    head, start_mark, rest = text.partition(mark)
    _, end_mark, tail = rest.partition(_END)
    if not start_mark or not end_mark:
        raise RecordError(f"{path} has no lines {mark} and {_END}: add them where the table goes")
    return f"{head}{mark}\n{what}\n{_END}{tail}"


def _commit() -> str:
    """The commit of this code, with a + when files differ from it."""
    try:
        completed = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            capture_output=True, text=True, check=True, cwd=Path(__file__).parent,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return completed.stdout.strip()
