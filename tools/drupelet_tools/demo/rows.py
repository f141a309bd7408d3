"""Turns a CSV or NDJSON file into rows that boards replay: one JSON text a line.

A bad row is reported with its line number, skipped and counted; a file without a single good row
is refused.
"""

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from drupelet.errors import DrupeletError
from drupelet.limits import BODY_SIZE_MAX, DEPENDENCIES_MAX, ID_SIZE

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
    if not path.is_file():
        raise InputError(f"--input {path}: no such file; give a CSV or NDJSON file")
    names = path.name.lower().removesuffix(".gz")
    rows = Rows()
    try:
        with _open(path) as stream:
            found = _csv(stream, rows) if names.endswith(".csv") else _ndjson(stream, rows)
            for text in found:
                rows.texts.append(text)
                if len(rows.texts) == rows_max:
                    break
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, csv.Error) as error:
        reason = "it is not text in UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise InputError(f"--input {path}: {reason}; give a CSV or NDJSON file") from None
    except OSError as error:
        raise InputError(f"--input {path}: {error.strerror or error}; check the file") from None
    if not rows.texts:
        why = rows.complaints[0] if rows.complaints else "it is empty"
        raise InputError(f"--input {path}: no usable row ({why}); give a CSV or NDJSON file")
    return rows


def _open(path: Path) -> TextIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _fit(value: object, line: int, rows: Rows) -> str | None:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    size = len(text.encode())
    if size > ROW_SIZE_MAX:
        rows.refuse(line, f"{size} bytes, more than the {ROW_SIZE_MAX} that a message holds")
        return None
    return text


def _ndjson(stream: TextIO, rows: Rows) -> Iterator[str]:
    line = 0
    while text := stream.readline(_LINE_SIZE_MAX):
        line += 1
        if not text.strip():
            continue
        if "\x00" in text:
            raise EOFError("it holds zero bytes")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            rows.refuse(line, f"not JSON ({error})")
            continue
        if not isinstance(value, dict):
            rows.refuse(line, "not a JSON object")
            continue
        fitted = _fit(value, line, rows)
        if fitted is not None:
            yield fitted


def _csv(stream: TextIO, rows: Rows) -> Iterator[str]:
    reader = csv.reader(stream)
    header = next(reader, None)
    if header is None:
        return
    if not header or len(header) != len(set(header)):
        raise csv.Error("the first line must name the columns, each once")
    for values in reader:
        if not values:
            continue
        if len(values) != len(header):
            rows.refuse(reader.line_num, f"{len(values)} values for {len(header)} columns")
            continue
        fitted = _fit(dict(zip(header, values, strict=True)), reader.line_num, rows)
        if fitted is not None:
            yield fitted
