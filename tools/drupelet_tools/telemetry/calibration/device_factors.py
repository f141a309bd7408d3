"""Calibration files: factors per device that were fitted to measured charge.

schema = 1
[[device]]
device = "a1b2c3d4"          # as the lake has it
board = "esp32"
carrier = "mqtt"
source = "PPK2 series run.csv, 2.0 h, 1,200 windows"
measured_mah = 4.1           # over the same time: what was measured, what the table
modelled_mah = 3.6           # gives, and what the table gives with the factors
calibrated_mah = 4.1
residual_share = 0.04
hours = 2.0
[[device.factor]]
state = 0
factor = { typical = 1.3, low = 1.2, high = 1.4, source = "fitted to measured charge" }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit

from drupelet_host.base.atomic_write import atomic_write
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.calibration.fitting import FACTOR_MAX, FACTOR_MIN, Fit
from drupelet_tools.telemetry.energy.board_table import Board, Current, board_names, load_board
from drupelet_tools.telemetry.energy.figure import SCHEMA, Figure, figure, number, parsed

_NUMBERS = ("measured_mah", "modelled_mah", "calibrated_mah", "residual_share", "hours")


@dataclass(frozen=True, slots=True)
class Calibration:
    """One device's factors by power state, and what they were fitted to."""

    device: str
    board: str
    carrier: str
    source: str
    factors: Mapping[int, Figure]
    measured_mah: float
    modelled_mah: float
    calibrated_mah: float
    residual_share: float
    hours: float

    def apply(self, board: Board) -> Board:
        """The board's table with the measured currents in place of the table's own.

        A fitted state has the interval of its fit; the table's spread is for boards that nobody
        measured.
        """
        currents = dict(board.currents)
        for state, told in self.factors.items():
            fitted = board.current(state, (self.carrier,))
            currents[state] = tuple(
                self._scaled(row, told) if row is fitted else row for row in currents[state]
            )
        return replace(board, currents=currents)

    def _scaled(self, row: Current, factor: Figure) -> Current:
        ma = row.typical_ma
        return Current(
            ma * factor.typical, ma * factor.low, ma * factor.high, f"calibrated: {self.source}",
            row.carriers,
        )  # fmt: skip


def of_fit(fit: Fit, device: str, board: str, carrier: str, source: str) -> Calibration:
    """What a fit gives, without the states that it does not determine."""
    return Calibration(
        device, board, carrier, source,
        {row.state: row.value for row in fit.factors if row.determined},
        fit.measured_mah, fit.modelled_mah, fit.calibrated_mah, fit.residual_share,
        fit.hours,
    )  # fmt: skip


def read_calibrations(path: Path) -> dict[str, Calibration]:
    """The calibrations of a file by device.

    Raises:
        TelemetryError: it cannot be read, or something in it is no calibration.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None
    except UnicodeDecodeError:
        raise TelemetryError(f"{path}: not a text file") from None
    return parsed(text, str(path), _calibrations)


def _calibrations(table: dict[str, Any]) -> dict[str, Calibration]:
    found = {}
    for row in _tables(table, "device"):
        board = str(row["board"])
        if board not in board_names():
            raise ValueError(f"no current table for board {board!r}; have {board_names()}")
        factors = {}
        for line in _tables(row, "factor"):
            told = figure(line["factor"], "factor")
            if not FACTOR_MIN <= told.low <= told.high <= FACTOR_MAX:
                raise ValueError(f"factor: want {FACTOR_MIN:g} to {FACTOR_MAX:g}")
            state = int(number(line, "state", "factor"))
            if state not in load_board(board).currents:
                raise ValueError(f"factor: state {state} is none of {board}")
            factors[state] = told
        name = str(row["device"])
        numbers = {key: number(row, key, f"device {name}") for key in _NUMBERS}
        found[name] = Calibration(
            name, board, str(row["carrier"]), str(row["source"]), factors, **numbers
        )
    return found


def _tables(row: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = row[key]
    if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
        raise TypeError(f"{key}: want tables [[{key}]]")
    return rows


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Put a device's calibration into a file, in place of one of the same device.

    Raises:
        TelemetryError: the file is there and holds no calibrations, or cannot be written.
    """
    all_of = read_calibrations(path) if path.exists() else {}
    all_of[calibration.device] = calibration
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `drupelet telemetry energy calibrate`."))
    document["schema"] = SCHEMA
    devices = tomlkit.aot()
    for one in all_of.values():
        devices.append(_table(one))
    document["device"] = devices
    try:
        atomic_write(path, tomlkit.dumps(document), durable=True)
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot write it: {refused.strerror}") from None


def _table(one: Calibration) -> tomlkit.items.Table:
    table = tomlkit.table()
    for key in ("device", "board", "carrier", "source", *_NUMBERS):
        table[key] = getattr(one, key)
    rows = tomlkit.aot()
    for state, told in sorted(one.factors.items()):
        row = tomlkit.table()
        row["state"] = state
        ends = tomlkit.inline_table()
        ends.update({"typical": told.typical, "low": told.low, "high": told.high,
                     "source": told.source})  # fmt: skip
        row["factor"] = ends
        rows.append(row)
    table["factor"] = rows
    return table


def choose(
    found: Mapping[str, Calibration], path: Path, board: str, device: str | None
) -> Calibration:
    """The calibration of a device, or the only one of a board.

    Raises:
        TelemetryError: there is none, or there are several.
    """
    own = {name: one for name, one in found.items() if one.board == board}
    have = ", ".join(f"{name} ({one.board})" for name, one in found.items())
    if device is not None:
        own = {name: one for name, one in own.items() if name == device}
    if not own:
        what = f"device {device!r}" if device is not None else f"board {board}"
        raise TelemetryError(f"{path}: no calibration of {what}; it has {have or 'none'}")
    if len(own) > 1:
        raise TelemetryError(f"{path}: several of board {board}: {have}; choose with --device")
    return next(iter(own.values()))
