"""Reads other systems' logs line by line: NDJSON and CSV, plain or gzip.

A line that cannot be used is told with its number and reason; whether that ends the import is
the caller's choice.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.imports.mapping import Frame, FrameMapping, frame_of

LINE_BYTES_MAX = 1 << 20  # a frame's record is some kilobytes; more is another kind of file
FRAMES_MAX = 20_000_000  # held in memory at once, some 300 bytes each
GZIP_MAGIC = b"\x1f\x8b"
NO_TEXT = "not UTF-8 text"


@dataclass(frozen=True, slots=True)
class Unusable:
    """A line that is no frame: where and why."""

    file: str
    line: int
    offset: int
    reason: str


Advance = Callable[[int], None]


def read_frames(
    path: Path, mapping: FrameMapping, advance: Advance | None = None
) -> tuple[list[Frame], list[Unusable]]:
    """Frames of one file in its order, and the lines that are none.

    `advance` is called with the bytes of the file that were read since the last call.

    Raises:
        TelemetryError: the file cannot be read, is no such file, or is cut.
    """
    frames: list[Frame] = []
    unusable: list[Unusable] = []
    records = _csv if mapping.format == "csv" else _ndjson
    for number, offset, record in records(path, _lines(path, advance)):
        if isinstance(record, str):
            unusable.append(Unusable(str(path), number, offset, record))
            continue
        try:
            frames.append(frame_of(record, mapping))
        except ValueError as told:
            unusable.append(Unusable(str(path), number, offset, str(told)))
        if len(frames) > FRAMES_MAX:
            raise TelemetryError(f"{path}: more than {FRAMES_MAX:,} frames; split the file")
    return frames, unusable


Record = tuple[int, int, "dict[str, Any] | str"]


Line = tuple[int, int, "str | None"]


def _lines(path: Path, advance: Advance | None) -> Iterator[Line]:
    """(number from 1, offset in the text, line) of the lines that hold something; None for a
    line that is no UTF-8. The mark that some editors put before a text is left out."""
    offset = number = told = 0
    try:
        with open(path, "rb") as file, closing(_opened(file)) as text:
            while line := text.readline(LINE_BYTES_MAX + 1):
                number += 1
                if len(line) > LINE_BYTES_MAX:
                    raise TelemetryError(
                        f"{path}: line {number} is longer than {LINE_BYTES_MAX:,} bytes;"
                        " want one record per line"
                    )
                if line.removeprefix(codecs.BOM_UTF8).strip():
                    yield number, offset, _text(line)
                offset += len(line)
                if advance is not None and file.tell() - told >= 1 << 16:
                    advance(file.tell() - told)
                    told = file.tell()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise TelemetryError(
            f"{path}: the gzip file is cut or damaged after line {number}; fetch it again"
        ) from None
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None


def _text(line: bytes) -> str | None:
    try:
        return line.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None


def _opened(file: IO[bytes]) -> IO[bytes]:
    magic = file.read(len(GZIP_MAGIC))
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if magic == GZIP_MAGIC else file  # type: ignore[return-value]


def _ndjson(_path: Path, lines: Iterator[Line]) -> Iterator[Record]:
    for number, offset, line in lines:
        yield number, offset, NO_TEXT if line is None else _json(line)


def _json(line: str) -> dict[str, Any] | str:
    """The record of a line, or why there is none."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as broken:
        return f"not JSON: {broken.msg}"
    except RecursionError:
        return "not JSON: too deep"
    except ValueError:  # Python takes no longer ones, for the time that they cost
        return "a number in it has thousands of digits"
    return record if isinstance(record, dict) else "not a JSON object"


def _csv(path: Path, lines: Iterator[Line]) -> Iterator[Record]:
    """One record per line, so a quote that is not closed is that line's, not the rest's."""
    heads: list[str] = []
    for number, offset, line in lines:
        if line is None:
            if not heads:
                raise TelemetryError(f"{path}: line {number}: {NO_TEXT}; mend the head")
            yield number, offset, NO_TEXT
            continue
        try:
            cells = next(csv.reader([line], strict=True))
        except csv.Error as broken:
            reason = f"not CSV: {broken}"
            if line.count('"') % 2:
                reason = "a quote that opens here is never closed"
            if not heads:
                raise TelemetryError(f"{path}: line {number}: {reason}; mend the head") from None
            yield number, offset, reason
            continue
        if not heads:
            heads = cells
            if len(set(heads)) != len(heads):
                raise TelemetryError(f"{path}: two columns of one name; the head must tell apart")
        elif len(cells) != len(heads):
            yield number, offset, f"{len(cells)} cells under {len(heads)} heads"
        else:
            yield number, offset, dict(zip(heads, cells, strict=True))
