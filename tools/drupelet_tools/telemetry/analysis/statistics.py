"""The statistics behind the analyses: censored waits, slopes, outliers. Plain numpy.

* Kaplan and Meier (1958): the share still waiting after a time, with what was never seen to
  end counted for as long as it was watched.
* Theil (1950) and Sen (1968): the median of the slopes between all pairs, with an interval from
  Kendall's statistic, widened for readings that hang together.
* Iglewicz and Hoaglin (1993): the modified z score, from the median and the median deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

Z_95 = 1.959964
TREND_POINTS_MIN = 8
TREND_POINTS_MAX = 1_000  # more are put together by the median first: half a million pairs
OUTLIER_Z = 3.5
OUTLIER_DEVICES_MIN = 5
AUTOCORRELATION_MAX = 0.9


@dataclass(frozen=True, slots=True)
class Survival:
    """Steps of the Kaplan-Meier curve: after `at[i]` the share `waiting[i]` still waits.

    `variance` is Greenwood's, of the logarithm of the share.
    """

    at: Floats
    waiting: Floats
    variance: Floats
    seen: int
    censored: int

    def quantile(self, share: float) -> float | None:
        """Time by which this share has come; None where the curve never gets there."""
        return self._crossing(self.waiting, share)

    def interval(self, share: float) -> tuple[float | None, float | None]:
        """The 95 % interval of a quantile (log-log, Brookmeyer and Crowley)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.log(self.waiting)
            error = Z_95 * np.sqrt(self.variance) / np.abs(scale)
            low = np.where(self.waiting > 0, self.waiting ** np.exp(error), 0.0)
            high = np.where(self.waiting > 0, self.waiting ** np.exp(-error), 0.0)
        # Where nobody waits any more the error is not defined: the share is 0 both ways.
        low, high = np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=0.0)
        return self._crossing(low, share), self._crossing(high, share)

    def _crossing(self, waiting: Floats, share: float) -> float | None:
        below = np.flatnonzero(waiting <= 1 - share + 1e-12)
        return float(self.at[below[0]]) if len(below) else None


def kaplan_meier(waits: ArrayLike, ended: ArrayLike) -> Survival:
    """The curve of waits of which some (`ended` false) were only watched for so long."""
    times = np.asarray(waits, dtype=np.float64)
    over = np.asarray(ended, dtype=bool)
    order = np.argsort(times, kind="stable")
    times, over = times[order], over[order]
    at = np.unique(times[over])
    deaths = np.searchsorted(times[over], at, side="right") - np.searchsorted(
        times[over], at, side="left"
    )
    # Those watched for exactly that long were still there.
    risk = len(times) - np.searchsorted(times, at, side="left")
    with np.errstate(divide="ignore"):
        waiting = np.cumprod(1 - deaths / risk, dtype=np.float64)
        variance = np.cumsum(deaths / (risk * (risk - deaths)), dtype=np.float64)
    # The last one may be the only one left: 1 - 1 is exactly 0, and stays so.
    return Survival(
        at=at,
        waiting=waiting,
        variance=variance,
        seen=int(over.sum()),
        censored=int(len(over) - over.sum()),
    )


@dataclass(frozen=True, slots=True)
class Trend:
    """A slope per unit of x with its 95 % interval; `found` if the interval leaves out zero."""

    slope: float
    low: float
    high: float
    points: int
    autocorrelation: float
    middle: float  # the line's value at the last x

    @property
    def found(self) -> bool:
        """Whether the readings show a direction at all."""
        return self.low > 0 or self.high < 0


