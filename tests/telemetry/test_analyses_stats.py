"""Censored waits, slopes and outliers against hand-worked and simulated truth."""

import numpy as np
import pytest

from drupelet_tools.telemetry.analysis import statistics as stats


def test_kaplan_meier_by_hand():
    # Freireich's remission weeks of the treated group, as in every textbook on survival.
    ended = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    watched = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    curve = stats.kaplan_meier(ended + watched, [True] * len(ended) + [False] * len(watched))
    told = dict(zip(curve.at, curve.waiting, strict=True))
    expected = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert told == pytest.approx(expected, abs=0.0006)
    assert curve.quantile(0.5) == 23
    assert curve.quantile(0.9) is None
    assert curve.interval(0.5) == (13.0, None)
    assert (curve.seen, curve.censored) == (9, 12)


def test_without_censoring_it_is_the_plain_quantile():
    waits = np.arange(1.0, 101.0)
    curve = stats.kaplan_meier(waits, np.ones(100, bool))
    assert [curve.quantile(q) for q in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]
    low, high = curve.interval(0.5)
    assert 35 < low < 50 < high < 65
    assert stats.kaplan_meier([], []).quantile(0.5) is None


def test_censoring_takes_out_the_bias_of_a_short_log():
    generator = np.random.default_rng(5)
    waits, watched = generator.exponential(100, 4000), generator.uniform(0, 300, 4000)
    seen = np.minimum(waits, watched)
    curve = stats.kaplan_meier(seen, waits <= watched)
    truth = 100 * np.log(2)
    assert curve.quantile(0.5) == pytest.approx(truth, rel=0.08)
    naive = np.median(waits[waits <= watched])
    assert naive < 0.85 * truth


def test_a_slope_with_outliers_and_ties():
    x = np.arange(60.0)
    y = 3600 - 0.5 * x
    y[::7] += 500
    trend = stats.theil_sen(x, np.round(y))
    assert trend.slope == pytest.approx(-0.5, abs=0.05)
    assert trend.low <= trend.slope <= trend.high < 0
    assert trend.found
    flat = stats.theil_sen(x, np.full(60, 3.0))
    assert (flat.slope, flat.low, flat.high, flat.found) == (0, 0, 0, False)
    assert stats.theil_sen(x[:7], y[:7]) is None
    assert stats.theil_sen(np.zeros(30), np.arange(30)) is None


def test_the_interval_holds_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(11)
    x = np.arange(50.0)
    held = 0
    for _ in range(200):
        trend = stats.theil_sen(x, 0.1 * x + generator.normal(0, 2, 50))
        held += trend.low <= 0.1 <= trend.high
    assert 180 <= held <= 200


def test_readings_that_hang_together_widen_the_interval():
    generator = np.random.default_rng(3)
    alarms = {}
    for kind in ("as is", "widened"):
        alarms[kind] = 0
        for _ in range(100):
            noise = np.zeros(120)
            steps = generator.normal(0, 1, 120)
            for at in range(1, 120):
                noise[at] = 0.6 * noise[at - 1] + steps[at]
            trend = stats.theil_sen(np.arange(120.0), noise)
            assert 0.2 < trend.autocorrelation < 0.9
            half = (trend.high - trend.low) / 2
            if kind == "as is":
                factor = (1 + trend.autocorrelation) / (1 - trend.autocorrelation)
                half /= factor**0.5
            alarms[kind] += abs(trend.slope) > half
    assert alarms["widened"] <= 15 < 20 < alarms["as is"]


def test_many_readings_are_thinned_and_days_are_medians():
    x = np.arange(20_000.0)
    trend = stats.theil_sen(x, -0.001 * x)
    assert trend.points == stats.TREND_POINTS_MAX
    assert trend.slope == pytest.approx(-0.001)
    days, values = stats.by_day([0, 1, 2, 86_400_000, 3 * 86_400_000], [1, 9, 2, 5, 6])
    assert days.tolist() == [0, 1, 3]
    assert values.tolist() == [2, 5, 6]
    assert stats.by_day([], [])[0].size == 0


def test_medians_of_a_fleet():
    assert stats.median_interval([]) is None
    few = stats.median_interval([3, 1, 2])
    assert (few.value, few.low, few.high, few.count) == (2, None, None, 3)
    ten = stats.median_interval(range(10))
    assert (ten.value, ten.low, ten.high) == (4.5, 1, 8)
    many = stats.median_interval(range(2001))
    assert many.low == pytest.approx(956, abs=2) and many.high == pytest.approx(1044, abs=2)


def test_outliers_by_the_median_deviation():
    scores = stats.modified_z([10, 11, 12, 13, 14, 90])
    assert np.flatnonzero(np.abs(scores) > stats.OUTLIER_Z).tolist() == [5]
    assert scores[2] == pytest.approx(0.6745 * (12 - 12.5) / 1.5)
    most_equal = stats.modified_z([5, 5, 5, 5, 5, 5, 5, 9])
    assert np.flatnonzero(np.abs(most_equal) > stats.OUTLIER_Z).tolist() == [7]
    assert not stats.modified_z([1, 2, 900]).any()
    assert not stats.modified_z([4] * 9).any()
