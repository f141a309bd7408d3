"""What one node knows of one message at one peer: the state table of a row (BSP v1 section 4.1).

Two flags of the text are the state of a row; the third, that an acknowledgement is owed, is kept
by `inbox`. What a peer says, and what is sent to it, goes through `step`. Beside that recovery
sets them, and a message that is sent once holds when it was sent. Whatever a peer sends has an
answer; a cell that holds NO is a mistake of our own.
"""

from drupelet.base.compat import const

HOLD = const(1)  # the peer is known to hold the message
REQUEST = const(2)  # the peer asked for it since we last offered or sent it
_FLAGS = const(3)
NO = const(0xFF)

GOT_ACK = const(0)
GOT_OFFER = const(1)
GOT_REQUEST = const(2)
GOT_MESSAGE = const(3)
DO_OFFER = const(4)
DO_SEND = const(5)
EVENTS = const(6)

# A peer that asks for what it acknowledged has lost it: HOLD falls. Sending to a holder and
# offering what was asked for are mistakes of our own.
# fmt: off
_TABLE = bytes((
    # ack offer request message do_offer do_send
    1, 1, 2, 1, 0, 0,    # -
    1, 1, 2, 1, NO, NO,  # H
    1, 1, 2, 1, NO, 0,   # R
    1, 1, 2, 1, NO, NO,  # HR: an ephemeral message of MVDS that was sent
))
# fmt: on
assert len(_TABLE) == 4 * EVENTS

# Beside the protocol's flags a state byte says where the message stands in our own work.
WANTED = const(4)  # asked for when the cursor had passed it: until the cursor comes by again
EPHEMERAL = const(8)  # sent once to each peer, offered to none
BUNDLED = const(16)  # written into one of our bundles that is on the stick
BUNDLING = const(32)  # written into the bundle that is being made
# `compact-1`: it went as a MESSAGE since it was last offered: who has its number knows its index.
INDEXED = const(64)
TOO_LONG = const(128)  # it fits no frame of the topic


def step(state: int, event: int) -> int:
    """The state byte after `event` (its upper bits kept), or NO."""
    after = _TABLE[(state & _FLAGS) * EVENTS + event]
    return after if after == NO else (state & ~_FLAGS) | after
