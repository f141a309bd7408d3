"""What `drupelet bench ingest` has to show, worked out from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from drupelet_tools.bench.columns import Column, Row

CLAIMS = (
    Column("claim", "what is claimed", text=True),
    Column("figure", "what this run gives", text=True),
    Column("limit", "what it must keep", text=True),
    Column("kept", "whether it does; -: nothing is promised at this size", text=True),
)

RATIO_MAX = 1.3
RATIO_EVENTS_MIN = 32_000_000  # below, the fixed cost of a Spark job weighs more
MARGINAL_SPREAD_MAX = 0.15
PEAK_GROWTH_MAX = 1.1  # counts as flat: the memory that allocators keep varies between runs
FILES_RATIO_MAX = 2.0
EXPORT_MIN = 1.0  # million events per CPU second


def claims(rows: Sequence[Row]) -> list[Row]:
    """One row for each claim that these rows can confirm or refute."""
    claim_rows = [
        _to_numpy(row) for row in rows if row["engine"] == "spark" and row["ratio_to_numpy"]
    ]
    sizes = {row["events"]: row for row in _spark(rows, "tables") + _spark(rows, "scale")}
    ordered = [sizes[events] for events in sorted(sizes)]
    claim_rows += _marginal(ordered) + _flat(ordered)
    packs, files = _spark(rows, "files")[:1], _spark(rows, "files")[1:]
    if files:
        ratio = files[0]["cpu_s"] / packs[0]["cpu_s"]
        claim = f"{files[0]['files']:,} files / {packs[0]['files']} packs, CPU"
        claim_rows.append(_row(claim, f"{ratio:.2f}", FILES_RATIO_MAX, ratio <= FILES_RATIO_MAX))
    without, export = _spark(rows, "export, without"), _spark(rows, "export, with")
    if without and export:
        more = export[0]["cpu_s"] - without[0]["cpu_s"]
        rate = export[0]["events"] / more / 1e6 if more > 0 else float("inf")
        claim = "row-level export, million events per CPU second"
        claim_rows.append({**_row(claim, f"{rate:.2f}", 0, rate >= EXPORT_MIN), "limit": "≥ 1"})
    return claim_rows


def _spark(rows: Sequence[Row], work: str) -> list[Row]:
    return [row for row in rows if row["engine"] == "spark" and row["work"] == work]


def _row(claim: str, figure: str, limit: float, kept: bool | None) -> Row:
    return {"claim": claim, "figure": figure, "limit": f"≤ {limit:g}", "kept": kept}


def _to_numpy(row: Row) -> Row:
    ratio = row["ratio_to_numpy"]
    kept = ratio <= RATIO_MAX if row["events"] >= RATIO_EVENTS_MIN else None
    return _row(f"CPU / numpy at {_millions(row)}", f"{ratio:.2f}", RATIO_MAX, kept)


def _marginal(ordered: Sequence[Row]) -> list[Row]:
    """The cost of one more event, between each size and the next larger one."""
    steps = [
        (low, high, (high["cpu_s"] - low["cpu_s"]) / (high["events"] - low["events"]) * 1e6)
        for low, high in pairwise(ordered)
    ]
    if len(steps) < 2:
        return []
    costs = [cost for _, _, cost in steps]
    costs_text = ", ".join(f"{cost:.3f} to {_millions(high)}" for _, high, cost in steps)
    spread = max(costs) / min(costs) - 1 if min(costs) > 0 else float("inf")
    claim = (
        f"µs for one event more from {_millions(ordered[0])}: {costs_text}; largest / least - 1"
    )
    return [_row(claim, f"{spread:.1%}", MARGINAL_SPREAD_MAX, spread <= MARGINAL_SPREAD_MAX)]


def _flat(ordered: Sequence[Row]) -> list[Row]:
    if len(ordered) < 2:
        return []
    low, high = ordered[0], ordered[-1]
    growth = high["peak_mb"] / low["peak_mb"]
    claim = f"peak memory at {_millions(high)} / at {_millions(low)}"
    return [_row(claim, f"{growth:.2f}", PEAK_GROWTH_MAX, growth <= PEAK_GROWTH_MAX)]


def _millions(row: Row) -> str:
    return f"{row['events'] / 1e6:,.3g} M"
