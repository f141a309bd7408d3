"""Modelled charge: current of each power state times the time spent in it, and what operations
take beyond that.

    Q[mAh] = sum over states of I[mA] * t[ms] / 3,600,000
           + sum over operations of n * q[uC] / 3,600,000
           + leakage of the board * whole time

Currents come from a table per board (`boards/*.toml`), each figure with its source and its
spread. What this gives is *modelled* and is never to be mixed with measured charge. A figure
that no source gives is marked; time in a state without any figure is listed without charge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.energy.figure import (
    Figure,
    figure,
    load_table,
    number,
    parsed,
    table_names,
)
from drupelet_tools.telemetry.energy.wake import WakeStep, wake_steps

MS_PER_HOUR = 3_600_000
UC_PER_MAH = 3_600_000
LEAKAGE = "board leakage"
LEAKAGE_STATE = len(codes.STATES)
# What the logs count besides time: (name in the tables, column of the lake's health table).
OPERATIONS = ("boot", "flash_program", "flash_erase", "frame_sent", "frame_received")
SUPPLIES = ("direct", "linear", "switching")


@dataclass(frozen=True, slots=True)
class Current:
    """A current with its spread, mA; `unknown` marks a stand-in that no source gives."""

    typical_ma: float
    low_ma: float
    high_ma: float
    source: str
    carriers: tuple[str, ...] = ()
    unknown: bool = False

    @property
    def figure(self) -> Figure:
        """The same as a figure to draw from."""
        return Figure(self.typical_ma, self.low_ma, self.high_ma, self.source, self.unknown)


@dataclass(frozen=True, slots=True)
class Operation:
    """Charge that one operation takes beyond its power state, microcoulombs."""

    name: str
    charge_uc: Figure
    carriers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Supply:
    """What lies between the battery and the rail that the currents were measured at.

    `direct`: nothing. `linear`: the battery gives the rail's current. `switching`: the battery
    gives the rail's power by the efficiency. `quiescent_ma` is drawn all the time.
    """

    kind: str
    efficiency: Figure
    quiescent_ma: Figure


@dataclass(frozen=True, slots=True)
class Board:
    """One board's table of currents by power state; several rows where the carrier matters."""

    name: str
    label: str
    version: str
    source: str
    voltage_v: float
    leakage: Current
    currents: Mapping[int, tuple[Current, ...]]
    operations: tuple[Operation, ...]
    supply: Supply
    boot_ms: Figure | None = None  # from reset to the first turn, where it was measured
    carriers: tuple[str, ...] = ()  # those that a plan for this board can have
    wake: tuple[WakeStep, ...] = ()

    def current(self, state: int, carriers: Iterable[str]) -> Current | None:
        """The row for a state on a board with these carriers; None where the table has none.

        Of several carriers, the first row in the table that names one of them wins: a board
        with Wi-Fi and a cable is taken as one with Wi-Fi.
        """
        own = set(carriers)
        rows = self.currents.get(state, ())
        for row in rows:
            if own & set(row.carriers):
                return row
        return next((row for row in rows if not row.carriers), None)

    def operation(self, name: str, carriers: Iterable[str]) -> Operation | None:
        """The row for an operation on a board with these carriers, chosen as `current` does."""
        own = set(carriers)
        rows = [row for row in self.operations if row.name == name]
        for row in rows:
            if own & set(row.carriers):
                return row
        return next((row for row in rows if not row.carriers), None)


@dataclass(frozen=True, slots=True)
class Charge:
    """Modelled charge of one state or operation, mAh, with the ends of the table's spread."""

    state: int
    name: str
    ms: int
    mah: float
    low_mah: float
    high_mah: float
    source: str
    unknown: bool
    count: int = 0


def board_names() -> list[str]:
    """Names of the boards that have a table."""
    return list(table_names(__package__, "boards"))


@lru_cache(maxsize=32)
def load_board(name: str) -> Board:
    """Read a board's table.

    Raises:
        TelemetryError: no such board, or a figure in its table is missing or not a number.
    """
    return load_table(__package__, "boards", "current table for board", name, _board)


def parse_board(text: str, where: str) -> Board:
    """Parse the text of a board table; `where` names it in errors."""
    return parsed(text, where, _board)


