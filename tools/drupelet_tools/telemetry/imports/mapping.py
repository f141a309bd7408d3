"""Mappings: which field of another system's log says what (`mappings/*.toml`).

A field is named by its path: `decoded.payload.vdd`; a number is a place in a list
(`hotspots.0.spreading`). In a CSV file it is the column's name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from drupelet_host.base.local_path import local_path
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.blackbox.codes import WALL_MS_MAX, is_text
from drupelet_tools.telemetry.energy.airtime import data_rate, symbol_ms
from drupelet_tools.telemetry.energy.board_table import board_names
from drupelet_tools.telemetry.energy.figure import parsed, table_names, table_text

FORMATS = ("ndjson", "csv")
TIME_UNITS = {"ms": 1.0, "s": 1000.0, "us": 0.001, "iso": 0.0}
# Factor to what the battery table holds: mV, percent, degrees Celsius, mAh.
READINGS = {
    "mv": {"mV": 1.0, "V": 1000.0},
    "soc_pct": {"percent": 1.0, "share": 100.0},
    "temperature_c": {"C": 1.0},
    "charge_mah": {"mAh": 1.0, "C": 1 / 3.6, "uAh": 0.001},
}
# What a reading can be in those units; beyond, it is a damaged frame or the wrong unit. A gauge's
# estimate may run over 100 %, a charge counter below 0.
READING_BOUNDS = {
    "mv": (0.0, 100_000.0),
    "soc_pct": (0.0, 150.0),
    "temperature_c": (-100.0, 300.0),
    "charge_mah": (-1e7, 1e7),
}
WALL_MS_MIN = 946_684_800_000  # 2000-01-01: an earlier time is no time
COUNTER_MAX = 2**32 - 1
DEVICE_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured column: its path and the factor to the table's unit."""

    path: str
    factor: float


@dataclass(frozen=True, slots=True)
class FrameMapping:
    """How a log's records become frames."""

    name: str
    label: str
    format: str
    source: str
    device_path: str
    device_constant: str
    device_prefix: str
    device_name_path: str
    carrier: str
    board: str
    sleeps: bool
    time_path: str
    time_unit: str
    time_uncertainty_ms: int
    counter_path: str
    payload_path: str
    overhead_bytes: int
    data_rate_path: str
    late_ms_max: int
    readings: MappingOf[str, Reading]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as another system logged it. `readings` are in the battery table's units."""

    device: str
    name: str
    wall_ms: int
    counter: int
    payload_bytes: int
    data_rate: str
    readings: dict[str, float]


def load_mapping(named: str) -> tuple[FrameMapping, str]:
    """A mapping by the path of its file, or by the name of one that the package brings; and
    its text, which tells it from others.

    Raises:
        TelemetryError: no such file, or something in it is missing or not understood.
    """
    path = local_path(named)
    if not path.exists() and named in table_names(__package__, "mappings"):
        text = table_text(__package__, "mappings", named)
        return parse_mapping(text, f"mappings/{named}.toml"), text
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as refused:
        reason = refused.strerror if isinstance(refused, OSError) else "not a text file"
        have = ", ".join(table_names(__package__, "mappings"))
        raise TelemetryError(
            f"{named}: cannot read the mapping: {reason}; want a .toml file or one of: {have}"
        ) from None
    return parse_mapping(text, named), text


def parse_mapping(text: str, where: str) -> FrameMapping:
    """Parse the text of a mapping; `where` names it in errors."""
    return parsed(text, where, _mapping)


def _mapping(table: dict[str, Any]) -> FrameMapping:
    device, time, frame = (_section(table, name) for name in ("device", "time", "frame"))
    known = {
        "schema",
        "mapping",
        "label",
        "format",
        "source",
        "device",
        "time",
        "frame",
        "battery",
    }
    unknown = set(table) - known
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]!r} is no part of a mapping: {sorted(known)}")
    if table["format"] not in FORMATS:
        raise ValueError(f"format {table['format']!r}: want one of {', '.join(FORMATS)}")
    if ("field" in device) == ("constant" in device):
        raise ValueError("device: want either field or constant")
    board = str(device.get("board", ""))
    if board and board not in board_names():
        raise ValueError(f"no current table for board {board!r}; have {', '.join(board_names())}")
    unit = str(time.get("unit", "ms"))
    if unit not in TIME_UNITS:
        raise ValueError(f"time.unit {unit!r}: want one of {', '.join(TIME_UNITS)}")
    return FrameMapping(
        name=str(table["mapping"]),
        label=str(table.get("label", table["mapping"])),
        format=str(table["format"]),
        source=str(table.get("source", "")),
        device_path=str(device.get("field", "")),
        device_constant=str(device.get("constant", "")),
        device_prefix=str(device.get("prefix", "")),
        device_name_path=str(device.get("name", "")),
        carrier=str(device.get("carrier", "")),
        board=board,
        sleeps=bool(device.get("sleeps", False)),
        time_path=_required(time, "time", "field"),
        time_unit=unit,
        time_uncertainty_ms=_whole(time, "time", "uncertainty_ms", 1000),
        counter_path=_required(frame, "frame", "counter"),
        payload_path=_required(frame, "frame", "payload_bytes"),
        overhead_bytes=_whole(frame, "frame", "overhead_bytes", 0),
        data_rate_path=str(frame.get("data_rate", "")),
        late_ms_max=_whole(frame, "frame", "late_ms_max", 3_600_000),
        readings=_readings(table.get("battery", {})),
    )


