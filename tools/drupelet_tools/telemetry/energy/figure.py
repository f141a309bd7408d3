"""A figure with its spread and its source, as the tables of boards and batteries hold them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from drupelet_tools.telemetry.base.errors import TelemetryError

SCHEMA = 1  # of the tables' layout; a table's own `version` is the date of its figures

Draws = NDArray[np.float64]
Built = TypeVar("Built")


@dataclass(frozen=True, slots=True)
class Figure:
    """A value between two ends; `unknown` marks a stand-in that no source gives."""

    typical: float
    low: float
    high: float
    source: str
    unknown: bool = False

    def draw(self, generator: np.random.Generator, count: int) -> Draws:
        """Draws from the triangle over low, typical and high.

        A stand-in has no likeliest value: its draws are even between its ends.
        """
        if self.low == self.high:
            return np.full(count, self.typical)
        if self.unknown:
            return generator.uniform(self.low, self.high, count)
        return generator.triangular(self.low, self.typical, self.high, count)


def figure(row: object, what: str, unit: str = "typical") -> Figure:
    """Read `{ <unit> = …, low = …, high = …, source = "…" }`.

    Raises:
        KeyError, TypeError, ValueError: not such a row; `parsed` makes one line of them.
    """
    if not isinstance(row, Mapping):
        raise TypeError(f"{what}: want {{ {unit}, low, high, source }}")
    typical, low, high = (number(row, key, what) for key in (unit, "low", "high"))
    if not 0 <= low <= typical <= high:
        raise ValueError(f"{what}: need 0 <= low <= {unit} <= high")
    if "source" not in row:
        raise KeyError(f"{what}: source")
    return Figure(typical, low, high, str(row["source"]), bool(row.get("unknown", False)))


def number(row: Mapping[str, Any], key: str, what: str) -> float:
    """A number of a row, or a KeyError or ValueError that names it."""
    if key not in row:
        raise KeyError(f"{what}: {key}")
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what}: {key} = {value!r} is not a number")
    if value != value or abs(value) == float("inf"):
        raise ValueError(f"{what}: {key} = {value!r} is not a finite number")
    return float(value)


def parsed(text: str, where: str, build: Callable[[dict[str, Any]], Built]) -> Built:
    """What `build` makes of a TOML text; every error is one line that names `where`.

    Raises:
        TelemetryError: not TOML, another layout, or a figure that is missing or no number.
    """
    try:
        table = tomllib.loads(text)
        if table.get("schema", SCHEMA) != SCHEMA:
            raise ValueError(f"schema {table['schema']!r}: this version reads {SCHEMA}")
        return build(table)
    except tomllib.TOMLDecodeError as broken:
        raise TelemetryError(f"{where}: not TOML: {broken}") from None
    except KeyError as missing:
        raise TelemetryError(f"{where}: {missing.args[0]} is missing") from None
    except (TypeError, ValueError) as broken:
        raise TelemetryError(f"{where}: {broken}") from None


@lru_cache(maxsize=8)
def table_names(package: str, folder: str) -> tuple[str, ...]:
    """Names of the tables that a package brings in a folder."""
    entries = (resources.files(package) / folder).iterdir()
    names = (entry.name for entry in entries if entry.name.endswith(".toml"))
    return tuple(sorted(name.removesuffix(".toml") for name in names))


def table_text(package: str, folder: str, name: str) -> str:
    """Text of a table that a package brings."""
    return (resources.files(package) / folder / f"{name}.toml").read_text("utf-8")


def load_table(
    package: str, folder: str, kind: str, name: str, build: Callable[[dict[str, Any]], Built]
) -> Built:
    """What `build` makes of a table that a package brings.

    kind: what such a table is of, for errors: "table for carrier".

    Raises:
        TelemetryError: no such table, or a figure in it is missing or not a number.
    """
    names = table_names(package, folder)
    if name not in names:
        raise TelemetryError(f"no {kind} {name!r}; have {', '.join(names)}")
    return parsed(table_text(package, folder, name), f"{folder}/{name}.toml", build)
