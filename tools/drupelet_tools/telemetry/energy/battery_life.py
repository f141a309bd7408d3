"""How long a battery lasts: the modelled load of a device against its pack, with an interval.

The interval is the middle 90 % of a Monte-Carlo run: every figure of the board's and the
battery's tables is drawn from its spread, independently of the others. The seed comes from the
device's name, so the same lake gives the same report.

The load that decides an alkaline cell's capacity lies between the mean current and the current
at which the mean coulomb leaves (short loads of a hundred milliamperes recover in between);
each draw takes a place between the two.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from drupelet_tools.telemetry.energy.batteries import HOURS_PER_YEAR, Held, Pack, hours_until_empty
from drupelet_tools.telemetry.energy.board_table import (
    MS_PER_HOUR,
    UC_PER_MAH,
    Board,
    Current,
)
from drupelet_tools.telemetry.energy.figure import Draws

DRAWS = 2_000
ENDS = (5.0, 50.0, 95.0)  # percentiles that are shown
HOURS_PER_DAY = 24.0
YEARS_MAX = 100.0  # longer lives say only that the load is next to nothing


@dataclass(frozen=True, slots=True)
class Use:
    """What one device did: ms in each power state and operations by name."""

    device: str
    board: Board
    carriers: tuple[str, ...]
    state_ms: Mapping[int, int]
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def hours(self) -> float:
        """Length of the log; time in an unknown state is left out with its charge."""
        return sum(ms for state, ms in self.known()) / MS_PER_HOUR

    def known(self) -> list[tuple[int, int]]:
        """(state, ms) of the states that the board's table has a figure for."""
        rows = sorted(self.state_ms.items())
        return [(s, ms) for s, ms in rows if self.board.current(s, self.carriers) is not None]

    def rows(self) -> list[tuple[int, Current]]:
        """(ms, current) of those states, the board's leakage over all of it if it is known."""
        found = []
        for state, ms in self.known():
            current = self.board.current(state, self.carriers)
            assert current is not None  # known() left those out
            found.append((ms, current))
        if not self.board.leakage.unknown:
            found.append((sum(ms for ms, _ in found), self.board.leakage))
        return found


@dataclass(frozen=True, slots=True)
class Spread:
    """A modelled value at the tables' typical figures, and the middle 90 % of the draws."""

    typical: float
    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Life:
    """Modelled. `mean_ma` is drawn from the battery, supply losses included."""

    days: Spread
    mah_per_day: Spread
    mean_ma: Spread
    capacity_mah: float
    # Of the capacity, over the life, at typical figures: what cells and protection lose.
    self_discharge_share: float


@dataclass(frozen=True, slots=True)
class Loads:
    """What a device draws from its battery, mA: the mean, and the current at which the mean
    coulomb leaves; drawn from the tables' spreads, and at their typical figures."""

    mean: Draws
    pulse: Draws
    typical_mean: float
    typical_pulse: float


def life(use: Use, pack: Pack, draws: int = DRAWS, seed: int = 0) -> Life | None:
    """Modelled life of a fresh pack at the use on record; None without any time on record."""
    if use.hours <= 0:
        return None
    generator = generator_of(use.device, seed)
    return life_of(Loads(*_loads(use, pack, generator, draws), *_typical_loads(use, pack)),
                   pack, generator)  # fmt: skip


def generator_of(device: str, seed: int) -> np.random.Generator:
    """The source of the draws: the same for the same device and seed."""
    return np.random.default_rng([seed, zlib.crc32(device.encode())])


def life_of(
    loads: Loads, pack: Pack, generator: np.random.Generator, solar_ma: float = 0.0
) -> Life:
    """Modelled life of a fresh pack at these loads, with what a panel puts in on average.

    Where the panel gives all that is drawn, the life is YEARS_MAX.
    """
    place = generator.uniform(0.0, 1.0, len(loads.mean))
    load = loads.mean + (np.maximum(loads.pulse, loads.mean) - loads.mean) * place
    hours = _hours(pack.draw(generator, load), loads.mean, solar_ma)
    mean = loads.typical_mean
    held = pack.typical((mean + max(loads.typical_pulse, mean)) / 2)
    capacity = float(held.mah[0])
    typical_hours = float(_hours(held, np.array([mean]), solar_ma)[0])
    drawn = max(0.0, mean - solar_ma) * typical_hours
    return Life(
        days=spread(typical_hours / HOURS_PER_DAY, hours / HOURS_PER_DAY),
        mah_per_day=spread(mean * HOURS_PER_DAY, loads.mean * HOURS_PER_DAY),
        mean_ma=spread(mean, loads.mean),
        capacity_mah=capacity,
        self_discharge_share=max(0.0, 1 - drawn / capacity) if capacity else 0.0,
    )


def _hours(held: Held, mean_ma: Draws, solar_ma: float) -> Draws:
    """Hours until empty. What a cell loses shrinks with what is left, so a panel that gives what
    device and protection draw keeps it up for good."""
    net = mean_ma + held.protection_ma - solar_ma
    longest = YEARS_MAX * HOURS_PER_YEAR
    hours = hours_until_empty(held.mah, np.maximum(net, 1e-12), held.loss_per_hour)
    found: Draws = np.where(net > 0, np.minimum(hours, longest), longest)
    return found


def spread(typical: float, drawn: Draws) -> Spread:
    """A value at typical figures with the middle 90 % of its draws."""
    low, median, high = (float(end) for end in np.percentile(drawn, ENDS))
    return Spread(typical=typical, low=low, median=median, high=high)


def _loads(
    use: Use, pack: Pack, generator: np.random.Generator, draws: int
) -> tuple[Draws, Draws]:
    """Mean current and that of the mean coulomb, at the battery, mA."""
    mean, square = np.zeros(draws), np.zeros(draws)
    for ms, current in use.rows():
        drawn = current.figure.draw(generator, draws)
        mean += drawn * (ms / MS_PER_HOUR)
        square += drawn * drawn * (ms / MS_PER_HOUR)
    for name, count in sorted(use.counts.items()):
        operation = use.board.operation(name, use.carriers)
        if operation is not None and not operation.charge_uc.unknown:
            mean += operation.charge_uc.draw(generator, draws) * (count / UC_PER_MAH)
    mean, pulse = mean / use.hours, square / np.maximum(mean, 1e-12)
    supply = use.board.supply
    factor = np.ones(draws)
    if supply.kind == "switching":
        efficiency = supply.efficiency.draw(generator, draws)
        factor = use.board.voltage_v / (pack.nominal_v * efficiency)
    quiescent = supply.quiescent_ma.draw(generator, draws)
    return mean * factor + quiescent, pulse * factor


def _typical_loads(use: Use, pack: Pack) -> tuple[float, float]:
    rows = use.rows()
    charge = math.fsum(current.typical_ma * ms / MS_PER_HOUR for ms, current in rows)
    square = math.fsum(current.typical_ma**2 * ms / MS_PER_HOUR for ms, current in rows)
    for name, count in use.counts.items():
        operation = use.board.operation(name, use.carriers)
        if operation is not None and not operation.charge_uc.unknown:
            charge += operation.charge_uc.typical * count / UC_PER_MAH
    supply = use.board.supply
    factor = 1.0
    if supply.kind == "switching":
        factor = use.board.voltage_v / (pack.nominal_v * supply.efficiency.typical)
    pulse = square / max(charge, 1e-12)
    return charge / use.hours * factor + supply.quiescent_ma.typical, pulse * factor
