"""The state table, cell by cell, against the flags of BSP v1 section 4.1 written out as rules."""

import pytest

from drupelet.engine import states
from drupelet.engine.states import (
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

STATES = 4
OURS = (
    states.WANTED, states.EPHEMERAL, states.BUNDLED, states.BUNDLING, states.INDEXED,
    states.TOO_LONG,
)  # fmt: skip
EVENT_NAMES = {
    GOT_ACK: "got_ack",
    GOT_OFFER: "got_offer",
    GOT_REQUEST: "got_request",
    GOT_MESSAGE: "got_message",
    DO_OFFER: "do_offer",
    DO_SEND: "do_send",
}
cells = pytest.mark.parametrize("state", range(STATES))

# Every cell by name: what is known of a message at a peer (H it holds it, R it asked for it), what
# happens, what is known then, and what the text says or why we never come here (NO). The third
# flag of the text, that we owe an acknowledgement, is kept by the inbox (see test_inbox.py).
# fmt: off
CELLS = (
    ("", GOT_ACK, "H", "4.1: the peer is known to hold the message"),
    ("", GOT_OFFER, "H", "3: who offers holds it"),
    ("", GOT_REQUEST, "R", "4.1: requested since we last offered or sent it"),
    ("", GOT_MESSAGE, "H", "3: who sends it holds it"),
    ("", DO_OFFER, "", "4.2: offer what is shared and not known to be held"),
    ("", DO_SEND, "", "4.2, batch: send what is shared and not known to be held"),
    ("H", GOT_ACK, "H", "it says again that it holds it"),
    ("H", GOT_OFFER, "H", "it holds it, as was known"),
    ("H", GOT_REQUEST, "R", "3: it asks to be sent it, so it has it no more"),
    ("H", GOT_MESSAGE, "H", "it holds it, as was known"),
    ("H", DO_OFFER, NO, "4.2: offered is what is not known to be held"),
    ("H", DO_SEND, NO, "4.2: sent is what is not known to be held, or asked for"),
    ("R", GOT_ACK, "H", "it got it another way: what it holds it need not be sent"),
    ("R", GOT_OFFER, "H", "it got it another way: who offers holds it"),
    ("R", GOT_REQUEST, "R", "asked again, sent once"),
    ("R", GOT_MESSAGE, "H", "it got it another way: who sends it holds it"),
    ("R", DO_OFFER, NO, "4.2: what was requested is sent, not offered"),
    ("R", DO_SEND, "", "4.1: not requested since we last sent it"),
    ("HR", GOT_ACK, "H", "never entered: a request ends the holding"),
    ("HR", GOT_OFFER, "H", "never entered"),
    ("HR", GOT_REQUEST, "R", "never entered"),
    ("HR", GOT_MESSAGE, "H", "never entered"),
    ("HR", DO_OFFER, NO, "4.2: offered is what is not known to be held"),
    ("HR", DO_SEND, NO, "never entered"),
)
# fmt: on
FLAGS = {"H": HOLD, "R": REQUEST}


def flags(letters: str) -> int:
    return sum(FLAGS[letter] for letter in letters)


def name_of(cell: tuple) -> str:
    before, event, after, _ = cell
    return (
        f"{before or 'nothing'}-{EVENT_NAMES[event]}-{'no' if after == NO else after or 'nothing'}"
    )


def expected(state: int, event: int) -> int:
    """What section 4 says of the two flags; NO where we would make a mistake."""
    hold, request = state & HOLD, state & REQUEST
    if event in (GOT_ACK, GOT_OFFER, GOT_MESSAGE):
        return HOLD
    if event == GOT_REQUEST:
        return REQUEST
    if event == DO_OFFER:
        return NO if hold or request else 0
    return NO if hold else 0


@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_cell(cell: tuple) -> None:
    before, event, after, why = cell
    assert step(flags(before), event) == (NO if after == NO else flags(after)), why
    assert expected(flags(before), event) == (NO if after == NO else flags(after)), "the rules"


def test_there_is_a_cell_for_every_state_and_event() -> None:
    named = {(flags(before), event) for before, event, _, _ in CELLS}
    assert named == {(state, event) for state in range(STATES) for event in range(EVENTS)}
    assert len(CELLS) == STATES * EVENTS == 24 == len(named)


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
    for _ in range(STATES):
        reached |= {step(s, e) for s in reached for e in range(EVENTS)} - {NO}
    assert reached == set(range(STATES)) - {HOLD | REQUEST}
    assert all(not bit & 3 for bit in OURS) and len(set(OURS)) == len(OURS)


def test_no_state_byte_is_the_code_for_a_mistake() -> None:
    """The bits of ours take the whole byte, so NO is told apart by HOLD and REQUEST together."""
    for state in (0, HOLD, REQUEST):
        for event in range(EVENTS):
            for bits in range(0, 256, STATES):
                after = step(state | bits, event)
                assert (after == NO) == (expected(state, event) == NO), (state, bits, event)
