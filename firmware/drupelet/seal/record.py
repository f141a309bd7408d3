"""Chain records and key schedule of sealed links (SPEC 11.2 and 11.3), and a seal's row in RAM.

A record is the durable part of one key chain: one direction of one carrier class with one peer.
Its 52 bytes are the same in a host's file and on a board's flash. A key port (`KeyPort`) keeps up
to eight per peer, by row: class << 2 | direction << 1 | (generation & 1).

In RAM each seal has a row of 146 bytes in a slab that all seals of a device share. Epochs are 3
bytes, counters 2 (they saturate at 65,535), all big-endian.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.hmac256 import hmac
from drupelet.base.memory import copy, crc32_into, equal, fill, get_u16, put_u16

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import KeyPort

RECORD_SIZE = const(52)
SEND = const(0)
RECEIVE = const(1)
FLAG_RECEIVE = const(1)
FLAG_BUNDLE = const(2)
FLAG_TAG16 = const(4)
FLAG_REVOKED = const(8)
FLAG_ISSUER = const(16)  # receive record: this peer may re-key and revoke
FLAG_PACKS = const(64)  # the other device reads packed messages in bundles
FLAG_WAITING = const(32)  # send record: do not use it until the peer was heard in its generation

# Layout: form u8, flags u8, kid u16, generation u16, 0 u16, epoch u32, extra [4], key [32],
# crc32 [4].
RECORD_KID_AT = const(2)
RECORD_GENERATION_AT = const(4)
RECORD_EPOCH_AT = const(8)
RECORD_EXTRA_AT = const(12)
RECORD_KEY_AT = const(16)
_CRC_AT = const(48)
_FORM = const(1)
_KEY_SIZE = const(32)
OKM_SIZE = const(29)  # a key of 16 bytes and an IV of 13


NAME = const(2)  # in place of a carrier class: the record of the name key (topic_names.py)

# --- a seal's row ---

SEQ_AT = const(0)  # sequence number of our next frame
STATUS_SEQ_AT = const(1)  # of the peer's newest status in this epoch; valid with STATUS_SEEN
OUT_EPOCH_AT = const(2)  # our epoch; without OUT_OPEN, the last one that was used
OUT_AT = const(5)  # key of 16 bytes and IV of 13
OUT_SALT_AT = const(34)
IN_EPOCH_AT = const(42)
IN_AT = const(45)  # as OUT_AT; a snapshot (sleep.py) has the row up to the end of this field
IN_WINDOW_AT = const(74)  # replay window: a bit for each of 256 sequence numbers
IN_SALT_AT = const(106)
PEER_GEN_AT = const(114)  # the peer's last store_gen, 4 bytes; zeros: none
KID_AT = const(118)  # key id of received frames; in ours the lowest bit is inverted
GENERATION_IN_AT = const(120)
GENERATION_AT = const(122)  # of our chain
ANSWERED_AT = const(124)  # our highest epoch that the peer has answered
WHOLE_EPOCH_AT = const(127)  # bundles: last epoch read whole that is not durable yet; 0: none
TAG_SIZE_AT = const(130)
FAILED_AT = const(131)  # wrong tags in open epochs, within a slice of 64 ms
SLICE_AT = const(132)  # the lowest byte of that slice's number
FORGED_HERE_AT = const(133)  # wrong tags in the current epoch
FORGED_AT = const(135)  # wrong tags in total
REPLAYED_AT = const(137)
CLOSED_EPOCH_AT = const(139)  # frames of closed epochs
FRAME_SIZE_AT = const(141)  # longest frame of the carrier, in bytes
AGE_AT = const(143)  # age of our epoch, in units of 65,536 ms
FAILED_OTHER_AT = const(145)  # as FAILED_AT, for frames of epochs that are not open
ROW_SIZE = const(146)
WINDOW = const(29)  # offset of a replay window from its key

# In front of the rows are older epochs of peers: key, IV, window, epoch u24, the row's offset u24.
OLD_SIZE = const(67)
OLD_EPOCH = const(61)
OLD_OWNER = const(64)

# Bits of `Seal.flags`; the lowest three go into a status as they are.
IN_OPEN = const(1)
STATUS_SEEN = const(2)  # a status came in the peer's epoch
UNCONFIRMED = const(4)  # the peer has not confirmed that it has our epoch open
BUNDLE = const(8)  # carrier class 1
OWES = const(16)  # the next frame must carry our status
RENEW = const(32)  # the next frame must open a new epoch
URGENT = const(64)  # send our status without waiting for data
HEARD = const(128)  # an authentic frame was received since `Sealed.tell`
OUT_OPEN = const(256)
ISSUER = const(512)  # the peer may re-key and revoke
CLOSED = const(1024)  # revoked
MUTED = const(2048)  # too many wrong tags
PEER_LOST = const(4096)  # the peer has another store: offer it everything again
ANEW = const(8192)  # our log is new: send only status until the peer has read it
RENAMED = const(16384)  # the carrier's topics do not belong to the current keys
STATUS_FLAGS = const(7)


def get_u24(buf: "bytes | bytearray", at: int) -> int:
    """Return the 3-byte integer at buf[at]."""
    return buf[at] << 16 | get_u16(buf, at + 1)


def put_u24(buf: bytearray, at: int, value: int) -> None:
    """Store `value` as a 3-byte integer at buf[at]."""
    buf[at] = value >> 16
    put_u16(buf, at + 1, value & 0xFFFF)


def row_of(carrier_class: int, direction: int, generation: int) -> int:
    """Return the row under which a key port keeps a record."""
    return carrier_class << 2 | direction << 1 | (generation & 1)


def finish(record: bytearray) -> None:
    """Update a record's CRC after a change."""
    crc32_into(record, _CRC_AT, record, 0, _CRC_AT, True)


