"""The forms of a file that an export appends to: CSV, NDJSON, SenML in CBOR, InfluxDB's lines.

The same messages always give the same bytes: that is how an append that a kill cut short is told
from what somebody else wrote.
"""

import base64
import csv
import io
import json
import re
from typing import Any, Protocol

from drupelet_host.export.line_protocol import line
from drupelet_host.export.reading import NUMBER_NAME, Reading, clean

CSV_HEAD = ("id", "time", "group", "author", "via", "text", "base64")
# A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# RFC 8428 section 6: labels of SenML in CBOR.
_BASE_NAME, _BASE_TIME = -2, -3
_NAME, _UNIT, _VALUE, _TEXT, _BOOLEAN, _DATA = 0, 1, 2, 3, 4, 8
# RFC 8428 section 4.5.3: a time below it is relative to now.
_ABSOLUTE_TIME_S = 1 << 28
_NO_SENML_NAME = re.compile(r"[^A-Za-z0-9\-:./_]")
_SENML_UNITS = {"C": "Cel", "°C": "Cel", "%": "%", "V": "V", "A": "A", "m": "m", "mm": "mm",
                "W": "W", "Pa": "Pa", "hPa": "hPa", "lx": "lx", "s": "s", "g": "g", "Hz": "Hz",
                "%RH": "%RH", "mV": "mV", "mA": "mA"}  # fmt: skip


class Format(Protocol):
    """What a file begins with, and the bytes of one message."""

    def head(self) -> bytes:
        """What a new file begins with."""

    def encode(self, reading: Reading) -> bytes:
        """One message."""


class Csv:
    """RFC 4180 in UTF-8, lines end in LF. columns: names of values, a column for each.

    A text that a spreadsheet would take for a formula has an apostrophe before it; a number has
    not.
    """

    def __init__(self, columns: tuple[str, ...] = ()) -> None:
        self._columns = columns

    def head(self) -> bytes:
        """The names of the columns."""
        return _row((*CSV_HEAD, *map(_cell, self._columns)))

    def encode(self, reading: Reading) -> bytes:
        """One line, or several for a text that has some."""
        coded = "" if reading.text is not None else base64.b64encode(reading.body).decode()
        values = [_shown(reading.values.get(name, "")) for name in self._columns]
        words = (reading.author, reading.via, reading.text or "", *values)
        author, via, text, *rest = map(_cell, words)
        return _row((reading.id, reading.time, reading.group, author, via, text, coded, *rest))


def _row(cells: tuple[str, ...]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue().encode()


def _cell(text: str) -> str:
    text = clean(text)
    if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        return "'" + text
    return text


def _shown(value: float | bool | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return value


class NdJson:
    """One JSON object a line, with all that is known of a message."""

    def head(self) -> bytes:
        """Nothing."""
        return b""

    def encode(self, reading: Reading) -> bytes:
        """One line."""
        row: dict[str, Any] = {
            "id": reading.id, "time": reading.time, "timestamp_ms": reading.timestamp_ms,
            "group": reading.group, "author": reading.author, "via": reading.via,
        }  # fmt: skip
        if reading.text is not None:
            row["text"] = reading.text
        else:
            row["base64"] = base64.b64encode(reading.body).decode()
        if reading.values:
            row["values"] = reading.values
        if reading.unit:
            row["unit"] = reading.unit
        return json.dumps(row).encode() + b"\n"  # in ASCII: half of a pair stays what it was


class SenmlCbor:
    """A CBOR sequence (RFC 8742) with one SenML pack (RFC 8428) for each message.

    Base name: the author; base time: seconds since 1970. Records: each value by its name, a text
    without values as `text`, bytes as `body`, and the message's id as data. A time before 1978,
    which SenML would take as relative to now, is the value `clock_s` instead.
    """

    def head(self) -> bytes:
        """Nothing: a sequence has no head."""
        return b""

    def encode(self, reading: Reading) -> bytes:
        """One pack."""
        import cbor2

        seconds = reading.timestamp_ms / 1000
        head: dict[int, Any] = {_BASE_NAME: _senml_name(reading.author) + "/"}
        records: list[dict[int, Any]] = [
            {_NAME: "id", _DATA: bytes.fromhex(reading.id)},
        ]
        if seconds >= _ABSOLUTE_TIME_S:
            head[_BASE_TIME] = seconds
        else:
            records.append({_NAME: "clock_s", _VALUE: seconds})
        for name, value in reading.values.items():
            records.append(_senml_record(_senml_name(name), value))
        if reading.unit and NUMBER_NAME in reading.values:
            records[-1][_UNIT] = _SENML_UNITS.get(reading.unit, reading.unit)
        if reading.text is None:
            records.append({_NAME: "body", _DATA: reading.body})
        elif not reading.values:
            records.append({_NAME: "text", _TEXT: reading.text})
        return bytes(cbor2.dumps([head | records[0], *records[1:]]))


def _senml_record(name: str, value: float | bool | str) -> dict[int, Any]:
    if isinstance(value, bool):
        return {_NAME: name, _BOOLEAN: value}
    if isinstance(value, float):
        return {_NAME: name, _VALUE: value}
    return {_NAME: name, _TEXT: clean(value)}


def _senml_name(text: str) -> str:
    """RFC 8428 section 4.5.1: which characters a name may have, and that it begins with one."""
    name = _NO_SENML_NAME.sub("_", text)
    return name if name[:1].isalnum() else "x" + name


class InfluxLines:
    """InfluxDB's line protocol; docs/export.md says what becomes tag and field."""

    def __init__(self, measurement: str) -> None:
        self._measurement = measurement

    def head(self) -> bytes:
        """Nothing."""
        return b""

    def encode(self, reading: Reading) -> bytes:
        """One line."""
        return line(reading, self._measurement)
