"""Which batteries end first: those that were measured and those that are only modelled.

A measured figure is how long the charge still lasts; a modelled one is the life of a full battery.
Both rank by the days after which a battery may be empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

MEASURED, MODELLED = "left, measured", "when full, modelled"
WEAKEST_MAX = 10
STEPS_DAYS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


def estimates(device: Row) -> list[Row]:
    """What is known of a device's battery in days: kind, days, low, high; measured first."""
    battery, life = device["battery"], device["life"]
    rows = []
    if battery["days_left"] is not None:
        ends = battery["days_left_low"], battery["days_left_high"]
        rows.append(_estimate(device, MEASURED, battery["days_left"], ends))
    if life is not None:
        ends = life["days_low"], life["days_high"]
        rows.append(_estimate(device, MODELLED, life["days"], ends))
    return rows


def _estimate(device: Row, kind: str, days: float, ends: tuple[float, float]) -> Row:
    return {"device": device, "kind": kind, "days": days, "low": min(ends), "high": max(ends)}


def weakest(devices: Sequence[Row], count: int = WEAKEST_MAX) -> list[Row]:
    """The best estimate of each device that has one, the fewest days first."""
    rows = [known[0] for device in devices if (known := estimates(device))]
    rows.sort(key=lambda row: row["days"])
    return rows[:count]


def histogram(devices: Sequence[Row]) -> list[Row]:
    """Devices per step of days and kind, from the first step that has one to the last."""
    rows = [row for device in devices for row in estimates(device)]
    steps = [sum(row["days"] >= edge for edge in STEPS_DAYS) for row in rows]
    used = range(min(steps, default=0), max(steps, default=-1) + 1)
    kinds = [kind for kind in (MEASURED, MODELLED) if any(row["kind"] == kind for row in rows)]
    return [
        {
            "days": step_name(step),
            "kind": kind,
            "devices": sum(
                row["kind"] == kind and at == step for row, at in zip(rows, steps, strict=True)
            ),
        }
        for step in used
        for kind in kinds
    ]


def step_name(step: int) -> str:
    """The days of a step in words."""
    if step == 0:
        return f"under {STEPS_DAYS[0]}"
    if step == len(STEPS_DAYS):
        return f"{STEPS_DAYS[-1]:,} and more"
    return f"{STEPS_DAYS[step - 1]:,} to {STEPS_DAYS[step]:,}"