def is_sound(record: "bytes | bytearray") -> bool:
    """Whether a record's form and CRC are right."""
    crc = bytearray(4)
    crc32_into(crc, 0, record, 0, _CRC_AT, True)
    return record[0] == _FORM and equal(record, _CRC_AT, crc, 0, 4)


def first_key(root: bytes, carrier_class: int, sender_id: bytes, receiver_id: bytes) -> bytes:
    """Return CK(0) of one direction: HMAC(root, "DRP1 ck" | class | sender | receiver)."""
    return hmac(root, b"DRP1 ck" + bytes((carrier_class,)) + sender_id + receiver_id)


def step(key: "bytes | bytearray", epoch: int, steps: int) -> "bytes | bytearray":
    """Return CK(epoch + steps) from CK(epoch): CK(e + 1) = HMAC(CK(e), "step" | u32 e + 1)."""
    label = bytearray(b"step\x00\x00\x00\x00")
    while steps:
        steps -= 1
        epoch += 1
        label[5] = epoch >> 16
        put_u16(label, 6, epoch & 0xFFFF)
        key = hmac(key, label)
    return key


def frame_key(key: "bytes | bytearray", salt: "bytes | bytearray") -> bytes:
    """Return AES key and IV of an epoch, 29 bytes: HMAC(CK(e), "key" | salt)[0:29]."""
    return hmac(key, b"key" + salt)[:OKM_SIZE]


def challenge(key: "bytes | bytearray", nonce: bytes) -> bytes:
    """Return 16 bytes that prove possession of a chain key without revealing it."""
    return hmac(key, b"proof" + nonce)[:16]


def new_record(
    record: bytearray, keys: "KeyPort", root: bytes, row: int, kid: int, generation: int,
    flags: int,
) -> None:  # fmt: skip
    """Write the first record of a chain; `kid` is the pair's base kid."""
    carrier_class = row >> 2
    sender, receiver = keys.own_id, keys.peer_id
    flags &= ~(FLAG_RECEIVE | FLAG_BUNDLE | FLAG_REVOKED)
    if row & 2:
        sender, receiver = receiver, sender
        flags = (flags | FLAG_RECEIVE) & ~FLAG_WAITING
    else:
        flags &= ~FLAG_ISSUER
    flags |= carrier_class * FLAG_BUNDLE
    kid |= carrier_class << 1 | (1 if sender > receiver else 0)
    _put_record(record, flags, kid, generation, first_key(root, carrier_class, sender, receiver))


def _put_record(record: bytearray, flags: int, kid: int, generation: int, key: bytes) -> None:
    """Write a record of epoch 0."""
    fill(record, 0, RECORD_SIZE, 0)
    record[0] = _FORM
    record[1] = flags
    put_u16(record, RECORD_KID_AT, kid)
    put_u16(record, RECORD_GENERATION_AT, generation)
    copy(record, RECORD_KEY_AT, key, 0, _KEY_SIZE)
    finish(record)


def install(keys: "KeyPort", root: bytes, kid: int, generation: int, flags: int) -> int:
    """Begin all four chains of a pair; OK, or the key port's code: then call it again.

    root: 32 random bytes, the same at both ends; kid: a multiple of 4, not 0. The name key is
    written first, then the receive records, so that the answer to any frame can be received and
    opened.
    """
    assert len(root) == _KEY_SIZE and kid and not kid & 3
    record = bytearray(RECORD_SIZE)
    # The name key, from which a broker's topics are derived.
    _put_record(record, 0, kid, generation, hmac(root, b"DRP1 topic"))
    code = keys.save(row_of(NAME, 0, generation), record)
    if code != OK:
        return code
    for direction in (RECEIVE, SEND):
        for carrier_class in (0, 1):
            row = row_of(carrier_class, direction, generation)
            has_previous = generation > 0 and keys.load(row ^ 1, record) == OK
            extra = bytes(record[RECORD_EXTRA_AT:RECORD_KEY_AT])
            packs = record[1] & FLAG_PACKS if has_previous else 0
            new_record(record, keys, root, row, kid, generation, flags | packs)
            if has_previous and direction == RECEIVE:  # the peer's store is the same: keep its gen
                copy(record, RECORD_EXTRA_AT, extra, 0, len(extra))
                finish(record)
            code = keys.save(row, record)
            if code != OK:
                return code
    return OK