def _board(table: dict[str, Any]) -> Board:
    currents: dict[int, tuple[Current, ...]] = {}
    for row in table["state"]:
        state = int(number(row, "state", "state"))
        currents[state] = (*currents.get(state, ()), _current(row))
    return Board(
        name=str(table["board"]),
        label=str(table["label"]),
        version=str(table["version"]),
        source=str(table["source"]),
        voltage_v=number(table, "voltage_v", "board"),
        leakage=_current(table["board_leakage"]),
        currents=currents,
        operations=tuple(_operation(row) for row in table.get("operation", ())),
        supply=_supply(table.get("supply", {})),
        boot_ms=figure(table["boot"], "boot", "ms") if "boot" in table else None,
        carriers=_carriers(table),
        wake=wake_steps(table.get("wake", ())),
    )


def _current(row: Mapping[str, Any]) -> Current:
    told = figure(row, str(row.get("name", "current")), "mA")
    return Current(
        typical_ma=told.typical,
        low_ma=told.low,
        high_ma=told.high,
        source=told.source,
        carriers=_carriers(row),
        unknown=told.unknown,
    )


def _carriers(row: Mapping[str, Any]) -> tuple[str, ...]:
    carriers = row.get("carriers", [])
    if not isinstance(carriers, list):
        raise TypeError("carriers must be a list of names")
    return tuple(str(name) for name in carriers)


def _operation(row: Mapping[str, Any]) -> Operation:
    name = str(row["operation"])
    if name not in OPERATIONS:
        raise ValueError(f"operation {name!r}: want one of {', '.join(OPERATIONS)}")
    return Operation(name, figure(row, name, "uC"), _carriers(row))


def _supply(row: Mapping[str, Any]) -> Supply:
    kind = str(row.get("kind", "direct"))
    if kind not in SUPPLIES:
        raise ValueError(f"supply {kind!r}: want one of {', '.join(SUPPLIES)}")
    whole = {"typical": 1.0, "low": 1.0, "high": 1.0, "source": "nothing between"}
    none = {"mA": 0.0, "low": 0.0, "high": 0.0, "source": "nothing between"}
    efficiency = figure(row.get("efficiency", whole), "supply efficiency")
    if not 0 < efficiency.low <= efficiency.high <= 1:
        raise ValueError("supply efficiency: must be above 0 and at most 1")
    return Supply(kind, efficiency, figure(row.get("quiescent", none), "supply quiescent", "mA"))


def charges(
    board: Board,
    state_ms: Mapping[int, int],
    carriers: Iterable[str],
    counts: Mapping[str, int] | None = None,
) -> list[Charge]:
    """Charge per power state, per operation, then the board's leakage over all of the time.

    Leakage and operations without a figure are left out. Time whose state is unknown is listed
    without charge (its name says so). `counts` are operations by name, see OPERATIONS.
    """
    own = tuple(carriers)
    rows = []
    for state, ms in sorted(state_ms.items()):
        name = codes.STATES[state] if 0 <= state < len(codes.STATES) else "unknown"
        current = board.current(state, own)
        if current is None:
            none = Current(0.0, 0.0, 0.0, "no figure: time only", unknown=True)
            rows.append(_charge(state, name, ms, none))
        else:
            rows.append(_charge(state, name, ms, current))
    if not board.leakage.unknown and board.leakage.high_ma > 0:
        rows.append(_charge(LEAKAGE_STATE, LEAKAGE, sum(state_ms.values()), board.leakage))
    for at, name in enumerate(OPERATIONS):
        found = board.operation(name, own)
        count = (counts or {}).get(name, 0)
        if found is not None and count and not found.charge_uc.unknown:
            rows.append(_operation_charge(LEAKAGE_STATE + 1 + at, found, count))
    return rows


def _charge(state: int, name: str, ms: int, current: Current) -> Charge:
    hours = ms / MS_PER_HOUR
    return Charge(
        state=state,
        name=name,
        ms=ms,
        mah=current.typical_ma * hours,
        low_mah=current.low_ma * hours,
        high_mah=current.high_ma * hours,
        source=current.source,
        unknown=current.unknown,
    )


def _operation_charge(state: int, operation: Operation, count: int) -> Charge:
    told = operation.charge_uc
    return Charge(
        state=state,
        name=operation.name.replace("_", " "),
        ms=0,
        mah=told.typical * count / UC_PER_MAH,
        low_mah=told.low * count / UC_PER_MAH,
        high_mah=told.high * count / UC_PER_MAH,
        source=told.source,
        unknown=told.unknown,
        count=count,
    )
