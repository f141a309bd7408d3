"""Batteries: what they hold at a load and a temperature, how they lose it, what their voltage
says. Tables in `batteries/*.toml`, each figure with its source; all are for one cell.

Available charge at a mean load I and a temperature T, for P cells in parallel:

    Q = capacity * by_load(I / P) * by_temperature(T) * usable * P

Self-discharge takes a share of what is left: `share` per year at 21 C, doubled with every
`doubles_per_c` above. A cell's protection circuit draws a current of its own, which adds to the
load. With a steady sum I of both the battery is empty after

    t = ln(1 + r Q / I) / r,   r = -ln(1 - share) per year
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drupelet_tools.telemetry.energy.figure import (
    Draws,
    Figure,
    figure,
    load_table,
    number,
    parsed,
    table_names,
)

HOURS_PER_YEAR = 8_766.0
REFERENCE_C = 21.0
# A load below that of the table's first row is taken as that row.
CELLS_MAX = 64


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of a factor over a load or a temperature, with the same spread everywhere."""

    at: tuple[float, ...]
    factor: tuple[float, ...]
    spread: Figure
    logarithmic: bool = False

    def value(self, where: float | Draws) -> Draws:
        """The factor there; flat beyond the ends."""
        points: NDArray[np.float64] = np.asarray(self.at)
        place = np.asarray(where, dtype=np.float64)
        if self.logarithmic:
            points, place = np.log(points), np.log(np.maximum(place, 1e-9))
        return np.asarray(np.interp(place, points, np.asarray(self.factor)))


@dataclass(frozen=True, slots=True)
class Battery:
    """A kind of cell. `voltage` is (mV, state of charge 0 to 1), rising; empty if it says
    nothing; `flat` if the voltage tells so little that no state of charge is made of it."""

    name: str
    label: str
    version: str
    source: str
    rechargeable: bool
    nominal_v: float
    capacity_mah: Figure
    usable: Figure
    by_load: Curve
    by_temperature: Curve
    self_discharge_year: Figure
    protection_ma: Figure  # drawn by each cell's protection circuit, all the time
    doubles_per_c: float
    voltage: tuple[tuple[float, float], ...]
    flat: bool
    cut_off_v: Figure | None = None  # to which the capacity is counted
    steady_ma: Figure | None = None  # the most that a cell gives for long
    pulse_ma: Figure | None = None  # the most that it gives for `pulse_s`
    pulse_s: float = 0.0

    def charge_share(self, cell_mv: float | Draws) -> Draws:
        """State of charge, 0 to 1, of a resting cell at this voltage."""
        points = np.asarray(self.voltage)
        return np.asarray(np.interp(cell_mv, points[:, 0], points[:, 1]))


@dataclass(frozen=True, slots=True)
class Held:
    """What a pack holds at a load: charge that can be drawn (mAh), the share of what is left
    that it loses by itself (per hour), and what its protection circuits draw (mA)."""

    mah: Draws
    loss_per_hour: Draws
    protection_ma: Draws

    def hours(self, load_ma: Draws) -> Draws:
        """Time until a steady load has emptied it; see `hours_until_empty`."""
        return hours_until_empty(self.mah, load_ma + self.protection_ma, self.loss_per_hour)


@dataclass(frozen=True, slots=True)
class Pack:
    """Cells as they are used in a device. `rated_mah` (one cell) stands for the table's own."""

    battery: Battery
    series: int = 1
    parallel: int = 1
    rated_mah: float | None = None
    temperature_c: float = REFERENCE_C

    @property
    def nominal_v(self) -> float:
        """Voltage of the whole pack."""
        return self.battery.nominal_v * self.series

    def draw(self, generator: np.random.Generator, load_ma: Draws) -> Held:
        """What it holds at each load, every figure drawn from its spread."""
        cell, count = self.battery, len(load_ma)
        capacity = cell.capacity_mah.draw(generator, count)
        if self.rated_mah is not None:
            capacity *= self.rated_mah / cell.capacity_mah.typical
        held = capacity * cell.by_load.value(load_ma / self.parallel)
        held *= cell.by_load.spread.draw(generator, count)
        held *= cell.by_temperature.value(self.temperature_c)
        held *= cell.by_temperature.spread.draw(generator, count)
        held *= np.minimum(cell.usable.draw(generator, count), 1.0) * self.parallel
        return Held(
            held,
            self._rate(cell.self_discharge_year.draw(generator, count)),
            cell.protection_ma.draw(generator, count) * self.parallel,
        )

    def typical(self, load_ma: float) -> Held:
        """The same with every figure at its typical value."""
        cell = self.battery
        capacity = self.rated_mah or cell.capacity_mah.typical
        held = capacity * float(cell.by_load.value(load_ma / self.parallel))
        held *= float(cell.by_temperature.value(self.temperature_c))
        held *= cell.usable.typical * self.parallel
        share = np.asarray([cell.self_discharge_year.typical])
        protection = np.asarray([cell.protection_ma.typical * self.parallel])
        return Held(np.asarray([held]), self._rate(share), protection)

    def _rate(self, share_year: Draws) -> Draws:
        warmer = 2 ** ((self.temperature_c - REFERENCE_C) / self.battery.doubles_per_c)
        rate: Draws = -np.log1p(-np.minimum(share_year, 0.999)) / HOURS_PER_YEAR * warmer
        return rate


