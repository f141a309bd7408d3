"""The byte budget of an epoch: what is left of it, clocks that are set back, trains of frames."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drupelet.base.limits import NOW_MODULUS_MS
from drupelet_host.member.byte_budget import ByteBudget
from helpers import EPOCH_MS, Draw, Member, Network


def test_what_is_left_over_is_gone() -> None:
    budget = ByteBudget(1000, 500, 0)
    assert budget.room(0, 200) == 200
    budget.spend(200)
    assert budget.room(999, 1000) == 300 and budget.wait_ms(999, 301) == 1
    assert budget.wait_ms(999, 300) == 0
    assert budget.room(5000, 1000) == 500  # four idle epochs add nothing
    for _ in range(2):
        budget.spend(200)
    assert budget.room(5000, 1000) == 100
    budget.spend(100)
    assert budget.room(5999, 1) == 0
    with pytest.raises(AssertionError):
        budget.spend(1)


def test_what_the_carrier_adds_counts() -> None:
    budget = ByteBudget(1000, 500, 9)
    assert budget.room(0, 1000) == 491
    budget.spend(485)
    assert budget.room(0, 1000) == 0  # six bytes are fewer than the carrier adds


def test_a_clock_that_goes_back_buys_nothing() -> None:
    budget = ByteBudget(1000, 500, 0)
    assert budget.room(10_000, 500) == 500
    budget.spend(500)
    assert budget.room(9_000, 500) == 0 and budget.wait_ms(9_000, 500) == 1000
    assert budget.room(9_999, 500) == 0 and budget.room(10_000, 500) == 500


@settings(max_examples=60, deadline=None)
@given(st.integers(100, 100_000), st.integers(0, NOW_MODULUS_MS - 1), st.integers(0, 1 << 30))
def test_no_stretch_has_more_than_the_epochs_that_it_touches(epoch_ms, start, seed) -> None:
    random = Random(seed)
    budget = ByteBudget(epoch_ms, 1000, 4)
    sends = []
    passed = 0
    for _ in range(200):
        # Greedy, and at the worst moments: everything at the end of one epoch, then at once again.
        now = (start + passed) % NOW_MODULUS_MS
        while budget.room(now, 20) == 20:
            size = random.choice([20, 20, 20, 7])
            budget.spend(size)
            sends.append((passed, size + 4))
        wait_ms = budget.wait_ms(now, 20)
        passed += random.choice([1, epoch_ms // 3, wait_ms, wait_ms + 7])
    first = spent = 0
    for at, cost in sends:
        spent += cost
        while sends[first][0] <= at - 3 * epoch_ms:
            spent -= sends[first][1]
            first += 1
        assert spent <= 4 * 1000


def test_a_payload_is_a_train_of_frames_inside_the_budget() -> None:
    network = Network(Draw(1), [Member(name, Draw(2), pool=32) for name in "AB"], ["AB"])
    network.members["A"].node.save(0)
    for number in range(20):
        network.members["A"].publish(b"%d" % number + bytes(100))
    budgets = {name: ByteBudget(EPOCH_MS, 700, 4) for name in "AB"}
    spent = dict.fromkeys("AB", 0)
    epochs: list[int] = []
    for turn in range(400):
        now = turn * 250
        for here, there in ("AB", "BA"):
            budget = budgets[here]
            if now % EPOCH_MS == 0:
                epochs.append(spent[here])
                spent[here] = 0
            frame = bytearray(300)
            while budget.room(now, 300) == 300:
                size = network.members[here].links[there].poll_into(frame, now)
                if not size:
                    break
                budget.spend(size)
                spent[here] += size + 4
                network.members[there].links[here].receive(frame, size, now)
        network.members["B"].consume()
        if network.complete(20):
            break
    assert network.complete(20)
    assert 400 < max(epochs) <= 700 and len(epochs) > 6