def _section(table: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in table:
        raise KeyError(f"[{name}]")
    if not isinstance(table[name], dict):
        raise TypeError(f"[{name}] must be a table")
    return dict(table[name])


def _required(section: dict[str, Any], where: str, key: str) -> str:
    if not isinstance(section.get(key), str) or not section[key]:
        raise KeyError(f"{where}.{key}")
    return str(section[key])


def _whole(section: dict[str, Any], where: str, key: str, default: int) -> int:
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{where}.{key} = {value!r}: want a whole number, 0 or more")
    return value


def _readings(section: object) -> dict[str, Reading]:
    if not isinstance(section, dict):
        raise TypeError("[battery] must be a table")
    readings = {}
    for key, row in section.items():
        if key not in READINGS:
            raise ValueError(f"battery.{key}: want one of {', '.join(READINGS)}")
        if not isinstance(row, dict) or "field" not in row:
            raise KeyError(f"battery.{key}.field")
        unit = row.get("unit", next(iter(READINGS[key])))
        if unit not in READINGS[key]:
            have = ", ".join(READINGS[key])
            raise ValueError(f"battery.{key}.unit {unit!r}: want one of {have}")
        readings[key] = Reading(str(row["field"]), READINGS[key][unit])
    return readings


def frame_of(record: MappingOf[str, Any], mapping: FrameMapping) -> Frame:
    """A record as a frame.

    Raises:
        ValueError: a field that the mapping needs is missing or out of bounds; the text says
            which.
    """
    if mapping.device_constant:
        device = mapping.device_constant
    else:
        device = str(_needed(record, mapping.device_path))
    device = mapping.device_prefix + device.lower()
    if not device.isprintable() or len(device) > DEVICE_CHARACTERS_MAX:
        raise ValueError(f"{mapping.device_path} is no device name")
    name = at(record, mapping.device_name_path) if mapping.device_name_path else None
    if name is not None and not is_text(str(name)):
        raise ValueError(f"{mapping.device_name_path} is no text: {_short(name)}")
    rate = at(record, mapping.data_rate_path) if mapping.data_rate_path else None
    return Frame(
        device=device,
        name=str(name)[:DEVICE_CHARACTERS_MAX] if name is not None else device,
        wall_ms=_wall_ms(_needed(record, mapping.time_path), mapping),
        counter=_bounded(record, mapping.counter_path, COUNTER_MAX),
        payload_bytes=_bounded(record, mapping.payload_path, 65_535),
        data_rate="" if rate is None else _rate(str(rate)),
        readings=_measured(record, mapping),
    )


def _rate(text: str) -> str:
    """A data rate for which the time on air can be told, or none."""
    if text:
        try:
            symbol_ms(*data_rate(text))
        except TelemetryError as error:
            raise ValueError(str(error)) from None
    return text


def at(record: object, path: str) -> object:
    """The value at a path, None where there is none."""
    for part in path.split("."):
        if isinstance(record, MappingOf):
            record = record.get(part)
        elif isinstance(record, list) and part.isdecimal() and int(part) < len(record):
            record = record[int(part)]
        else:
            return None
    return record


def _needed(record: MappingOf[str, Any], path: str) -> object:
    value = at(record, path)
    if value is None or value == "":
        raise ValueError(f"no {path}")
    return value


def _float(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{path} is no number: {_short(value)}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{path} is no number: {_short(value)}") from None
    if not math.isfinite(number):
        raise ValueError(f"{path} is no number: {_short(value)}")
    return number


def _bounded(record: MappingOf[str, Any], path: str, highest: int) -> int:
    number = _float(_needed(record, path), path)
    if number != int(number) or not 0 <= number <= highest:
        raise ValueError(f"{path} = {number:g}: want a whole number from 0 to {highest}")
    return int(number)


def _wall_ms(value: object, mapping: FrameMapping) -> int:
    path = mapping.time_path
    if mapping.time_unit == "iso":
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            raise ValueError(f"{path} is no ISO time: {_short(value)}") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        wall_ms = round(moment.timestamp() * 1000)
    else:
        moment_ms = _float(value, path) * TIME_UNITS[mapping.time_unit]
        # Not rounded before it is known to be finite: the factor can make it infinite.
        wall_ms = round(moment_ms) if math.isfinite(moment_ms) else WALL_MS_MAX + 1
    if not WALL_MS_MIN <= wall_ms <= WALL_MS_MAX:
        raise ValueError(f"{path} = {_short(value)} is no time in {mapping.time_unit}")
    return wall_ms


def _measured(record: MappingOf[str, Any], mapping: FrameMapping) -> dict[str, float]:
    values = {}
    for key, reading in mapping.readings.items():
        value = at(record, reading.path)
        # A record without the reading is common: another kind of frame.
        if value is not None and value != "":
            scaled = _float(value, reading.path) * reading.factor
            low, high = READING_BOUNDS[key]
            if not low <= scaled <= high:  # infinite after the factor, too
                low, high = low / reading.factor, high / reading.factor
                want = f"want {low:g} to {high:g}"
                raise ValueError(f"{reading.path} = {_short(value)} is no {key}: {want}")
            values[key] = scaled
    return values


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"
