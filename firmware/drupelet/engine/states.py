"""What one node knows of one message at one peer: the state table (BSP v1 section 4.1).

The three flags of the text are the state, eight in all; whoever else wants to change a flag goes
through `step`. Whatever a peer sends has an answer; a cell that holds NO is a mistake of our own.
"""

from drupelet.base.compat import const

HOLD = const(1)  # the peer is known to hold the message
ACK = const(2)  # we owe the peer an acknowledgement
REQUEST = const(4)  # the peer asked for it since we last offered or sent it
_FLAGS = const(7)
NO = const(0xFF)

GOT_ACK = const(0)
GOT_OFFER = const(1)
GOT_REQUEST = const(2)
GOT_MESSAGE = const(3)
DO_ACK = const(4)
DO_OFFER = const(5)
DO_SEND = const(6)
EVENTS = const(7)

# A peer that asks for what it acknowledged has lost it: HOLD falls. Sending to a holder, offering
# what was asked for and acknowledging what is not owed are mistakes of our own.
# fmt: off
_TABLE = bytes((
    # ack offer request message do_ack do_offer do_send
    1, 3, 4, 3, NO, 0, 0,    # -
    1, 3, 4, 3, NO, NO, NO,  # H
    3, 3, 6, 3, 0, 2, 2,     # A
    3, 3, 6, 3, 1, NO, NO,   # HA
    1, 3, 4, 3, NO, NO, 0,   # R
    1, 3, 4, 3, NO, NO, NO,  # HR: never entered, listed so that the table is whole
    3, 3, 6, 3, 4, NO, 2,    # AR
    3, 3, 6, 3, 5, NO, NO,   # HAR: never entered
))
# fmt: on
assert len(_TABLE) == 8 * EVENTS

# Beside the protocol's flags a state byte holds where the message stands in our own work.
QUEUED = const(8)  # our log cursor for this peer has passed it: it is ours to deliver
BUNDLED = const(16)  # written into one of our bundles that is on the stick
BUNDLING = const(32)  # written into the bundle that is being made
ACKING = const(64)  # acknowledged in the bundle that is being made
# `compact-1`: it went as a MESSAGE since it was last offered: who has its number knows its index.
INDEXED = const(128)


def step(state: int, event: int) -> int:
    """The state byte after `event` (its upper bits kept), or NO."""
    after = _TABLE[(state & _FLAGS) * EVENTS + event]
    return after if after == NO else (state & ~_FLAGS) | after
