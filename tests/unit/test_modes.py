"""Modes that change at any time, and budgets that hold a link back."""

import pytest

from drupelet.node import BATCH, INTERACTIVE
from drupelet_host.member.byte_budget import ByteBudget
from drupelet_host.member.mode_policy import AUTO, set_mode
from helpers import EPOCH_MS, Draw, Member, Network, check_causal


@pytest.mark.parametrize("seed", range(6))
def test_modes_switch_at_any_time(seed) -> None:
    draw = Draw(seed)
    made = [Member(name, draw) for name in "abc"]
    network = Network(draw, made, [("a", "b"), ("b", "c")], loss=300, repeat=100, reorder=100)
    count = 0
    for _ in range(60):
        if count < 30 and draw(2):
            assert made[draw(3)].publish(bytes(draw(400)), network.now_ms)
            count += 1
        member = made[draw(3)]
        for link in member.links.values():
            link.set_mode((BATCH, INTERACTIVE)[draw(2)])
        network.round()
    network.run(lambda: network.complete(count), 4000)
    for member in made:
        check_causal(member)


def test_a_budget_bounds_the_bytes_of_every_epoch() -> None:
    draw = Draw(3)
    made = [Member(name, draw) for name in "ab"]
    network = Network(draw, made, [("a", "b")])
    made[0].links["b"].budget = ByteBudget(EPOCH_MS, 1500, 0)
    for index in range(40):
        assert made[0].publish(bytes((index,)) * 300, network.now_ms)
    assert made[0].publish(bytes(5000), network.now_ms)
    line = network.lines["a", "b"]
    spent = []
    for _ in range(400):
        before = line.bytes
        for _ in range(4):  # an epoch
            network.round()
        spent.append(line.bytes - before)
        if network.complete(41):
            break
    # A stretch as long as an epoch touches two of the budget's.
    assert max(spent) <= 2 * 1500
    assert sum(spent) <= 1500 * (len(spent) + 1)
    # 17,000 bytes of bodies need no fewer epochs.
    assert network.complete(41) and len(spent) >= 17_000 // 1500


def test_a_budget_wakes_its_link_when_it_is_filled_again() -> None:
    draw = Draw(4)
    made = [Member(name, draw) for name in "ab"]
    Network(draw, made, [("a", "b")])
    link = made[0].links["b"]
    link.budget = ByteBudget(EPOCH_MS, 1024, 0)
    for _ in range(8):
        assert made[0].publish(bytes(900), 0)
    frame = bytearray(1024)
    now_ms = sent = 0
    for _ in range(20):
        link.hear(now_ms)
        if link.poll_into(frame, now_ms):
            sent += 1
        assert link.poll_into(frame, now_ms) == 0
        wait_ms = link.wake_ms(now_ms)
        assert 0 < wait_ms <= EPOCH_MS
        now_ms += wait_ms
        if sent == 8:
            break
    assert sent == 8
    assert now_ms <= 12 * EPOCH_MS


def bytes_in(mode, both_have_it):
    """Bytes of a run in which messages reach both sides from elsewhere, or only one."""
    draw = Draw(11)
    made = [Member(name, draw) for name in "abc"]
    edges = [("a", "b"), ("b", "c"), ("a", "c")] if both_have_it else [("a", "b")]
    network = Network(draw, made if both_have_it else made[:2], edges)
    for member in network.members.values():
        for link in member.links.values():
            set_mode(link, mode)
    for index in range(300):
        assert made[index % 2].publish(bytes((index & 255,)) * 560, network.now_ms)
        network.round()
    network.run(lambda: network.complete(300), 4000)
    links = [link for member in network.members.values() for link in member.links.values()]
    return sum(line.bytes for line in network.lines.values()), links


def test_auto_comes_near_the_better_mode() -> None:
    """In a triangle offers save bytes; on a line of two they cost some. AUTO finds out which."""
    for both_have_it, better in ((False, BATCH), (True, INTERACTIVE)):
        cost = {mode: bytes_in(mode, both_have_it)[0] for mode in (BATCH, INTERACTIVE)}
        assert min(cost, key=cost.get) == better
        auto, links = bytes_in(AUTO, both_have_it)
        best, worst = min(cost.values()), max(cost.values())
        assert auto <= best + (worst - best) * 3 // 4, (cost, auto)
        assert better in [link.exchange.policy.mode for link in links]
