"""The choice between batch and interactive: formulas by simulation, and networks that choose."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.engine.inbox import OFFERED
from drupelet.node import BATCH, INTERACTIVE
from drupelet_host.member.mode_policy import EVENTS_MAX, STAY_EPOCHS, STAY_EPOCHS_MAX, Policy
from helpers import Draw, Member, Network

ID_SIZE = 33
RECORD_HEADER = 44  # record header, group, timestamp


# --- the formulas ---


def batch_bytes(draw: random.Random, passes: float, size: int) -> int:
    """One message until its sender knows: every copy that comes in is acknowledged."""
    total = 0
    while True:
        total += size
        if draw.random() < passes:
            total += ID_SIZE
            if draw.random() < passes:
                return total


def interactive_bytes(draw: random.Random, passes: float, size: int, held: bool) -> int:
    """The same: offered until acknowledged; asked for once per offer; sent once per request."""
    total = 0
    while True:
        total += ID_SIZE
        if draw.random() >= passes:
            continue
        total += ID_SIZE  # ACK or REQUEST
        if draw.random() >= passes:
            continue
        if held:
            return total
        total += size
        if draw.random() < passes:
            held = True
            total += ID_SIZE
            if draw.random() < passes:
                return total


@pytest.mark.parametrize("passes", [1.0, 0.875, 0.625])
@pytest.mark.parametrize("size", [100, 996])
def test_the_formulas_are_what_the_rules_cost(passes: float, size: int) -> None:
    draw = random.Random(1)
    count = 6_000
    policy = Policy(BATCH, ID_SIZE, 0)
    policy.on_sent(size, False)
    share = int(passes * 256)
    mean = sum(batch_bytes(draw, passes, size) for _ in range(count)) / count
    assert policy.batch_cost(share) == pytest.approx(mean, rel=0.04)
    for held in (0, 96, 256):
        runs = [interactive_bytes(draw, passes, size, i % 256 < held) for i in range(count)]
        assert policy.interactive_cost(share, held) == pytest.approx(sum(runs) / count, rel=0.04)


@given(st.integers(64, 256), st.integers(0, 256), st.integers(45, 32_868), st.integers(0, 4096))
def test_costs_are_small_ints_and_grow_with_loss(passes, held, size, price) -> None:
    policy = Policy(BATCH, ID_SIZE, price)
    policy.on_sent(size, False)
    batch, interactive = policy.batch_cost(passes), policy.interactive_cost(passes, held)
    assert 0 < batch < 1 << 30 and 0 < interactive < 1 << 30
    assert batch >= policy.batch_cost(256) and interactive >= policy.interactive_cost(256, held)
    assert policy.interactive_cost(passes, 256) <= interactive


# --- measuring and choosing ---


def fed(mode: int, events: str, price: int = 0, size: int = 144) -> Policy:
    """A policy after events: s sent, r sent again, a acked, q requested, i in, h in and held."""
    policy = Policy(mode, ID_SIZE, price)
    for event in events:
        feed(policy, event, size)
    return policy


def feed(policy: Policy, event: str, size: int = 144) -> None:
    """Report one event to a policy."""
    if event in "sr":
        policy.on_sent(size, event == "r")
    elif event == "a":
        policy.on_acked(2)
    elif event == "q":
        policy.on_requested()
    else:
        policy.on_incoming(event == "h")


def settled(policy: Policy, epochs: int = STAY_EPOCHS) -> int:
    for _ in range(epochs):
        mode = policy.begin_epoch()
    return mode


def test_shares() -> None:
    assert fed(BATCH, "s" * 7).pass_share() == 256, "too little is known"
    assert fed(BATCH, "s" * 50).pass_share() == 256
    # Half of the sends were in vain: 0.707 each way.
    assert fed(BATCH, "sr" * 30).pass_share() == 181
    assert fed(BATCH, "r" * 30).pass_share() == 64
    assert fed(BATCH, "h" * 7).held_share() == -1
    assert fed(BATCH, "hi" * 20).held_share() == 128
    assert fed(INTERACTIVE, "aq" * 20).held_share() == 0
    assert fed(INTERACTIVE, "aaaq" * 10).held_share() == 171
    # A third comes again because our ACKs are lost, and no more: nothing is held.
    assert fed(BATCH, "sr" * 30 + "iiiiiiihhh" * 4).held_share() <= 2


def test_what_the_engine_reports_counts_as_what_was_sent() -> None:
    """A first send, one to a peer that was heard since, one to a silent peer; some are offers."""
    policy, direct = Policy(BATCH, ID_SIZE, 0), Policy(BATCH, ID_SIZE, 0)
    for turn in range(60):
        is_offer = turn % 5 == 4
        sends, is_heard = turn % 2, turn % 4 != 3
        policy.on_send(is_offer, sends, is_heard)
        if not is_offer:
            policy.on_written(144)
        if is_heard or not sends:
            if is_offer:
                direct.on_offered(sends > 0)
            else:
                direct.on_sent(144, sends > 0)
    assert policy.size == direct.size == 144
    assert policy.pass_share() == direct.pass_share() < 256


def test_the_rule() -> None:
    assert settled(fed(BATCH, "s" * 20 + "i" * 20)) == BATCH
    assert settled(fed(BATCH, "s" * 20 + "h" * 20)) == INTERACTIVE
    assert settled(fed(BATCH, "s" * 20)) == BATCH, "nothing is known of what the peer has"
    assert settled(fed(BATCH, "h" * 20)) == BATCH, "nothing was sent"
    assert settled(fed(INTERACTIVE, "s" * 20 + "aq" * 20)) == BATCH
    assert settled(fed(INTERACTIVE, "s" * 20 + "aaaq" * 20)) == INTERACTIVE
    # Long messages on a bad line are better offered first: a lost ACK does not bring them again.
    assert settled(fed(BATCH, "sr" * 20 + "i" * 20, size=996)) == INTERACTIVE
    assert settled(fed(BATCH, "s" * 20 + "i" * 20, size=996)) == BATCH
    # An owner who pays 200 bytes to have it an epoch earlier gets batch all the same.
    assert settled(fed(BATCH, "s" * 20 + "h" * 20, price=200)) == BATCH


def test_small_differences_change_nothing() -> None:
    for held in range(41):
        events = "s" * 40 + "h" * held + "i" * (40 - held)
        policy = fed(BATCH, events)
        chosen = settled(policy)
        share = held * 256 // 40
        probe = fed(BATCH, events)
        cheaper = probe.batch_cost(256) - probe.interactive_cost(256, share)
        assert (chosen == INTERACTIVE) == (cheaper > probe.batch_cost(256) >> 3), held


def test_a_link_on_the_edge_changes_less_and_less() -> None:
    policy = fed(BATCH, "s" * 20)
    for _ in range(4_000):
        # Each mode measures that the other one is better.
        if policy.mode == BATCH:
            policy.on_incoming(True)
        else:
            policy.on_acked(2)
            policy.on_requested()
        policy.begin_epoch()
    assert policy.changes <= 8 + 4_000 // STAY_EPOCHS_MAX


def test_what_was_long_ago_counts_for_little() -> None:
    """However much there was of it, and in both directions."""
    for mode, before, after in (
        (BATCH, "s", "r"), (BATCH, "h", "i"), (INTERACTIVE, "a", "aq"),
    ):  # fmt: skip
        for old, new in ((before, after), (after, before)):
            shares = [fed(mode, events) for events in (new * 10_000, old * 10_000, old * 10_000)]
            for event in new * 4 * EVENTS_MAX:
                feed(shares[2], event)
            wanted, other, changed = [
                policy.pass_share() if before == "s" else policy.held_share() for policy in shares
            ]
            assert abs(changed - wanted) < abs(other - wanted) // 4, (old, new)


@given(st.text("sraqih", max_size=2_000), st.sampled_from([BATCH, INTERACTIVE]))
def test_shares_are_bounded_and_a_mode_is_a_mode(events: str, mode: int) -> None:
    policy = Policy(mode, ID_SIZE, 0)
    stayed = 0
    for event in events:
        before = policy.mode
        if event in "sr":
            policy.on_sent(45 + len(events), event == "r")
        elif event == "a":
            policy.on_acked(len(events) - 1000)
        elif event == "q":
            policy.on_requested()
        else:
            policy.on_incoming(event == "h")
        stayed += 1
        assert policy.begin_epoch() in (BATCH, INTERACTIVE)
        assert -1 <= policy.held_share() <= 256 and 64 <= policy.pass_share() <= 256
        assert 0 <= policy.trip <= 1024
        if policy.mode != before:
            assert stayed >= STAY_EPOCHS
            stayed = 0


# --- networks that choose ---


class Watch:
    """Feeds a policy from one link's calls, and sets the link's mode at each epoch."""

    def __init__(self, link, policy: Policy) -> None:
        self.link = link
        self.exchange = link.exchange
        self.policy = policy
        for name in ("note_sent", "take_offer", "on_ack", "on_request", "on_offer",
                     "reack_if_known", "after_accept"):  # fmt: skip
            call = getattr(self.exchange, name)
            setattr(self.exchange, name, self.around(call, getattr(self, name)))
        link.exchange.pace.begin_epoch = self.around(
            link.exchange.pace.begin_epoch, self.begin_epoch
        )

    def around(self, call, mine):
        return lambda *args: mine(call, *args)

    def again(self, row: int) -> int:
        """1 after an earlier send that the peer outlived, 0 for the first, -1: it is silent."""
        pace, outbox = self.link.exchange.pace, self.exchange.outbox
        if not outbox.sends(row):
            return 0
        since = (pace.heard_epoch - outbox.epoch(row)) % 65536
        return 1 if pace.heard_epoch >= 0 and since < 0x8000 else -1

    def note_sent(self, call, row: int) -> None:
        again = self.again(row)
        if again >= 0:
            # What was asked for is no repetition of its offer.
            self.policy.on_sent(RECORD_HEADER + self.link.core.store.size, again == 1)
        call(row)

    def take_offer(self, call, buf, at) -> bool:
        before = [self.again(row) for row in range(self.exchange.outbox.count)]
        is_written = call(buf, at)
        if is_written and before[self.link.core.message_row] >= 0:
            self.policy.on_offered(before[self.link.core.message_row] == 1)
        return is_written

    def on_ack(self, call, buf, at) -> None:
        outbox = self.exchange.outbox
        row = outbox.find(buf, at)
        if row >= 0 and outbox.is_open(row) and outbox.sends(row):
            once = outbox.sends(row) == 1
            epochs = (self.link.exchange.epoch - outbox.epoch(row)) % 65536
            self.policy.on_acked(epochs if once else -1)
        call(buf, at)

    def on_request(self, call, buf, at) -> None:
        if self.exchange.outbox.find(buf, at) >= 0:
            self.policy.on_requested()
        call(buf, at)

    def on_offer(self, call, buf, at) -> None:
        call(buf, at)
        inbox = self.exchange.inbox
        entry = inbox.find(buf, at)
        self.policy.on_incoming(entry < 0 or inbox.kind(entry) != OFFERED)

    def reack_if_known(self, call, id) -> bool:
        is_held = call(id)
        if is_held:
            self.policy.on_incoming(True)
        return is_held

    def after_accept(self, call, outcome, group) -> None:
        self.policy.on_incoming(False)
        call(outcome, group)

    def begin_epoch(self, call, epoch: int) -> None:
        call(epoch)
        self.exchange.interactive = self.policy.begin_epoch() == INTERACTIVE


def traffic(edges, writers, body: int, seed: int, first: int, choose: bool, loss: int = 0) -> int:
    """Bytes on the line A-B for the second half of 60 messages, the policies having settled."""
    draw = Draw(seed)
    members = [Member(name, draw, pool=32) for name in sorted({*"".join(edges)})]
    network = Network(draw, members, edges, first, loss=loss)
    policies = []
    for member in members:
        for link in member.links.values():
            if choose:
                policies.append(Policy(first, ID_SIZE, 0))
                Watch(link, policies[-1])
    lines = [network.lines[pair] for pair in (("A", "B"), ("B", "A"))]
    begun = published = 0
    for count in range(60):
        if count == 30:
            begun = sum(line.bytes for line in lines)
        writer = network.members[writers[count % len(writers)]]
        published += writer.publish(b"%d" % count + bytes(body), network.now_ms) is not None
        for _ in range(9):
            network.round()
    network.run(lambda: network.complete(published), 2_000)
    assert published == 60
    return sum(line.bytes for line in lines) - begun


WORLDS = {
    # Two members that write for each other: everything is new to the other.
    "pair": (["AB"], "AB", 100, 0, BATCH),
    # C tells both A and B; what A has for B is old by then.
    "mesh": (["AB", "AC", "BC"], "C", 100, 0, INTERACTIVE),
    "bad line": (["AB"], "AB", 800, 300, INTERACTIVE),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("first", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
def test_a_network_comes_to_the_cheaper_mode(world: str, first: int) -> None:
    edges, writers, body, loss, best = WORLDS[world]
    fixed, chosen = [0, 0], 0
    for seed in range(3):
        for mode in (BATCH, INTERACTIVE):
            fixed[mode] += traffic(edges, writers, body, seed, mode, False, loss)
        chosen += traffic(edges, writers, body, seed, first, True, loss)
    assert fixed[best] < fixed[1 - best], "the world is not what it should be"
    margin = (fixed[1 - best] - fixed[best]) // 2
    assert chosen <= fixed[best] + max(margin, fixed[best] // 8)