def hours_until_empty(held_mah: Draws, load_ma: Draws, rate_per_hour: Draws) -> Draws:
    """Time until a steady load and self-discharge have emptied a battery, hours.

    Without a load and without self-discharge it is infinite.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = held_mah / load_ma
        decayed = np.log1p(rate_per_hour * plain) / rate_per_hour
    hours: Draws = np.where(rate_per_hour > 0, decayed, plain)
    return hours


def battery_names() -> list[str]:
    """Names of the batteries that have a table."""
    return list(table_names(__package__, "batteries"))


@lru_cache(maxsize=32)
def load_battery(name: str) -> Battery:
    """Read a battery's table.

    Raises:
        TelemetryError: no such battery, or a figure in its table is missing or not a number.
    """
    return load_table(__package__, "batteries", "table for battery", name, _battery)


def parse_battery(text: str, where: str) -> Battery:
    """Parse the text of a battery table; `where` names it in errors."""
    return parsed(text, where, _battery)


def _battery(table: dict[str, Any]) -> Battery:
    voltage = tuple((mv, share) for mv, share in _points(table.get("voltage", []), "voltage"))
    usable = figure(table["usable"], "usable")
    doubles = number(table, "doubles_per_c", "battery")
    if usable.high > 1 or doubles <= 0:
        raise ValueError("need usable at most 1 and doubles_per_c above 0")
    return Battery(
        name=str(table["battery"]),
        label=str(table["label"]),
        version=str(table["version"]),
        source=str(table["source"]),
        rechargeable=bool(table["rechargeable"]),
        nominal_v=number(table, "nominal_v", "battery"),
        capacity_mah=figure(table["capacity"], "capacity", "mAh"),
        usable=usable,
        by_load=_curve(table["by_load"], "by_load", logarithmic=True),
        by_temperature=_curve(table["by_temperature"], "by_temperature"),
        self_discharge_year=figure(table["self_discharge_year"], "self_discharge_year", "share"),
        protection_ma=figure(table["protection"], "protection", "mA")
        if "protection" in table
        else Figure(0.0, 0.0, 0.0, "no protection circuit"),
        doubles_per_c=doubles,
        voltage=voltage,
        flat=bool(table.get("flat", not voltage)),
        cut_off_v=_optional(table, "cut_off", "V"),
        steady_ma=_optional(table, "steady", "mA"),
        pulse_ma=_optional(table, "pulse", "mA"),
        pulse_s=number(table["pulse"], "seconds", "pulse") if "pulse" in table else 0.0,
    )


def _optional(table: dict[str, Any], key: str, unit: str) -> Figure | None:
    return figure(table[key], key, unit) if key in table else None


def _curve(row: dict[str, Any], what: str, *, logarithmic: bool = False) -> Curve:
    points = _points(row["points"], what)
    if logarithmic and points[0][0] <= 0:
        raise ValueError(f"{what}: loads must be above 0")
    return Curve(
        at=tuple(place for place, _ in points),
        factor=tuple(value for _, value in points),
        spread=figure(row["spread"], f"{what} spread"),
        logarithmic=logarithmic,
    )


def _points(rows: Sequence[Any], what: str) -> list[tuple[float, float]]:
    points = []
    for row in rows:
        if not isinstance(row, list) or len(row) != 2:
            raise TypeError(f"{what}: want [place, value] pairs, not {row!r}")
        points.append((float(row[0]), float(row[1])))
    if what != "voltage" and not points:
        raise ValueError(f"{what}: no points")
    if any(later[0] <= earlier[0] for earlier, later in pairwise(points)):
        raise ValueError(f"{what}: places must rise")
    if any(value < 0 for _, value in points):
        raise ValueError(f"{what}: values must not be below 0")
    return points
