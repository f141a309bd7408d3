"""Which devices are silent, when they were, how whole their logs are, and where they drift."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from drupelet_tools.telemetry.analysis.attention import CHARGE_WARNING_PCT
from drupelet_tools.telemetry.analysis.statistics import (
    Z_95,
    Floats,
    Trend,
    by_day,
    medians,
    theil_sen,
)
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.energy.batteries import Pack

Row = dict[str, Any]

MS_PER_DAY = 86_400_000.0
MS_PER_HOUR = 3_600_000.0
SILENT_TIMES = 3.0  # of the longest usual gap: longer than that is silence
OUTAGE_TIMES = 24.0  # of the schedule: a gap in the past that is told
OUTAGES_MAX = 10  # the longest are listed, all are counted
INTERVALS_MIN = 4  # fewer do not tell a schedule
WARM_READINGS_MIN = 100  # fewer do not tell what warmth does to a cell's voltage
RISE_C_MIN = 1.0
FAR_TIMES = 6.0  # median deviations: readings farther off do not tell what warmth does
POINTS_MAX = 120  # of a battery's curve in the report
# Whose word a device's schedule is.
FLEET_FILE, ANNOUNCED, LOGGED = "fleet file", "announced", "its log"
HEARTBEAT_MS = MS_PER_HOUR  # the interval over which a drop of charge is told


def presence(
    segments: Sequence[Row],
    period_ms: float | None,
    now_ms: float | None,
    epoch_ms: float | None = None,
) -> Row:
    """When a device was heard of, its own schedule, its outages, and whether it is silent now.

    `period_source` says whose word the schedule is. A log is written in whole segments, so a
    device is never silent for less than three times the length that its segments have.
    `silent_after_ms` is how long it may be away until it is silent; None if it never is.

    Args:
        segments: rows of the segments table with a known wall clock count.
        period_ms: how often the device should be heard of, as its owner says.
        now_ms: the time to measure silence from; without it, nothing is silent.
        epoch_ms: what the device announces; without it and `period_ms`, its own median gap.
    """
    spans = [
        (row["wall_offset_ms"] + row["first_ms"], row["wall_offset_ms"] + row["last_ms"], row)
        for row in segments
        if row["wall_offset_ms"] is not None and row["first_ms"] is not None
    ]
    told = period_ms or epoch_ms or None
    source = (FLEET_FILE if period_ms else ANNOUNCED) if told else None
    none: Row = {
        "first_wall_ms": None, "last_wall_ms": None, "period_ms": told, "period_source": source,
        "outages": 0, "outage_list": [], "out_share": None, "silent": False, "silent_ms": None,
        "silent_after_ms": None,
    }  # fmt: skip
    if not spans:
        return none
    starts, ends = _covered(spans)
    usual = told or _usual(starts, ends, spans)
    gaps = starts[1:] - np.maximum.accumulate(ends)[:-1]
    first, last = float(starts[0]), float(ends.max())
    length = _segment_length(spans)
    out = max(OUTAGE_TIMES * usual, 0.0 if period_ms else length) if usual else math.inf
    outages = _outages(gaps, np.maximum.accumulate(ends)[:-1], out)
    away = None if now_ms is None else max(0.0, now_ms - last)
    longest = max(usual, _longest_usual(gaps[gaps < out]), length) if usual else 0.0
    silent_after_ms = SILENT_TIMES * longest or None
    return {
        "first_wall_ms": first,
        "last_wall_ms": last,
        "period_ms": usual,
        "period_source": source or (LOGGED if usual else None),
        "outages": len(outages),
        "outage_list": outages[:OUTAGES_MAX],
        "out_share": sum(row["ms"] for row in outages) / (last - first) if last > first else None,
        "silent": is_silent(away, silent_after_ms),
        "silent_ms": away,
        "silent_after_ms": silent_after_ms,
    }


def is_silent(away_ms: float | None, silent_after_ms: float | None) -> bool:
    """Whether a device that was last heard of so long ago is silent."""
    return away_ms is not None and silent_after_ms is not None and away_ms > silent_after_ms


def _covered(spans: Sequence[tuple[float, float, Row]]) -> tuple[Floats, Floats]:
    """Times in which the device was at work: a log's whole length, a lone frame's moments."""
    pieces: list[tuple[float, float]] = []
    for start, end, row in spans:
        pieces += [(start, end)] if row["events"] > 1 else [(start, start), (end, end)]
    pieces.sort()
    told = np.array(pieces, dtype=np.float64)
    return told[:, 0], told[:, 1]


def _usual(
    starts: Floats, ends: Floats, spans: Sequence[tuple[float, float, Row]]
) -> float | None:
    gaps = starts[1:] - np.maximum.accumulate(ends)[:-1]
    gaps = gaps[gaps > 0]
    lengths = [end - start for start, end, row in spans if row["events"] > 1]
    told = [float(np.median(gaps))] if len(gaps) >= INTERVALS_MIN else []
    told += [float(np.median(lengths))] if len(lengths) >= INTERVALS_MIN else []
    return max(told, default=None)


def _segment_length(spans: Sequence[tuple[float, float, Row]]) -> float:
    """Median time that a segment of a log covers; 0 for lone frames."""
    lengths = [end - start for start, end, row in spans if row["events"] > 1]
    return float(np.median(lengths)) if lengths else 0.0


def _longest_usual(gaps: Floats) -> float:
    return float(np.quantile(gaps, 0.99)) if len(gaps) >= INTERVALS_MIN else 0.0


def _outages(gaps: Floats, begins: Floats, out_ms: float) -> list[Row]:
    """Gaps of `out_ms` and more, the longest first."""
    long = np.flatnonzero(gaps >= out_ms)
    ordered = long[np.argsort(-gaps[long], kind="stable")]
    return [{"from_wall_ms": float(begins[at]), "ms": float(gaps[at])} for at in ordered]


def integrity(segments: Sequence[Row], health: Sequence[Row], quarantined: int) -> Row:
    """How much of a device's log is there."""
    numbered = len(segments)
    missing = sum(row["segments_missing"] for row in health)
    blocks = sum(row["blocks"] for row in segments)
    bad = sum(row["blocks_bad"] for row in segments)
    return {
        "segments": numbered,
        "segments_missing": missing,
        "missing_share": missing / (numbered + missing) if numbered + missing else None,
        "repeats": sum(row["copies"] - 1 for row in segments),
        "blocks": blocks,
        "blocks_bad": bad,
        "events_lost": sum(row["events_lost"] for row in health),
        "clock_jumps": sum(bool(row.get("clock_jump")) for row in segments),
        "wall_unknown": sum(row["wall_offset_ms"] is None for row in segments),
        "quarantined": quarantined,
        "since_ms": _since(segments, health),
    }


