"""Measured charge: series that instruments and fuel gauges write as CSV, told by their header.

A series becomes charge drawn since its first row, at the times of its rows. Instruments give
currents (each holds until the next row); a gauge gives what is left, so its fall is the charge.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.energy.figure import Draws

MS_PER_HOUR = 3_600_000
ROWS_MAX = 50_000_000
HEAD_LINES = 20  # of comments before a header


@dataclass(frozen=True, slots=True)
class Layout:
    """A known header: the first words of two columns, and what they are in ms and mA or mAh."""

    name: str
    header: str  # as the instrument writes it; further columns may follow
    time_ms: float  # ms of the unit of the time column; 0: ISO time
    value: float  # mA or mAh of the unit of the value column
    is_charge: bool = False

    @property
    def columns(self) -> tuple[str, str]:
        """Names of the time column and of the value column."""
        names = _names(self.header)
        return names[0], names[-1]


@dataclass(frozen=True, slots=True)
class Series:
    """Charge drawn since the first row, mAh, at these times, ms; increasing."""

    layout: str
    time_ms: Draws
    drawn_mah: Draws
    is_gauge: bool = False
    is_wall: bool = False  # times are Unix times

    @property
    def hours(self) -> float:
        """Length of the series."""
        return float(self.time_ms[-1] - self.time_ms[0]) / MS_PER_HOUR


LAYOUTS = (
    Layout("PPK2", "Timestamp(ms),Current(uA)", 1.0, 0.001),
    Layout("Joulescope", "#time (s),current (A)", 1000.0, 1000.0),
    Layout("INA219", "Timestamp[ms],BusV[V],ShuntV[mV],LoadV[V],Current[mA]", 1.0, 1.0),
    Layout("current in mA", "time_ms,current_ma", 1.0, 1.0),
    Layout("current in mA", "time_s,current_ma", 1000.0, 1.0),
    Layout("fuel gauge", "time_s,charge_mah", 1000.0, 1.0, is_charge=True),
    Layout("fuel gauge", "time_ms,charge_mah", 1.0, 1.0, is_charge=True),
    Layout("fuel gauge", "time,charge_mah", 0.0, 1.0, is_charge=True),
)


def known_headers() -> str:
    """The headers in words, for errors and help."""
    return "; ".join(f"{layout.header} ({layout.name})" for layout in LAYOUTS)


def read_series(path: Path) -> Series:
    """Read a measured series.

    Raises:
        TelemetryError: no such file, a header that is not known, or a row that is no number.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _series(path, csv.reader(file))
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise TelemetryError(f"{path}: not a CSV text") from None


def _series(path: Path, rows: Iterator[list[str]]) -> Series:
    layout, time_at, value_at, head = _find_layout(path, rows)
    parse_time: Callable[[str], float] = float if layout.time_ms else _iso_ms
    scale = layout.time_ms or 1.0
    times: list[float] = []
    values: list[float] = []
    for line, row in enumerate(rows, head + 1):
        if not row or row == [""]:
            continue
        try:
            times.append(parse_time(row[time_at]) * scale)
            values.append(float(row[value_at]) * layout.value)
        except (ValueError, IndexError):
            raise TelemetryError(
                f"{path}, line {line}: want a time and a number as in {layout.header}"
            ) from None
        if len(times) > ROWS_MAX:
            raise TelemetryError(f"{path}: more than {ROWS_MAX:,} rows; export fewer a second")
    time, value = np.asarray(times), np.asarray(values)
    if len(time) < 2:
        raise TelemetryError(f"{path}: a series has two rows or more")
    if not (np.isfinite(time).all() and np.isfinite(value).all()):
        raise TelemetryError(f"{path}: a value that is not a finite number")
    steps = np.diff(time)
    if (steps < 0).any() or time[-1] == time[0]:
        at = int(np.argmax(steps < 0)) + 2
        raise TelemetryError(f"{path}: time goes back at row {at} of the series; sort the rows")
    if layout.is_charge:
        drawn = value[0] - value
        if drawn[-1] <= 0:
            raise TelemetryError(f"{path}: the charge does not fall: the battery was charged")
    else:
        drawn = np.concatenate(([0.0], np.cumsum(value[:-1] * steps) / MS_PER_HOUR))
    return Series(layout.name, time, drawn, layout.is_charge, not layout.time_ms)


def _find_layout(path: Path, rows: Iterator[list[str]]) -> tuple[Layout, int, int, int]:
    seen = ""
    for line, row in enumerate(rows, 1):
        names = _names(",".join(row))
        for layout in LAYOUTS:
            time, value = layout.columns
            if time in names and value in names:
                return layout, names.index(time), names.index(value), line
        seen = seen or ",".join(row)
        if line >= HEAD_LINES:
            break
    raise TelemetryError(f"{path}: header {seen[:60]!r} is not known; known are {known_headers()}")


def _names(header: str) -> list[str]:
    return [name.strip().lower() for name in header.split(",")]


def _iso_ms(text: str) -> float:
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() * 1000