def theil_sen(x: ArrayLike, y: ArrayLike) -> Trend | None:
    """The trend of y over x; None for fewer than TREND_POINTS_MIN different x.

    The interval is Sen's; the variance of Kendall's statistic is corrected for ties and, as
    neighbours in time are alike, widened by (1 + r) / (1 - r) with r the correlation of
    neighbouring residuals where that is positive.
    """
    xs, ys = _ordered(x, y)
    if len(np.unique(xs)) < TREND_POINTS_MIN:
        return None
    xs, ys = _thinned(xs, ys)
    first, second = np.triu_indices(len(xs), 1)
    across = xs[second] - xs[first]
    apart = across > 0
    slopes = np.sort((ys[second] - ys[first])[apart] / across[apart])
    slope = float(np.median(slopes))
    residuals = ys - slope * xs
    offset = float(np.median(residuals))
    correlation = _neighbours(residuals - offset)
    widening = (1 + correlation) / (1 - correlation)
    half = Z_95 * math.sqrt(_kendall_variance(ys) * widening)
    count = len(slopes)
    lowest = max(0, math.floor((count - half) / 2))
    highest = min(count - 1, math.ceil((count + half) / 2))
    return Trend(
        slope=slope,
        low=float(slopes[lowest]),
        high=float(slopes[highest]),
        points=len(xs),
        autocorrelation=correlation,
        middle=offset + slope * float(xs[-1]),
    )


def _ordered(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    order = np.argsort(xs, kind="stable")
    return xs[order], ys[order]


def _thinned(xs: Floats, ys: Floats) -> tuple[Floats, Floats]:
    if len(xs) <= TREND_POINTS_MAX:
        return xs, ys
    starts = np.linspace(0, len(xs), TREND_POINTS_MAX, endpoint=False).astype(np.int64)
    return medians(xs, starts), medians(ys, starts)


def _neighbours(residuals: Floats) -> float:
    total = float(residuals @ residuals)
    if total == 0:
        return 0.0
    told = float(residuals[1:] @ residuals[:-1]) / total
    return min(max(told, 0.0), AUTOCORRELATION_MAX)


def _kendall_variance(ys: Floats) -> float:
    count = len(ys)
    _, ties = np.unique(ys, return_counts=True)
    tied = float((ties * (ties - 1) * (2 * ties + 5)).sum())
    return (count * (count - 1) * (2 * count + 5) - tied) / 18


def by_day(times_ms: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    """Medians of the values of each 24 hours from the first on: (day, value)."""
    times, told = _ordered(times_ms, values)
    if not len(times):
        return times, told
    day = np.floor((times - times[0]) / 86_400_000)
    days, starts = np.unique(day, return_index=True)
    return days, medians(told, starts)


def medians(values: Floats, starts: NDArray[np.int64]) -> Floats:
    """Median of each run of values; the runs begin at `starts`, none is empty."""
    ends = np.append(starts[1:], len(values))
    run = np.repeat(np.arange(len(starts)), ends - starts)
    ranked = values[np.lexsort((values, run))]
    lower, upper = (starts + ends - 1) // 2, (starts + ends) // 2
    middle: Floats = (ranked[lower] + ranked[upper]) / 2
    return middle


@dataclass(frozen=True, slots=True)
class Middle:
    """The median of several devices' values, with its 95 % interval by order statistics."""

    value: float
    low: float | None
    high: float | None
    count: int


def median_interval(values: Sequence[float]) -> Middle | None:
    """Median and interval; no interval below six values (none exists at 95 %)."""
    told = sorted(values)
    count = len(told)
    if not count:
        return None
    middle = float(np.median(told))
    if count < 6:
        return Middle(middle, None, None, count)
    # The largest k with P(Binomial(count, 1/2) < k) <= 2.5 %.
    chance, k = 0.0, 0
    while True:
        chance += math.comb(count, k) / 2.0**count if count < 1000 else 0.0
        if chance > 0.025 or count >= 1000:
            break
        k += 1
    if count >= 1000:
        k = math.floor(count / 2 - Z_95 * math.sqrt(count) / 2)
    return Middle(middle, told[max(k - 1, 0)], told[min(count - k, count - 1)], count)


def modified_z(values: ArrayLike) -> Floats:
    """How far each value is from the median in robust deviations; zeros for too few values."""
    told = np.asarray(values, dtype=np.float64)
    if len(told) < OUTLIER_DEVICES_MIN:
        return np.zeros(len(told))
    apart = told - np.median(told)
    deviation = float(np.median(np.abs(apart)))
    if deviation > 0:
        scores: Floats = 0.6745 * apart / deviation
        return scores
    mean = float(np.mean(np.abs(apart)))
    if mean > 0:
        return np.asarray(apart / (1.253314 * mean))
    return np.zeros(len(told))