def _since(segments: Sequence[Row], health: Sequence[Row]) -> dict[str, float | None]:
    """When trouble of each kind first was: the start of its boot by wall clock, None if unknown.

    Of the lowest heap it is the boot in which it was reached.
    """
    starts: dict[int, float] = {}
    for row in segments:
        if row["wall_offset_ms"] is not None:
            start = float(row["wall_offset_ms"])
            starts[row["boot"]] = min(start, starts.get(row["boot"], start))

    def first(boots: Iterable[int]) -> float | None:
        return min((starts[boot] for boot in boots if boot in starts), default=None)

    boots = sorted(health, key=lambda row: row["boot"])
    causes = {row["boot"]: row["reset_cause"] for row in boots}
    jumps = [
        float(row["wall_offset_ms"] + row["first_ms"])
        for row in segments
        if row.get("clock_jump") and None not in (row["wall_offset_ms"], row["first_ms"])
    ]
    lows = [row for row in boots if row["heap_low"] is not None]
    lowest = min(lows, key=lambda row: row["heap_low"], default=None)
    since = {
        name: first(row["boot"] for row in boots if row[name])
        for name in ("errors", "refused", "segments_missing", "events_lost")
    }
    return {
        **since,
        "watchdog": first(b for b, cause in causes.items() if cause == codes.RESET_WATCHDOG),
        "restarts": first(b for b in list(causes)[1:] if causes[b] in codes.RESTARTS),
        "heap_low": first([lowest["boot"]] if lowest else []),
        "jumps": min(jumps, default=None),
    }


