"""What an owner can tell about a fleet: batteries, temperatures, schedules (`fleet.toml`).

    [default]
    battery = "18650"        # a table's name, or a file like batteries/18650.toml
    series = 1
    parallel = 1
    rated_mah = 2600         # of one cell, instead of the table's
    temperature_c = 21
    period_s = 900           # how often it should be heard of
    board = "esp32c3"        # where neither the device nor names.json tells it

    [device."a1b2c3d4"]      # by id or by name; what it does not say is the default's
    temperature_c = -5
    firmware = "pump 7"      # what you call it, in front of the version that its log says
    latitude = 46.5775       # degrees, WGS 84, for the map
    longitude = 7.9859

A device with `battery = "none"` runs on a cable.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.blackbox.codes import as_text
from drupelet_tools.telemetry.calibration.device_factors import Calibration
from drupelet_tools.telemetry.energy.batteries import (
    CELLS_MAX,
    Battery,
    Pack,
    load_battery,
    parse_battery,
)
from drupelet_tools.telemetry.energy.board_table import board_names

NO_BATTERY = "none"
KEYS = ("battery", "series", "parallel", "rated_mah", "temperature_c", "period_s", "board",
        "firmware", "latitude", "longitude")  # fmt: skip
PLACE_KEYS = ("latitude", "longitude")
FIRMWARE_CHARS_MAX = 40
TEMPERATURES_C = (-60.0, 100.0)


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """What is known of one device beforehand."""

    pack: Pack | None = None
    period_ms: float | None = None
    board: str = ""
    firmware: str = ""
    position: tuple[float, float] | None = None  # latitude and longitude in degrees, WGS 84


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The default and what single devices have of their own, by name or id.

    `assumed`: nobody told the battery; it stands for a question that the owner can ask.
    `calibrations` are those of a file of `telemetry energy calibrate`, by name or id.
    """

    default: DevicePlan = DevicePlan()
    devices: Mapping[str, DevicePlan] = field(default_factory=dict)
    assumed: bool = False
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)

    def calibration_of(self, device: str, name: str) -> Calibration | None:
        """What was fitted to a device's measured charge; its id goes before its name."""
        return self.calibrations.get(device) or self.calibrations.get(name)

    def of(self, device: str, name: str) -> DevicePlan:
        """The plan of a device; its id goes before its name."""
        return self.devices.get(device) or self.devices.get(name) or self.default


def load_plan(path: Path) -> FleetPlan:
    """Read a fleet file.

    Raises:
        TelemetryError: it cannot be read, or something in it is not understood.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as refused:
        told = refused.strerror if isinstance(refused, OSError) else "not a text file"
        raise TelemetryError(f"{path}: cannot read it: {told}") from None
    return parse_plan(text, str(path), path.parent)


def parse_plan(text: str, where: str, folder: Path = Path()) -> FleetPlan:
    """Parse the text of a fleet file; battery files in it lie relative to `folder`."""
    try:
        table = tomllib.loads(text)
    except ValueError as broken:  # also a number of thousands of digits
        raise TelemetryError(f"{where}: not TOML: {broken}") from None
    unknown = set(table) - {"default", "device"}
    if unknown:
        name = sorted(unknown)[0]
        raise TelemetryError(f"{where}: {name!r} is not known; want [default] and [device.NAME]")
    default, own = table.get("default", {}), table.get("device", {})
    if not isinstance(default, dict) or not isinstance(own, dict):
        raise TelemetryError(f"{where}: default and device must be tables")
    try:
        if named := next((key for key in PLACE_KEYS if key in default), ""):
            raise ValueError(f"{named} is a device's own: put it under [device.NAME]")
        fleet_default = _plan(default, folder)
    except (TypeError, ValueError) as broken:
        raise TelemetryError(f"{where}: [default]: {broken}") from None
    plans = {}
    for name, row in own.items():
        if not isinstance(row, dict):
            raise TelemetryError(f"{where}: device.{name}: want a table, [device.{name}]")
        try:
            plans[str(name)] = _plan({**default, **row}, folder)
        except (TypeError, ValueError) as broken:
            raise TelemetryError(f"{where}: [device.{name}]: {broken}") from None
    return FleetPlan(fleet_default, plans)


def battery_plan(named: str, *, assumed: bool = False) -> FleetPlan:
    """A fleet whose devices all run on one pack of this battery at room temperature."""
    return FleetPlan(_plan({"battery": named}, Path()), assumed=assumed)


def _plan(row: Mapping[str, Any], folder: Path) -> DevicePlan:
    unknown = set(row) - set(KEYS)
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]!r} is not known; want one of {', '.join(KEYS)}")
    board = str(row.get("board", ""))
    if board and board not in board_names():
        raise ValueError(f"no current table for board {board!r}; have {board_names()}")
    period = _number(row, "period_s", 0.0, 1e9) if "period_s" in row else 0.0
    named = str(row.get("battery", NO_BATTERY))
    pack = None
    if named != NO_BATTERY:
        rated = _number(row, "rated_mah", 1.0, 1e7) if "rated_mah" in row else None
        pack = Pack(
            _battery(named, folder),
            series=_cells(row, "series"),
            parallel=_cells(row, "parallel"),
            rated_mah=rated,
            temperature_c=_number(
                {"temperature_c": 21.0, **row}, "temperature_c", *TEMPERATURES_C
            ),
        )
    return DevicePlan(pack, period * 1000 or None, board, _firmware(row), _position(row))


def _position(row: Mapping[str, Any]) -> tuple[float, float] | None:
    missing = [key for key in PLACE_KEYS if key not in row]
    if len(missing) == 1:
        raise ValueError(f"a position needs {missing[0]}, too")
    if missing:
        return None
    return _number(row, "latitude", -90.0, 90.0), _number(row, "longitude", -180.0, 180.0)


def _firmware(row: Mapping[str, Any]) -> str:
    version = row.get("firmware", "")
    if not isinstance(version, str) or len(version) > FIRMWARE_CHARS_MAX:
        raise ValueError(
            f"firmware = {str(version)[:40]!r}: want a text of at most {FIRMWARE_CHARS_MAX}"
            ' characters, like "0.1.0"'
        )
    return as_text(version)


def _battery(named: str, folder: Path) -> Battery:
    if not named.endswith(".toml"):
        return load_battery(named)
    path = folder / named
    try:
        return parse_battery(path.read_text("utf-8"), str(path))
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None


def _number(row: Mapping[str, Any], key: str, low: float, high: float) -> float:
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{key} = {value!r}: want a number from {low:g} to {high:g}")
    return float(value)


def _cells(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key, 1)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= CELLS_MAX:
        raise ValueError(f"{key} = {value!r}: want a whole number from 1 to {CELLS_MAX}")
    return value
