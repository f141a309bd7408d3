"""What a carrier adds to a message and to a wake; tables in `carriers/*.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from drupelet_tools.telemetry.energy.figure import (
    Figure,
    figure,
    load_table,
    table_names,
)

JOINS = ("none", "radio", "ip")  # `ip`: the way into the network depends on the address


@dataclass(frozen=True, slots=True)
class Carrier:
    """A carrier's figures. `rate_kbit_s` is 0 where the time of a frame follows from settings."""

    name: str
    label: str
    version: str
    source: str
    joins: str
    frame_bytes: Figure
    rate_kbit_s: Figure
    exchange_ms: Figure


def carrier_names() -> list[str]:
    """Names of the carriers that have a table."""
    return list(table_names(__package__, "carriers"))


@lru_cache(maxsize=16)
def load_carrier(name: str) -> Carrier:
    """Read a carrier's table.

    Raises:
        TelemetryError: no such carrier, or a figure in its table is missing or not a number.
    """
    return load_table(__package__, "carriers", "table for carrier", name, _carrier)


def _carrier(table: dict[str, Any]) -> Carrier:
    joins = str(table["joins"])
    if joins not in JOINS:
        raise ValueError(f"joins {joins!r}: want one of {', '.join(JOINS)}")
    return Carrier(
        name=str(table["carrier"]),
        label=str(table["label"]),
        version=str(table["version"]),
        source=str(table["source"]),
        joins=joins,
        frame_bytes=figure(table["frame_bytes"], "frame_bytes", "bytes"),
        rate_kbit_s=figure(table["rate"], "rate", "kbit_s"),
        exchange_ms=figure(table["exchange"], "exchange", "ms"),
    )
