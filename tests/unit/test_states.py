"""The state table, cell by cell, against the flags of BSP v1 section 4.1 written out as rules."""

import pytest

from drupelet.engine import states
from drupelet.engine.states import (
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

# Every cell by name: what is known of a message at a peer (H it holds it, A we owe it an
# acknowledgement, R it asked for it), what happens, what is known then, and what the text says or
# why we never come here (NO).
# fmt: off
CELLS = (
    ("", GOT_ACK, "H", "4.1: the peer is known to hold the message"),
    ("", GOT_OFFER, "HA", "3: who offers holds it; 4.2: acknowledge what was offered and is held"),
    ("", GOT_REQUEST, "R", "4.1: requested since we last offered or sent it"),
    ("", GOT_MESSAGE, "HA", "4.2: acknowledge what was received; who sends it holds it"),
    ("", DO_ACK, NO, "3: an ACK answers a message or an offer, and there was none"),
    ("", DO_OFFER, "", "4.2: offer what is shared and not known to be held"),
    ("", DO_SEND, "", "4.2, batch: send what is shared and not known to be held"),
    ("H", GOT_ACK, "H", "it says again that it holds it"),
    ("H", GOT_OFFER, "HA", "4.2: acknowledge what was offered and is held"),
    ("H", GOT_REQUEST, "R", "3: it asks to be sent it, so it has it no more"),
    ("H", GOT_MESSAGE, "HA", "4.2: acknowledge what was received, a second time too"),
    ("H", DO_ACK, NO, "nothing to acknowledge"),
    ("H", DO_OFFER, NO, "4.2: offered is what is not known to be held"),
    ("H", DO_SEND, NO, "4.2: sent is what is not known to be held, or asked for"),
    ("A", GOT_ACK, "HA", "our acknowledgement is owed all the same"),
    ("A", GOT_OFFER, "HA", "it holds it; one acknowledgement answers all"),
    ("A", GOT_REQUEST, "AR", "4.1: requested; the acknowledgement is owed all the same"),
    ("A", GOT_MESSAGE, "HA", "it holds it; one acknowledgement answers all"),
    ("A", DO_ACK, "", "4.1: nothing left to acknowledge"),
    ("A", DO_OFFER, "A", "4.2: in any order; the acknowledgement is owed all the same"),
    ("A", DO_SEND, "A", "4.2: in any order; the acknowledgement is owed all the same"),
    ("HA", GOT_ACK, "HA", "it holds it, as was known"),
    ("HA", GOT_OFFER, "HA", "one acknowledgement answers all"),
    ("HA", GOT_REQUEST, "AR", "3: it asks to be sent it, so it has it no more"),
    ("HA", GOT_MESSAGE, "HA", "one acknowledgement answers all"),
    ("HA", DO_ACK, "H", "4.1: nothing left to acknowledge"),
    ("HA", DO_OFFER, NO, "4.2: offered is what is not known to be held"),
    ("HA", DO_SEND, NO, "4.2: sent is what is not known to be held, or asked for"),
    ("R", GOT_ACK, "H", "it got it another way: what it holds it need not be sent"),
    ("R", GOT_OFFER, "HA", "it got it another way; acknowledge what was offered and is held"),
    ("R", GOT_REQUEST, "R", "asked again, sent once"),
    ("R", GOT_MESSAGE, "HA", "it got it another way; acknowledge what was received"),
    ("R", DO_ACK, NO, "nothing to acknowledge"),
    ("R", DO_OFFER, NO, "4.2: what was requested is sent, not offered"),
    ("R", DO_SEND, "", "4.1: not requested since we last sent it"),
    ("HR", GOT_ACK, "H", "never entered: a request ends the holding"),
    ("HR", GOT_OFFER, "HA", "never entered"),
    ("HR", GOT_REQUEST, "R", "never entered"),
    ("HR", GOT_MESSAGE, "HA", "never entered"),
    ("HR", DO_ACK, NO, "nothing to acknowledge"),
    ("HR", DO_OFFER, NO, "4.2: offered is what is not known to be held"),
    ("HR", DO_SEND, NO, "never entered"),
    ("AR", GOT_ACK, "HA", "it got it another way; our acknowledgement is owed all the same"),
    ("AR", GOT_OFFER, "HA", "it got it another way; one acknowledgement answers all"),
    ("AR", GOT_REQUEST, "AR", "asked again, sent once"),
    ("AR", GOT_MESSAGE, "HA", "it got it another way; one acknowledgement answers all"),
    ("AR", DO_ACK, "R", "4.1: nothing left to acknowledge; it is requested all the same"),
    ("AR", DO_OFFER, NO, "4.2: what was requested is sent, not offered"),
    ("AR", DO_SEND, "A", "4.1: not requested since we last sent it"),
    ("HAR", GOT_ACK, "HA", "never entered: a request ends the holding"),
    ("HAR", GOT_OFFER, "HA", "never entered"),
    ("HAR", GOT_REQUEST, "AR", "never entered"),
    ("HAR", GOT_MESSAGE, "HA", "never entered"),
    ("HAR", DO_ACK, "HR", "never entered"),
    ("HAR", DO_OFFER, NO, "4.2: offered is what is not known to be held"),
    ("HAR", DO_SEND, NO, "never entered"),
)
# fmt: on
FLAGS = {"H": HOLD, "A": ACK, "R": REQUEST}


def flags(letters: str) -> int:
    return sum(FLAGS[letter] for letter in letters)


def name_of(cell: tuple) -> str:
    before, event, after, _ = cell
    return (
        f"{before or 'nothing'}-{EVENT_NAMES[event]}-{'no' if after == NO else after or 'nothing'}"
    )


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


@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_cell(cell: tuple) -> None:
    before, event, after, why = cell
    assert step(flags(before), event) == (NO if after == NO else flags(after)), why
    assert expected(flags(before), event) == (NO if after == NO else flags(after)), "the rules"


def test_there_is_a_cell_for_every_state_and_event() -> None:
    named = {(flags(before), event) for before, event, _, _ in CELLS}
    assert named == {(state, event) for state in range(8) for event in range(EVENTS)}
    assert len(CELLS) == 56 == len(named)


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
