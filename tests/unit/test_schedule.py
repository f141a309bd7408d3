"""Epochs and waits, where both counters wrap."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base.limits import BACKOFF_EPOCHS_MAX, NOW_MODULUS_MS, WAIT_MS_MAX
from drupelet.base.time_ms import elapsed_ms, epochs_since, later_ms
from drupelet.engine.backoff import drawn, interval_epochs
from drupelet.engine.clock import Clocks

nows = st.integers(0, NOW_MODULUS_MS - 1)
waits = st.integers(0, WAIT_MS_MAX)


@given(nows, waits)
def test_elapsed_undoes_later(now: int, wait: int) -> None:
    assert elapsed_ms(later_ms(now, wait), now) == wait
    assert 0 <= later_ms(now, wait) < NOW_MODULUS_MS


def test_elapsed_over_the_wrap() -> None:
    assert elapsed_ms(5, NOW_MODULUS_MS - 3) == 8
    assert epochs_since(2, 0xFFFF) == 3


def test_intervals_double_and_are_capped() -> None:
    alone = [interval_epochs(count, False, False) for count in range(1, 256)]
    assert alone[:7] == [2, 4, 8, 16, 32, 64, 64]
    assert set(alone[6:]) == {BACKOFF_EPOCHS_MAX}
    assert {interval_epochs(count, True, False) for count in range(256)} == {2}


def begun(epoch_ms: int, now_ms: int, phase_ms: int) -> Clocks:
    """Clocks of three peers, of which the second one is looked at."""
    clocks = Clocks(3)
    clocks.begin(1, epoch_ms, now_ms, phase_ms)
    return clocks


@given(nows, st.integers(1, 100_000), st.integers(0, 255), st.lists(st.integers(0, 500_000)))
def test_epochs_number_time(now: int, epoch_ms: int, phase: int, steps: list[int]) -> None:
    phase_ms = epoch_ms * phase >> 8
    clock = begun(epoch_ms, now, phase_ms)
    passed = 0
    for step in steps:
        passed += step
        clock.advance(1, later_ms(now, passed))
        full = (passed + epoch_ms - phase_ms) // epoch_ms
        assert clock.epochs[1] == (1 + full) & 0xFFFF
        into = (passed + epoch_ms - phase_ms) % epoch_ms
        assert elapsed_ms(later_ms(now, passed), clock.start_ms(1)) == into
        assert clock.until_ms(1, later_ms(now, passed), 1) == epoch_ms - into
        assert clock.until_ms(1, later_ms(now, passed), 3) == 3 * epoch_ms - into


def test_epoch_numbers_wrap() -> None:
    clock = begun(1, 0, 0)
    clock.advance(1, 0xFFFE)
    assert clock.epochs[1] == 0
    clock.advance(1, 0xFFFE + 0x10000)
    assert clock.epochs[1] == 0


def test_a_clock_that_went_back_is_not_followed() -> None:
    clock = begun(1000, 5000, 0)
    clock.advance(1, 9500)
    epoch = clock.epochs[1]
    clock.advance(1, 8000)
    assert clock.epochs[1] == epoch
    assert clock.until_ms(1, 8000, 1) == 1000
    clock.advance(1, 10_000)
    assert clock.epochs[:3] == [1, epoch + 1, 1], "the others stand still"


def test_the_longest_epoch_and_the_longest_wait() -> None:
    clock = begun(WAIT_MS_MAX, 7, WAIT_MS_MAX - 1)
    assert clock.until_ms(1, 7, 1) == WAIT_MS_MAX - 1
    assert clock.until_ms(1, 7, 2) == WAIT_MS_MAX
    assert begun(1000, 0, 0).until_ms(1, 0, 1 << 20) == WAIT_MS_MAX
    clock.advance(1, later_ms(7, WAIT_MS_MAX))
    assert clock.epochs[1] == 2


@pytest.mark.parametrize("period", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64])
def test_what_is_drawn_follows_no_rhythm(period: int) -> None:
    """In six epochs at equal distances each pattern comes, and about as often as any other."""
    seen = dict.fromkeys(product((0, 1), repeat=6), 0)
    for epoch in range(1 << 16):
        seen[tuple(drawn((epoch + period * step) & 0xFFFF) for step in range(6))] += 1
    assert min(seen.values()) > 800 and max(seen.values()) < 1300
