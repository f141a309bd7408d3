"""Budgets of an epoch: LoRa airtime against published figures, legal duty cycles, trains."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drupelet.base.errors import CapacityError
from drupelet.base.limits import (
    FRAME_SIZE_MAX,
    LORA_FRAME_SIZE_MAX,
    NOW_MODULUS_MS,
)
from drupelet.link.budget import Budget, LoRaAir, NoAir, duty_airtime_ms
from helpers import EPOCH_MS, Draw, Member, Network

HOUR_MS = 3_600_000

# 125 kHz, 4/5, 8 symbols of preamble: milliseconds as computed and published by others.
PUBLISHED = {
    (7, 51): 103, (9, 51): 329, (12, 51): 2_466,
    (7, 120): 200, (9, 120): 636, (12, 120): 4_596,
    (7, 222): 348, (9, 222): 1_107, (12, 222): 8_036,
}  # fmt: skip


@pytest.mark.parametrize(("spreading", "size"), PUBLISHED)
def test_airtime_is_the_published_one(spreading: int, size: int) -> None:
    ours = LoRaAir(spreading, 125_000, 5, 8).airtime_ms(size)
    assert 0 <= ours - PUBLISHED[spreading, size] <= 1  # theirs are rounded, ours rounded up


def semtech_ms(spreading: int, bandwidth_hz: int, coding: int, preamble: int, size: int) -> float:
    """The formula of the data sheet, in floats."""
    symbol_s = 2**spreading / bandwidth_hz
    slow = symbol_s >= 0.016
    bits = 8 * size - 4 * spreading + 28 + 16
    blocks = -(-bits // (4 * (spreading - 2 * slow)))
    return 1000 * symbol_s * (preamble + 4.25 + 8 + max(blocks * coding, 0))


@given(
    st.integers(7, 12), st.sampled_from([7_800, 41_700, 62_500, 125_000, 250_000, 500_000]),
    st.integers(5, 8), st.integers(6, 64), st.integers(0, LORA_FRAME_SIZE_MAX),
)  # fmt: skip
def test_airtime_is_semtechs_rounded_up(
    sf: int, bw: int, cr: int, preamble: int, size: int
) -> None:
    air = LoRaAir(sf, bw, cr, preamble)
    wanted = semtech_ms(sf, bw, cr, preamble, size)
    # A symbol that is no whole microsecond is rounded up, too: at most 1 in 200.
    assert wanted - 1e-6 <= air.airtime_ms(size) <= wanted * 1.005 + 1
    assert air.airtime_ms(size) <= air.airtime_ms(min(size + 1, LORA_FRAME_SIZE_MAX))


BAD_RADIOS = [
    (6, 125_000, 5, 8), (13, 125_000, 5, 8), (7, 125, 5, 8),
    (7, 125_000, 4, 8), (7, 125_000, 9, 8), (7, 125_000, 5, 2),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_RADIOS)
def test_a_radio_that_does_not_exist_is_refused(bad: tuple[int, int, int, int]) -> None:
    with pytest.raises(CapacityError, match="no LoRa setting"):
        LoRaAir(*bad)


def test_a_frame_beyond_the_whole_budget_is_refused_at_once() -> None:
    air = LoRaAir(12, 125_000, 5, 8)
    with pytest.raises(CapacityError, match=r"222 B, 8037 ms on the air.*\(0 B, 7200 ms"):
        Budget(900_000, 0, duty_airtime_ms(900_000, 10, HOUR_MS), air, 0, 222)
    Budget(900_000, 0, duty_airtime_ms(900_000, 10, HOUR_MS), air, 0, 120)
    with pytest.raises(CapacityError, match="more than the whole budget"):
        Budget(1000, 1000, 0, NoAir(), 4, 997)
    Budget(1000, 1001, 0, NoAir(), 4, 997)
    with pytest.raises(CapacityError, match="longer than the radio"):
        Budget(1000, 0, 0, LoRaAir(7, 125_000, 5, 8), 0, 256)


def test_what_is_left_over_is_gone() -> None:
    budget = Budget(1000, 500, 0, NoAir(), 0, 200)
    assert budget.begin_epoch(0)
    budget.spend(200)
    assert not budget.begin_epoch(999)
    assert budget.bytes_left == 300 and budget.wait_ms(999) == 1
    assert budget.begin_epoch(5000)  # four idle epochs add nothing
    assert budget.bytes_left == 500
    for _ in range(2):
        budget.spend(200)
    assert not budget.may(101) and budget.may(100)
    budget.spend(100)
    assert not budget.may(1)
    with pytest.raises(AssertionError):
        budget.spend(1)


def test_a_clock_that_goes_back_buys_nothing() -> None:
    budget = Budget(1000, 500, 0, NoAir(), 0, 500)
    budget.begin_epoch(10_000)
    budget.spend(500)
    assert not budget.begin_epoch(9_000)
    assert budget.wait_ms(9_000) == 1000
    assert not budget.begin_epoch(9_999) and budget.begin_epoch(10_000)


def test_no_bound_is_no_bound() -> None:
    budget = Budget(1000, 0, 0, NoAir(), 9, FRAME_SIZE_MAX - 9)
    budget.begin_epoch(0)
    for _ in range(1000):
        assert budget.may(FRAME_SIZE_MAX - 9)
        budget.spend(FRAME_SIZE_MAX - 9)
    assert not budget.may(FRAME_SIZE_MAX)  # with what the carrier adds it is too long


@settings(max_examples=60, deadline=None)
@given(
    st.integers(7, 12), st.integers(60_000, 2 * HOUR_MS), st.sampled_from([1, 10, 100]),
    st.integers(0, NOW_MODULUS_MS - 1), st.randoms(use_true_random=False),
)  # fmt: skip
def test_no_hour_has_more_than_the_legal_share(sf, epoch_ms, per_mille, start, random) -> None:
    air = LoRaAir(sf, 125_000, 5, 8)
    airtime = duty_airtime_ms(epoch_ms, per_mille, HOUR_MS)
    if airtime < air.airtime_ms(20):
        with pytest.raises(CapacityError):
            Budget(epoch_ms, 0, airtime, air, 0, 20)
        return
    budget = Budget(epoch_ms, 0, airtime, air, 0, 20)
    sends = []
    passed = 0
    for _ in range(200):
        # Greedy, and at the worst moments: everything at the end of one epoch, then at once again.
        now = (start + passed) % NOW_MODULUS_MS
        budget.begin_epoch(now)
        while budget.may(20):
            size = random.choice([20, 20, 20, 7])
            budget.spend(size)
            sends.append((passed, air.airtime_ms(size)))
        passed += random.choice([1, 1000, budget.wait_ms(now), budget.wait_ms(now) + 7])
    first = spent = 0
    for at, cost in sends:
        spent += cost
        while sends[first][0] <= at - HOUR_MS:
            spent -= sends[first][1]
            first += 1
        assert spent <= HOUR_MS * per_mille // 1000


def test_a_payload_is_a_train_of_frames_inside_the_budget() -> None:
    network = Network(Draw(1), [Member(name, Draw(2), pool=32) for name in "AB"], ["AB"])
    network.members["A"].node.save(0)
    for number in range(20):
        network.members["A"].publish(b"%d" % number + bytes(100))
    budgets = {name: Budget(EPOCH_MS, 700, 0, NoAir(), 4, 300) for name in "AB"}
    spent: list[int] = []
    for turn in range(400):
        now = turn * 250
        for here, there in ("AB", "BA"):
            budget = budgets[here]
            if budget.begin_epoch(now):
                spent.append(0)
            frame = bytearray(300)
            while budget.may(300):
                size = network.members[here].links[there].poll_into(frame, now)
                if not size:
                    break
                budget.spend(size)
                spent[-1] += size + 4
                network.members[there].links[here].receive(frame, size, now)
        network.members["B"].consume()
        if network.complete(20):
            break
    assert network.complete(20)
    assert 400 < max(spent) <= 700 and len(spent) > 6
