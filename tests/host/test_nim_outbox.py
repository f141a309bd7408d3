"""What leaves the outgoing buffer of a channel without sync messages, and what stays."""

import pytest

from drupelet.base.limits import CHANNEL_RESENDS_MAX
from drupelet.channel.outbox import Outbox
from drupelet_host.channel.nim_outbox import LastingOutbox
from helpers_channel import Talker, publish_one, wire

PERIOD_MS = 30_000


def resends(ann: Talker, periods: int) -> list[int]:
    """How often something went out in each period, in which another participant is heard."""
    counts = []
    for number in range(periods):
        ann.hear(wire(b"t%d %d" % (ann.now_ms, number)))
        counts.append(len(ann.later(PERIOD_MS)))
    return counts


@pytest.fixture
def ann() -> Talker:
    talker = Talker(send_sync=False)
    talker.channel.outbox = LastingOutbox(talker.channel)
    return talker


def test_what_nothing_names_stays_and_goes_ever_more_rarely(ann: Talker) -> None:
    """Whoever missed every copy would never hear of it."""
    publish_one(ann, b"x", b"m")
    counts = resends(ann, 24 * CHANNEL_RESENDS_MAX)
    assert sum(counts[:CHANNEL_RESENDS_MAX]) == CHANNEL_RESENDS_MAX
    assert 1 <= sum(counts[-2 * CHANNEL_RESENDS_MAX :]) <= 3, "about every eighth period"
    assert list(ann.state) == [b"m"]


def test_the_buffer_of_the_core_lets_it_go() -> None:
    ann = Talker(send_sync=False)
    assert type(ann.channel.outbox) is Outbox
    publish_one(ann, b"x", b"m")
    resends(ann, CHANNEL_RESENDS_MAX + 2)
    assert ann.state == {}


def test_what_a_later_message_names_goes_after_eight_resends(ann: Talker) -> None:
    publish_one(ann, b"x", b"m")
    publish_one(ann, b"x", b"next")
    resends(ann, CHANNEL_RESENDS_MAX + 2)
    assert list(ann.state) == [b"next"] and b"m" in ann.log
    ann.hear(wire(b"asks", content=b"?", repair=(b"m",)))
    assert b"m" in [said.id for said in ann.say()]


def test_what_somebody_names_leaves_at_once(ann: Talker) -> None:
    publish_one(ann, b"x", b"m")
    resends(ann, 3 * CHANNEL_RESENDS_MAX)
    ann.hear(wire(b"reply", causal=(b"m",)))
    assert ann.state == {}