def battery(rows: Sequence[Row], pack: Pack | None, now_ms: float | None = None) -> Row:
    """What was measured at the battery: voltage, state of charge, their trends and the rest.

    `days_left` counts from `now_ms`; without it, from the last reading. `empty_ms` is the time
    when they are over.

    State of charge is the gauge's where there is one, else from the voltage of a cell whose
    voltage tells it. `soc_drop` counts as Memfault does: per heartbeat, rises left out.
    """
    timed = [row for row in rows if row["wall_ms"] is not None]
    volts = _series(timed, "mv")
    gauge = _series(timed, "soc_pct")
    level = _level(timed)
    found: Row = {
        "readings": len(rows),
        "mv_first": float(volts[1][0]) if len(volts[1]) else None,
        "mv_last": float(volts[1][-1]) if len(volts[1]) else None,
        "mv_low": float(volts[1].min()) if len(volts[1]) else None,
        "mv_noise": _noise(level.mv),
        "mv_trend_raw": trend_row(_day_trend(*volts)),
        "mv_trend": trend_row(level.trend()),
        "mv_per_c": level.per_c,
        "reference_c": level.reference_c,
        "mv_curve": _curve(*volts),
        "soc_source": None,
    }
    if not len(gauge[0]) and pack is not None and pack.battery.voltage and not pack.battery.flat:
        gauge = (level.times_ms, 100 * pack.battery.charge_share(level.mv / pack.series))
        found["soc_source"] = "voltage" if len(gauge[0]) else None
    elif len(gauge[0]):
        found["soc_source"] = "gauge"
    gauge_told = found["soc_source"] == "gauge"
    return {**found, **_charge_state(*gauge, now_ms, gauge_told=gauge_told)}


