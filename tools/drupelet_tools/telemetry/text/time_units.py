"""Lengths of time in the unit that reads best."""

from __future__ import annotations

from typing import Any

UNITS = (("days", 86_400_000.0), ("h", 3_600_000.0), ("min", 60_000.0))


def span(ms: float) -> str:
    """A length of time in the unit that reads best."""
    unit, size = time_unit(ms)
    return f"{ms / size:.1f} {unit}"


def time_unit(ms: float | None) -> tuple[str, float]:
    """The unit in which a length of time reads best, and its ms; seconds for none."""
    for unit, size in UNITS:
        if ms is not None and ms >= 2 * size:
            return unit, size
    return "s", 1_000.0


def wait_unit(wait: dict[str, Any]) -> tuple[str, float]:
    """The unit for a fleet's latencies, the median deciding, else the first that is reached."""
    known = [wait[name] for name in ("p50_ms", "p90_ms") if wait[name] is not None]
    return time_unit(known[0] if known else None)
