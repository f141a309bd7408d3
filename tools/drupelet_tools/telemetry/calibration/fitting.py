"""Fit a board's currents to measured charge: a factor for each power state.

    measured charge of a window = sum over states of factor * table's current * time in it

Factors are between FACTOR_MIN and FACTOR_MAX; the least squares with these bounds are found by
descent along one factor at a time, which a convex sum of squares allows. The interval comes of
windows drawn anew, in blocks of neighbours. A state that the windows do not tell apart from the
others keeps the factor 1 and is said to be undetermined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.calibration.measured_series import Series
from drupelet_tools.telemetry.calibration.timelines import Timeline
from drupelet_tools.telemetry.energy.board_table import MS_PER_HOUR, Board
from drupelet_tools.telemetry.energy.figure import Draws, Figure

FACTOR_MIN, FACTOR_MAX = 0.05, 50.0
WINDOWS_MIN, WINDOWS_MAX = 8, 2_000
CHANGES_MAX = 20_000  # of state that become windows' edges
RESAMPLES = 300
BLOCK = 4  # neighbouring windows that are drawn together
TELLS_RATIO = 3.0  # ends of an interval further apart than this determine no factor
SWEEPS = 2_000
# A fit that is further off in all, or in a window of an instrument, is of something else.
OFF_MAX, MISFIT_MAX = 0.1, 0.5
ALIGN_POINTS = 200  # to each side; the range over this is what spells must be longer than


@dataclass(frozen=True, slots=True)
class Factor:
    """Of one state. `determined` is false where the measurement does not tell it: it is 1."""

    state: int
    value: Figure
    determined: bool
    hours: float

    @property
    def name(self) -> str:
        """The state's name."""
        return codes.STATES[self.state]


@dataclass(frozen=True, slots=True)
class Fit:
    """Factors and how well they do; charges over the time that series and states share, mAh."""

    factors: tuple[Factor, ...]
    windows: int
    hours: float
    measured_mah: float
    modelled_mah: float
    calibrated_mah: float
    residual_share: float  # root mean square of a window, over the mean charge of a window
    residual_before: float  # the same of the table as it is


@dataclass(frozen=True, slots=True)
class _Windows:
    """Pieces of the time that series and states share: charge measured, and modelled by state."""

    states: list[int]
    hours_of: Draws  # in each state
    hours: float
    modelled: Draws
    measured: Draws


def fit(
    series: Series, timeline: Timeline, board: Board, carrier: str, *, offset_ms: float = 0.0,
    seed: int = 0,
) -> Fit:  # fmt: skip
    """Fit a board's table to a series.

    Args:
        series: what was measured.
        timeline: when the device was in which state.
        board: the table to fit.
        carrier: what chooses the rows of the table.
        offset_ms: time of the states at the series' first row.
        seed: of the interval.

    Raises:
        TelemetryError: the two share too little time, or nothing was measured in it.
    """
    cut = _cut(series, timeline, board, carrier, offset_ms)
    modelled, measured, states = cut.modelled, cut.measured, cut.states
    if measured.sum() <= 0:
        raise TelemetryError(
            "the measured charge is not above 0: are the leads the wrong way round?"
        )
    factors, determined, ends = _determine(modelled, measured, seed)
    fitted = modelled @ factors
    mean = float(measured.mean())
    misfit = 0.0 if series.is_gauge else _rms(measured - fitted) / _rms(measured)
    off = abs(float(fitted.sum() / measured.sum()) - 1)
    if off > OFF_MAX or misfit > MISFIT_MAX:
        raise TelemetryError(
            f"series and states do not go together: with the best currents, the charge is"
            f" {off:.0%} off and a window {misfit:.0%}; is it the same device, and --offset right?"
            " --align 5s looks for it"
        )
    return Fit(
        factors=tuple(
            Factor(
                state,
                Figure(float(factors[at]), float(min(ends[0, at], factors[at])),
                       float(max(ends[1, at], factors[at])), "fitted to measured charge"),
                bool(determined[at]),
                float(cut.hours_of[at]),
            )
            for at, state in enumerate(states)
        ),
        windows=len(measured),
        hours=cut.hours,
        measured_mah=float(measured.sum()),
        modelled_mah=float(modelled.sum()),
        calibrated_mah=float(fitted.sum()),
        residual_share=_rms(measured - fitted) / mean,
        residual_before=_rms(measured - modelled.sum(axis=1)) / mean,
    )  # fmt: skip


