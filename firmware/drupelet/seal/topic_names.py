"""A sealed link's topics on a broker: names that only its two ends can compute (docs/SPEC.md 7.2).

They are derived from the root's name key, whose record is kept beside those of the chains. They
last as long as the root, because both ends must find them again after any reboot or restore; a new
root changes them. Loaded when a carrier is opened or its link gets a new root.
"""

import binascii

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.hmac256 import hmac
from drupelet.base.memory import fill, get_u16
from drupelet.seal.record import (
    GENERATION_AT,
    KID_AT,
    NAME,
    RECEIVE,
    RECORD_GENERATION_AT,
    RECORD_KEY_AT,
    row_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.seal.seal import Seal

# 2^48 names: a guess that a broker confirms 100,000 times a second takes 45 years on average.
_NAME_SIZE = const(6)
_KEY_SIZE = const(32)


def topics(seal: "Seal") -> "tuple[list[bytes], bytes]":
    """Return the topics to subscribe to, one for each root that the peer may use, and the topic to
    publish to."""
    keys = seal.keys
    record = seal.context.record
    inboxes = []
    for parity in (0, 1):
        if keys.load(row_of(0, RECEIVE, parity), record) == OK:
            generation = get_u16(record, RECORD_GENERATION_AT)
            inboxes.append(_topic(seal, generation, keys.peer_id, keys.own_id))
    generation = get_u16(seal.context.rows, seal.at + GENERATION_AT)
    return inboxes, _topic(seal, generation, keys.own_id, keys.peer_id)


def _topic(seal: "Seal", generation: int, sender: bytes, receiver: bytes) -> bytes:
    """Return the topic of one direction: 8 characters of base64url."""
    record = seal.context.record
    code = seal.keys.load(row_of(NAME, 0, generation), record)
    if code != OK or get_u16(record, RECORD_GENERATION_AT) != generation:
        # The root is of a version without name keys: use the key id until there is a new root.
        kid = get_u16(seal.context.rows, seal.at + KID_AT) & ~1
        return b"%04x" % (kid | (1 if sender > receiver else 0))
    key = bytes(record[RECORD_KEY_AT : RECORD_KEY_AT + _KEY_SIZE])
    fill(record, RECORD_KEY_AT, _KEY_SIZE, 0)
    name = binascii.b2a_base64(hmac(key, b"topic" + sender + receiver)[:_NAME_SIZE])
    return name.strip().replace(b"+", b"-").replace(b"/", b"_")
