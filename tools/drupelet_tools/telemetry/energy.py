"""Modelled charge: current of each power state times the time spent in it.

    Q[mAh] = sum over states of I[mA] * t[ms] / 3,600,000

Currents come from a table per board (`boards/*.toml`), each figure with its source and its
spread. What this gives is *modelled* and is never to be mixed with measured charge.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.errors import TelemetryError

MS_PER_HOUR = 3_600_000
LEAKAGE = "board leakage"


@dataclass(frozen=True, slots=True)
class Current:
    """A current with its spread, mA; `unknown` marks a stand-in that no source gives."""

    typical_ma: float
    low_ma: float
    high_ma: float
    source: str
    carriers: tuple[str, ...] = ()
    unknown: bool = False


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


@dataclass(frozen=True, slots=True)
class Charge:
    """Modelled charge of one state, mAh, with the ends of the table's spread."""

    state: int
    name: str
    ms: int
    mah: float
    low_mah: float
    high_mah: float
    source: str
    unknown: bool


def board_names() -> list[str]:
    """Names of the boards that have a table."""
    folder = resources.files(__package__) / "boards"
    names = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


@lru_cache(maxsize=32)
def load_board(name: str) -> Board:
    """Read a board's table.

    Raises:
        TelemetryError: no such board, or a figure in its table is missing or not a number.
    """
    if name not in board_names():
        raise TelemetryError(f"no current table for board {name!r}; have {board_names()}")
    text = (resources.files(__package__) / "boards" / f"{name}.toml").read_text("utf-8")
    return parse_board(text, f"boards/{name}.toml")


def parse_board(text: str, where: str) -> Board:
    """Parse the text of a board table; `where` names it in errors."""
    try:
        table = tomllib.loads(text)
        currents: dict[int, tuple[Current, ...]] = {}
        for row in table["state"]:
            state = int(row["state"])
            currents[state] = (*currents.get(state, ()), _current(row))
        return Board(
            name=str(table["board"]),
            label=str(table["label"]),
            version=str(table["version"]),
            source=str(table["source"]),
            voltage_v=float(table["voltage_v"]),
            leakage=_current(table["board_leakage"]),
            currents=currents,
        )
    except tomllib.TOMLDecodeError as broken:
        raise TelemetryError(f"{where}: not TOML: {broken}") from None
    except KeyError as missing:
        raise TelemetryError(f"{where}: {missing} is missing") from None
    except (TypeError, ValueError) as broken:
        raise TelemetryError(f"{where}: {broken}") from None


def _current(row: Mapping[str, object]) -> Current:
    typical, low, high = (float(str(row[key])) for key in ("mA", "low", "high"))
    if not 0 <= low <= typical <= high:
        raise ValueError(f"{row.get('name', 'current')}: need 0 <= low <= mA <= high")
    carriers = row.get("carriers", [])
    if not isinstance(carriers, list):
        raise TypeError("carriers must be a list of names")
    return Current(
        typical_ma=typical,
        low_ma=low,
        high_ma=high,
        source=str(row["source"]),
        carriers=tuple(str(name) for name in carriers),
        unknown=bool(row.get("unknown", False)),
    )


def charges(board: Board, state_ms: Mapping[int, int], carriers: Iterable[str]) -> list[Charge]:
    """Charge per power state, then the board's leakage over all of the time if it is known.

    Time whose state is unknown is listed without charge (its name says so).
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
    if not board.leakage.unknown:
        rows.append(_charge(len(codes.STATES), LEAKAGE, sum(state_ms.values()), board.leakage))
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