def align(
    series: Series, timeline: Timeline, board: Board, carrier: str, *, offset_ms: float,
    range_ms: float,
) -> float:  # fmt: skip
    """The offset around the given one at which series and states fit best, ms."""
    best, step = offset_ms, range_ms
    for points in (ALIGN_POINTS, ALIGN_POINTS // 8, ALIGN_POINTS // 8):
        offsets = best + np.linspace(-step, step, 2 * points + 1)
        misfits = [_misfit(series, timeline, board, carrier, float(at)) for at in offsets]
        best, step = float(offsets[int(np.argmin(misfits))]), step / points
    return best


def _misfit(
    series: Series, timeline: Timeline, board: Board, carrier: str, offset_ms: float
) -> float:
    try:
        cut = _cut(series, timeline, board, carrier, offset_ms)
    except TelemetryError:
        return float("inf")
    factors = bounded_least_squares(cut.modelled, cut.measured, np.ones(len(cut.states), bool))
    spread = cut.measured - cut.measured.mean()
    # Of the part that has to be explained: else the offset with the quietest overlap wins.
    return _rms(cut.measured - cut.modelled @ factors) / max(_rms(spread), 1e-12)


def _cut(
    series: Series, timeline: Timeline, board: Board, carrier: str, offset_ms: float
) -> _Windows:
    time_ms = series.time_ms - series.time_ms[0] + offset_ms
    begin = max(float(time_ms[0]), float(timeline.time_ms[0]))
    end = min(float(time_ms[-1]), timeline.end_ms)
    inner = time_ms[(time_ms >= begin) & (time_ms <= end)]
    if len(inner) < WINDOWS_MIN + 1:
        raise TelemetryError(
            f"series and states share {max(0.0, end - begin) / 1000:g} s with {len(inner)} rows:"
            f" want {WINDOWS_MIN + 1} rows or more; --offset is the states' time at the first row"
        )
    picks = np.linspace(0, len(inner) - 1, min(len(inner), WINDOWS_MAX + 1)).round().astype(int)
    edges = np.unique(inner[picks])
    if not series.is_gauge:  # an instrument tells the states apart at their changes
        changes = timeline.time_ms[(timeline.time_ms > begin) & (timeline.time_ms < end)]
        edges = np.unique(np.concatenate((edges, changes[:CHANGES_MAX])))
    measured = np.diff(np.interp(edges, time_ms, series.drawn_mah))
    states = sorted(
        int(state) for state in set(timeline.state.tolist())
        if state >= 0 and board.current(int(state), (carrier,)) is not None
    )  # fmt: skip
    ms = timeline.within(edges, states)
    # What was measured in a state that nobody knows belongs to none.
    whole = ms.sum(axis=1) > 0.999 * np.diff(edges)
    ms, measured = ms[whole], measured[whole]
    used = ms.sum(axis=0) > 0
    if not used.any() or len(measured) < WINDOWS_MIN:
        raise TelemetryError("too little of the shared time is in states that the table has")
    states, ms = [s for s, u in zip(states, used, strict=True) if u], ms[:, used]
    current = np.asarray([_typical(board, state, carrier) for state in states])
    return _Windows(
        states=states,
        hours_of=ms.sum(axis=0) / MS_PER_HOUR,
        hours=float(ms.sum()) / MS_PER_HOUR,
        modelled=ms / MS_PER_HOUR * current,
        measured=measured,
    )


def _typical(board: Board, state: int, carrier: str) -> float:
    row = board.current(state, (carrier,))
    assert row is not None  # states without a row were left out
    return row.typical_ma


def _rms(values: Draws) -> float:
    return float(np.sqrt(np.mean(values * values)))


def _determine(modelled: Draws, measured: Draws, seed: int) -> tuple[Draws, np.ndarray, Draws]:
    """Factors, which of them the windows determine, and both ends of their intervals.

    The factor that is told worst is set to 1 first, and the others are fitted again.
    """
    generator = np.random.default_rng(seed)
    count = modelled.shape[1]
    free = np.ones(count, dtype=bool)
    while True:
        factors = bounded_least_squares(modelled, measured, free)
        drawn = np.empty((RESAMPLES, count))
        for at in range(RESAMPLES):
            rows = _blocks(generator, len(measured))
            drawn[at] = bounded_least_squares(modelled[rows], measured[rows], free, factors)
        ends = np.percentile(drawn, (5, 95), axis=0)
        width = ends[1] / ends[0]
        at_bound = (ends[0] <= FACTOR_MIN * 1.001) | (ends[1] >= FACTOR_MAX * 0.999)
        vague = free & ((width > TELLS_RATIO) | at_bound)
        if not vague.any() or free.sum() == 1:
            return factors, free, ends
        free[int(np.argmax(np.where(vague, width, 0.0)))] = False


def _blocks(generator: np.random.Generator, count: int) -> np.ndarray:
    size = min(BLOCK, count)
    starts = generator.integers(0, count - size + 1, -(-count // size))
    rows: np.ndarray = (starts[:, None] + np.arange(size)).ravel()[:count]
    return rows


def bounded_least_squares(
    modelled: Draws, measured: Draws, free: Sequence[bool] | np.ndarray, begin: Draws | None = None
) -> Draws:
    """Least squares of modelled @ x = measured with bounds; x is 1 where not free."""
    squares = modelled.T @ modelled
    target = modelled.T @ measured
    factors = np.ones(modelled.shape[1]) if begin is None else begin.copy()
    for _ in range(SWEEPS):
        moved = 0.0
        for at in np.flatnonzero(free):
            own = squares[at, at]
            if own <= 0:
                continue
            best = factors[at] + (target[at] - squares[at] @ factors) / own
            best = min(max(best, FACTOR_MIN), FACTOR_MAX)
            moved = max(moved, abs(best - factors[at]) / factors[at])
            factors[at] = best
        if moved < 1e-9:
            break
    return factors
