"""What a wake takes beside the power states that a log counts, as a board's table has it.

A wake is made of steps: `boot` (from reset to the program), `mount` (the file system and the
program's import), `join` (the radio's start and the way into the network). A step takes a time
and either a charge of its own, which was measured, or the current of a power state during that
time. Rows of `[[wake]]` in `boards/*.toml`; a plan adds them up (`forecast.deployment`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from drupelet_tools.telemetry.energy.figure import Figure, figure

STEPS = ("boot", "mount", "join")
# Kinds of a step that a plan chooses between: how the firmware was built, where the address is
# from. A step of which there is one kind has none.
VARIANTS = ("", "stock", "fast", "static", "dhcp")


@dataclass(frozen=True, slots=True)
class WakeStep:
    """One step of a wake. Without `charge_uc` it draws the current of the power state."""

    step: str
    variant: str
    carriers: tuple[str, ...]
    time_ms: Figure
    charge_uc: Figure | None
    state: int


def wake_steps(rows: Iterable[Mapping[str, Any]]) -> tuple[WakeStep, ...]:
    """The `[[wake]]` rows of a board's table.

    Raises:
        KeyError, TypeError, ValueError: not such rows.
    """
    return tuple(_step(row) for row in rows)


def _step(row: Mapping[str, Any]) -> WakeStep:
    name, variant = str(row["step"]), str(row.get("variant", ""))
    if name not in STEPS:
        raise ValueError(f"wake step {name!r}: want one of {', '.join(STEPS)}")
    if variant not in VARIANTS:
        raise ValueError(f"wake step {name}: variant {variant!r}: want one of {VARIANTS[1:]}")
    what = f"wake step {name} {variant}".strip()
    charge = figure(row["charge"], f"{what} charge", "uC") if "charge" in row else None
    return WakeStep(
        step=name,
        variant=variant,
        carriers=tuple(str(carrier) for carrier in row.get("carriers", ())),
        time_ms=figure(row["time"], f"{what} time", "ms"),
        charge_uc=charge,
        state=int(row.get("state", 2)),
    )


def find_step(
    steps: Iterable[WakeStep], name: str, carrier: str, variant: str = ""
) -> WakeStep | None:
    """The row of a step for a carrier; one of the variant goes before one without any."""
    rows = [
        row
        for row in steps
        if row.step == name
        and (not row.carriers or carrier in row.carriers)
        and row.variant in ("", variant)
    ]
    return max(rows, key=lambda row: (row.variant == variant, bool(row.carriers)), default=None)
