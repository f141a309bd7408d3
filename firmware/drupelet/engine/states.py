"""The state byte of an outbox row: what we know of one message at one peer (BSP v1 4.1).

HOLD and REQUEST are two flags of the text; `inbox` keeps the third one, that an acknowledgement is
owed. What a peer sends, and what is sent to it, changes the flags through `step`. Beside that,
recovery sets them; an ephemeral message counts as held once it was sent; a row is held before it
is dropped; and in the MVDS family a message that was sent once, or offered twice, counts as
requested. Every event from a peer has a result; NO means a mistake in our own code.
"""

from drupelet.base.compat import const

HOLD = const(1)  # the peer is known to hold the message
REQUEST = const(2)  # the peer requested it since we last offered or sent it
_FLAGS = const(3)
NO = const(0xFF)

GOT_ACK = const(0)
GOT_OFFER = const(1)
GOT_REQUEST = const(2)
GOT_MESSAGE = const(3)
DO_OFFER = const(4)
DO_SEND = const(5)
EVENTS = const(6)

# A peer that requests a message that it acknowledged has lost it: HOLD is cleared. To send to a
# holder, or to offer a requested message, is a mistake of our own.
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

# Further bits of the state byte, beside the protocol's flags.
WANTED = const(4)  # requested after the cursor passed it; cleared when the cursor passes again
EPHEMERAL = const(8)  # sent once to each peer, offered to none
BUNDLED = const(16)  # written into one of our bundles that is on the stick
BUNDLING = const(32)  # written into the bundle that is being made
# `compact-1`: sent as MESSAGE since its last OFFER, so a peer that has its number knows its index.
INDEXED = const(64)
TOO_LONG = const(128)  # it fits no frame of the topic


def step(state: int, event: int) -> int:
    """Return the state byte after `event`, with its upper bits unchanged, or NO."""
    after = _TABLE[(state & _FLAGS) * EVENTS + event]
    return after if after == NO else (state & ~_FLAGS) | after
