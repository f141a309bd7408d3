"""The state table, cell by cell, against the flags of BSP v1 section 4.1 written out as rules."""

import pytest

from drupelet import states
from drupelet.states import (
    ACK,
    DO_ACK,
    DO_OFFER,
    DO_SEND,
    EVENTS,
    GOT_ACK,
    GOT_MESSAGE,
    GOT_OFFER,
    GOT_REQUEST,
    HOLD,
    NO,
    REQUEST,
    step,
)

OURS = (states.QUEUED, states.BUNDLED, states.BUNDLING, states.ACKING)
EVENT_NAMES = {
    GOT_ACK: "got_ack",
    GOT_OFFER: "got_offer",
    GOT_REQUEST: "got_request",
    GOT_MESSAGE: "got_message",
    DO_ACK: "do_ack",
    DO_OFFER: "do_offer",
    DO_SEND: "do_send",
}
cells = pytest.mark.parametrize("state", range(8))


def expected(state: int, event: int) -> int:
    """What section 4 says of the three flags; NO where we would make a mistake."""
    hold, ack, request = state & HOLD, state & ACK, state & REQUEST
    if event == GOT_ACK:
        return HOLD | ack
    if event in (GOT_OFFER, GOT_MESSAGE):
        return HOLD | ACK
    if event == GOT_REQUEST:
        return REQUEST | ack
    if event == DO_ACK:
        return hold | request if ack else NO
    if event == DO_OFFER:
        return NO if hold or request else ack
    return NO if hold else ack


@cells
@pytest.mark.parametrize("event", range(EVENTS), ids=EVENT_NAMES.get)
def test_cell(state: int, event: int) -> None:
    assert step(state, event) == expected(state, event)


@cells
def test_a_peer_can_do_nothing_that_the_table_does_not_know(state: int) -> None:
    assert NO not in [step(state, event) for event in (GOT_ACK, GOT_OFFER, GOT_REQUEST)]
    assert step(state, GOT_MESSAGE) != NO


@cells
@pytest.mark.parametrize("event", range(EVENTS), ids=EVENT_NAMES.get)
def test_our_own_bits_stay(state: int, event: int) -> None:
    for bit in (*OURS, sum(OURS)):
        after = step(state | bit, event)
        assert after == (NO if expected(state, event) == NO else expected(state, event) | bit)


def test_what_is_never_entered() -> None:
    reached = {0}
    for _ in range(8):
        reached |= {step(s, e) for s in reached for e in range(EVENTS)} - {NO}
    assert reached == set(range(8)) - {HOLD | REQUEST, HOLD | ACK | REQUEST}
    assert all(not bit & 7 for bit in OURS) and len(set(OURS)) == 4 and NO > 7 + sum(OURS)
