"""Turns a CSV or NDJSON file into rows that boards replay: one JSON text a line.

A bad row is reported with its line number, skipped and counted; a file without a single good row
is refused.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from drupelet.base.errors import DrupeletError
from drupelet.base.limits import BODY_SIZE_MAX, DEPENDENCIES_MAX, ID_SIZE

# What a body leaves for the payload behind its dependencies.
ROW_SIZE_MAX = BODY_SIZE_MAX - 1 - DEPENDENCIES_MAX * ID_SIZE
# Complaints that are printed one by one; the rest is only counted.
COMPLAINTS_MAX = 10
# A line longer than this is not a row of anything.
_LINE_SIZE_MAX = 4 * BODY_SIZE_MAX


class InputError(DrupeletError):
    """The file given with --input cannot be used."""


@dataclass
class Rows:
    """Good rows, and what was wrong with the others."""

    texts: list[str] = field(default_factory=list)
    bad: int = 0
    complaints: list[str] = field(default_factory=list)

    def refuse(self, line: int, reason: str) -> None:
        """Count a bad row."""
        self.bad += 1
        if len(self.complaints) < COMPLAINTS_MAX:
            self.complaints.append(f"line {line}: {reason}; skipped")


def read_rows(path: Path, rows_max: int) -> Rows:
    """Read up to `rows_max` good rows of a .csv, .ndjson or .jsonl file, plain or gzipped."""
    if path.is_dir():
        raise InputError(f"--input {path}: is a folder; give a CSV or NDJSON file")
    if not path.is_file():
        problem = "not a regular file" if path.exists() else "no such file"
        raise InputError(f"--input {path}: {problem}; give a CSV or NDJSON file")
    names = path.name.lower().removesuffix(".gz")
    rows = Rows()
    try:
        with _open(path) as stream:
            lines = _Lines(stream, rows)
            texts = _csv(lines, rows) if names.endswith(".csv") else _ndjson(lines, rows)
            for text in texts:
                rows.texts.append(text)
                if len(rows.texts) == rows_max:
                    break
    except (gzip.BadGzipFile, zlib.error, EOFError, csv.Error) as error:
        raise InputError(f"--input {path}: {error}; give a CSV or NDJSON file") from None
    except OSError as error:
        raise InputError(f"--input {path}: {error.strerror or error}; check the file") from None
    if not rows.texts:
        why = rows.complaints[0] if rows.complaints else "it is empty"
        raise InputError(f"--input {path}: no usable row ({why}); give a CSV or NDJSON file")
    return rows


def _open(path: Path) -> BinaryIO:
    if path.name.lower().endswith(".gz"):
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


class _Lines:
    """The lines of a file as text, none longer than a row may be; `number` is the last one's."""

    def __init__(self, stream: BinaryIO, rows: Rows) -> None:
        self.number = 0
        self._stream = stream
        self._rows = rows

    def __iter__(self) -> Iterator[str]:
        while line := self._stream.readline(_LINE_SIZE_MAX):
            self.number += 1
            if b"\0" in line:
                raise EOFError("it holds zero bytes, so it is no text")
            if len(line) == _LINE_SIZE_MAX and not line.endswith(b"\n"):
                self._skip()
                self._rows.refuse(self.number, f"longer than {_LINE_SIZE_MAX} bytes")
                continue
            try:
                yield line.decode("utf-8-sig" if self.number == 1 else "utf-8")
            except UnicodeDecodeError:
                self._rows.refuse(self.number, "not text in UTF-8")

    def _skip(self) -> None:
        """Read past the rest of a line, a piece at a time."""
        piece = b"more"
        while piece and not piece.endswith(b"\n"):
            piece = self._stream.readline(_LINE_SIZE_MAX)


def _fit(value: object, line: int, rows: Rows) -> str | None:
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (ValueError, RecursionError) as error:  # half a surrogate pair, or too deep
        rows.refuse(line, f"not JSON in UTF-8 ({error})")
        return None
    if size > ROW_SIZE_MAX:
        rows.refuse(line, f"{size} bytes, more than the {ROW_SIZE_MAX} that a message holds")
        return None
    return text


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _ndjson(lines: _Lines, rows: Rows) -> Iterator[str]:
    for text in lines:
        if not text.strip():
            continue
        try:
            value = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            rows.refuse(lines.number, f"not JSON ({error})")
            continue
        if not isinstance(value, dict):
            rows.refuse(lines.number, "not a JSON object")
            continue
        fitted = _fit(value, lines.number, rows)
        if fitted is not None:
            yield fitted


def _csv(lines: _Lines, rows: Rows) -> Iterator[str]:
    reader = csv.reader(lines)
    header = next(reader, None)
    if header is None:
        return
    if not header or len(header) != len(set(header)):
        raise csv.Error("the first line must name the columns, each once")
    while True:
        start = lines.number + 1
        try:
            values = next(reader, None)
        except csv.Error as error:
            rows.refuse(start, str(error))
            continue
        if values is None:
            return
        if not values:
            continue
        if len(values) != len(header):
            rows.refuse(start, f"{len(values)} values for {len(header)} columns")
            continue
        fitted = _fit(dict(zip(header, values, strict=True)), start, rows)
        if fitted is not None:
            yield fitted