def _series(rows: Sequence[Row], column: str) -> tuple[Floats, Floats]:
    told = sorted(
        (float(row["wall_ms"]), float(row[column])) for row in rows if row.get(column) is not None
    )
    pairs = np.array(told, dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@dataclass(frozen=True, slots=True)
class _Level:
    """Voltage as it would be at one temperature: what warmth does, and how sure that is."""

    times_ms: Floats
    mv: Floats
    celsius: Floats | None = None
    per_c: float | None = None
    error: float = 0.0
    reference_c: float | None = None

    def trend(self) -> Trend | None:
        """The trend at that temperature; its interval holds the error of the correction."""
        found = _day_trend(self.times_ms, self.mv)
        if found is None or self.celsius is None:
            return found
        season = _day_trend(self.times_ms, self.celsius)
        off = Z_95 * self.error * abs(season.slope) if season is not None else 0.0
        return replace(
            found,
            low=found.slope - math.hypot(found.slope - found.low, off),
            high=found.slope + math.hypot(found.high - found.slope, off),
        )


def _level(rows: Sequence[Row]) -> _Level:
    """A warm cell shows more volts. How many is taken from within the days, where its charge
    stands still; without readings that tell it, the voltage is left as it is.
    """
    warm = [row for row in rows if row.get("temperature_c") is not None]
    plain = _series(rows, "mv")
    times, celsius = _series([row for row in warm if row.get("mv") is not None], "temperature_c")
    _, mv = _series(warm, "mv")
    if len(times) < WARM_READINGS_MIN or len(times) < len(plain[0]) / 2:
        return _Level(*plain)
    day = np.floor((times - times[0]) / MS_PER_DAY)
    _, starts = np.unique(day, return_index=True)
    lengths = np.diff(np.append(starts, len(day)))
    rise = celsius - np.repeat(medians(celsius, starts), lengths)
    volts = mv - np.repeat(medians(mv, starts), lengths)
    if int((np.abs(rise) >= RISE_C_MIN).sum()) < WARM_READINGS_MIN:
        return _Level(*plain)
    per_c, error = _through_zero(rise, volts)
    reference = float(np.median(celsius))
    level = mv - per_c * (celsius - reference)
    return _Level(times, level, celsius, per_c, error, reference)


def _through_zero(x: Floats, y: Floats) -> tuple[float, float]:
    """Slope through zero by least squares without the farthest readings, and its error."""
    slope = float(x @ y) / float(x @ x)
    apart = np.abs(y - slope * x)
    keep = apart <= FAR_TIMES * max(float(np.median(apart)), 1e-9)
    x, y = x[keep], y[keep]
    slope = float(x @ y) / float(x @ x)
    rest = y - slope * x
    return slope, math.sqrt(float(rest @ rest) / max(len(x) - 1, 1) / float(x @ x))


def _noise(values: Floats) -> float | None:
    """Robust deviation of neighbouring readings: what one reading can be wrong by."""
    if len(values) < 3:
        return None
    return float(1.4826 * np.median(np.abs(np.diff(values))) / np.sqrt(2))


def _day_trend(times_ms: Floats, values: Floats) -> Trend | None:
    """Trend per day of the days' medians; of the readings themselves within some days."""
    days, medians = by_day(times_ms, values)
    by_days = theil_sen(days, medians)
    if by_days is not None or not len(times_ms):
        return by_days
    return theil_sen((times_ms - times_ms[0]) / MS_PER_DAY, values)


def trend_row(trend: Trend | None) -> Row | None:
    """A trend as plain data; `found` says whether its interval leaves out zero."""
    return None if trend is None else {**asdict(trend), "found": trend.found}


def _charge_state(
    times_ms: Floats, soc: Floats, now_ms: float | None, *, gauge_told: bool
) -> Row:  # fmt: skip
    trend = _day_trend(times_ms, soc)
    beat = HEARTBEAT_MS if gauge_told else MS_PER_DAY
    drop, drop_ms = soc_drop(times_ms, soc, beat)
    found: Row = {
        "soc_pct": float(np.median(soc[-5:])) if len(soc) else None,
        "soc_trend": trend_row(trend),
        "soc_drop_pct": drop,
        "soc_drop_ms": drop_ms,
        "low_since_ms": _low_since_ms(times_ms, soc),
        "days_left": None,
        "days_left_low": None,
        "days_left_high": None,
        "empty_ms": None,
        "life_days": None,
        "life_days_low": None,
        "life_days_high": None,
    }
    if trend is not None and found["soc_pct"] is not None and trend.high < 0:
        # Only a fall that is found has an end; both slopes of the interval are falls then.
        last_ms = float(times_ms[-1])
        since_days = 0.0 if now_ms is None else max(0.0, now_ms - last_ms) / MS_PER_DAY
        found["empty_ms"] = last_ms + found["soc_pct"] / -trend.slope * MS_PER_DAY
        for name, slope in (("", trend.slope), ("_low", trend.low), ("_high", trend.high)):
            found[f"days_left{name}"] = max(0.0, found["soc_pct"] / -slope - since_days)
            found[f"life_days{name}"] = 100.0 / -slope
    return found


def _low_since_ms(times_ms: Floats, soc: Floats) -> float | None:
    """When the charge last fell below what is low; None while it is not."""
    high = np.flatnonzero(soc >= CHARGE_WARNING_PCT)
    below = int(high[-1]) + 1 if len(high) else 0
    return float(times_ms[below]) if below < len(soc) else None


def soc_drop(times_ms: Floats, soc: Floats, beat_ms: float) -> tuple[float | None, float]:
    """Sum of the falls from heartbeat to heartbeat, and the time of those heartbeats.

    A rise (charging) is left out with its time, a standstill counts as a fall of nothing.
    """
    if len(soc) < 2:
        return None, 0.0
    beats = np.floor(times_ms / beat_ms)
    _, starts = np.unique(beats, return_index=True)
    level, moment = medians(soc, starts), medians(times_ms, starts)
    fall, length = level[:-1] - level[1:], np.diff(moment)
    falls = fall >= 0
    return float(fall[falls].sum()), float(length[falls].sum())


def _curve(times_ms: Floats, values: Floats) -> list[tuple[int, float]]:
    """(wall ms, median) at a bounded number of points."""
    if not len(values):
        return []
    points = min(len(values), POINTS_MAX)
    starts = np.linspace(0, len(values), points, endpoint=False).astype(np.int64)
    times, middle = medians(times_ms, starts), medians(values, starts)
    pairs = zip(times.tolist(), middle.tolist(), strict=True)
    return [(int(at), round(value, 1)) for at, value in pairs]


def boot_trends(boots: Sequence[Mapping[str, Any]]) -> dict[str, Row | None]:
    """Trends over a device's boots, per day: modelled charge, lowest free heap, bytes.

    A row has `wall_ms` (middle of the boot), and per boot `mah_per_day`, `heap_low`,
    `bytes_per_day`, each maybe None.
    """
    found: dict[str, Row | None] = {}
    for name in ("mah_per_day", "heap_low", "bytes_per_day"):
        rows = [
            (row["wall_ms"] / MS_PER_DAY, row[name])
            for row in boots
            if row["wall_ms"] is not None and row[name] is not None
        ]
        pairs = np.array(rows, dtype=np.float64).reshape(-1, 2)
        found[name] = trend_row(theil_sen(pairs[:, 0], pairs[:, 1]))
    return found
