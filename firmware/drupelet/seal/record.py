"""Chain records and the key schedule of sealed links (docs/SPEC.md 11.2 and 11.3), and what a seal
keeps in RAM.

A record is the durable part of one chain: one direction of one carrier class with one peer. Its
52 bytes are the same in a host's file and in a board's flash. A key port (`ports.KeyPort`) keeps
up to eight per peer, by `row`: class << 2 | direction << 1 | (generation & 1).

In RAM a seal has a row in the slab that all seals of a device share: 146 bytes, where each thing
is. Epochs have three bytes there, counters two (they stay at 65,535), all big-endian.
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
FLAG_ISSUER = const(16)  # of a receive record: this peer may re-key and revoke
FLAG_PACKS = const(64)  # the other device reads packed messages in bundles
FLAG_WAITING = const(32)  # of a send record: not before the peer was heard in its generation

# Where the fields are: form u8, flags u8, kid u16, generation u16, 0 u16, epoch u32, extra [4],
# key [32], crc32 [4].
RECORD_KID_AT = const(2)
RECORD_GENERATION_AT = const(4)
RECORD_EPOCH_AT = const(8)
RECORD_EXTRA_AT = const(12)
RECORD_KEY_AT = const(16)
_CRC_AT = const(48)
_FORM = const(1)
_KEY_SIZE = const(32)
OKM_SIZE = const(29)  # a key of 16 bytes and an IV of 13


NAME = const(2)  # in the place of a carrier class: the record of the name key (topic_names.py)

# --- a seal's row ---

SEQ_AT = const(0)  # of our next frame
STATUS_SEQ_AT = const(1)  # of the peer's newest status in this epoch, with STATUS_SEEN
OUT_EPOCH_AT = const(2)  # in use, or the last one while OUT_OPEN is not set
OUT_AT = const(5)  # key of 16 and IV of 13 bytes
OUT_SALT_AT = const(34)
IN_EPOCH_AT = const(42)
IN_AT = const(45)  # as OUT_AT; up to its end it is as in a snapshot (sleep.py)
IN_WINDOW_AT = const(74)  # a bit for each of 256 numbers that was opened
IN_SALT_AT = const(106)
PEER_GEN_AT = const(114)  # the store_gen that the peer gave last, 4 bytes; zeros: none
KID_AT = const(118)  # of what comes in; its lowest bit is the other one in what goes out
GENERATION_IN_AT = const(120)
GENERATION_AT = const(122)  # of our chain
ANSWERED_AT = const(124)  # our highest epoch that the peer has seen
WHOLE_EPOCH_AT = const(127)  # bundles: up to here they were read whole, not durable yet; 0 none
TAG_SIZE_AT = const(130)
FAILED_AT = const(131)  # wrong tags of epochs open here in the slice ...
SLICE_AT = const(132)  # ... of 64 ms that this is the lowest byte of
FORGED_HERE_AT = const(133)  # in this epoch
FORGED_AT = const(135)  # wrong tags
REPLAYED_AT = const(137)
CLOSED_EPOCH_AT = const(139)  # frames of closed epochs
FRAME_SIZE_AT = const(141)  # the longest frame of the carrier
AGE_AT = const(143)  # of our epoch, in units of 65,536 ms
FAILED_OTHER_AT = const(145)  # as FAILED_AT, of frames that are of no epoch open here
ROW_SIZE = const(146)
WINDOW = const(29)  # from a key to its window

# Older epochs of peers, in front of the rows: key, IV and window, epoch u24, and whose u24.
OLD_SIZE = const(67)
OLD_EPOCH = const(61)
OLD_OWNER = const(64)

# Bits of `Seal.flags`; the lowest three go into a status as they are.
IN_OPEN = const(1)
STATUS_SEEN = const(2)  # a status came in the peer's epoch
UNCONFIRMED = const(4)  # nobody said that the peer has our epoch open
BUNDLE = const(8)  # class 1
OWES = const(16)  # the next frame tells our status
RENEW = const(32)  # the next frame opens a new epoch
URGENT = const(64)  # our status should not wait for something else to send
HEARD = const(128)  # something authentic came since `Sealed.tell`
OUT_OPEN = const(256)
ISSUER = const(512)  # the peer may re-key and revoke
CLOSED = const(1024)  # revoked
MUTED = const(2048)  # too many wrong tags
PEER_LOST = const(4096)  # the peer's store is another one: show it everything again
ANEW = const(8192)  # our log is a new one: only our status goes until the peer heard of it
RENAMED = const(16384)  # the keys' topics are others than those that the carrier was given
STATUS_FLAGS = const(7)


def get_u24(buf: "bytes | bytearray", at: int) -> int:
    """Return the 3-byte integer at buf[at]."""
    return buf[at] << 16 | get_u16(buf, at + 1)


def put_u24(buf: bytearray, at: int, value: int) -> None:
    """Store `value` at buf[at] in 3 bytes."""
    buf[at] = value >> 16
    put_u16(buf, at + 1, value & 0xFFFF)


def row_of(carrier_class: int, direction: int, generation: int) -> int:
    """The number by which a key port knows a record."""
    return carrier_class << 2 | direction << 1 | (generation & 1)


def finish(record: bytearray) -> None:
    """Close a record after a change: its CRC."""
    crc32_into(record, _CRC_AT, record, 0, _CRC_AT, True)


def is_sound(record: "bytes | bytearray") -> bool:
    """True when form and CRC are right."""
    crc = bytearray(4)
    crc32_into(crc, 0, record, 0, _CRC_AT, True)
    return record[0] == _FORM and equal(record, _CRC_AT, crc, 0, 4)


def first_key(root: bytes, carrier_class: int, sender_id: bytes, receiver_id: bytes) -> bytes:
    """CK(0) of one direction: HMAC(root, "DRP1 ck" | class | sender | receiver)."""
    return hmac(root, b"DRP1 ck" + bytes((carrier_class,)) + sender_id + receiver_id)


def step(key: "bytes | bytearray", epoch: int, steps: int) -> "bytes | bytearray":
    """CK(epoch + steps) from CK(epoch): CK(e + 1) = HMAC(CK(e), "step" | u32 e + 1)."""
    label = bytearray(b"step\x00\x00\x00\x00")
    while steps:
        steps -= 1
        epoch += 1
        label[5] = epoch >> 16
        put_u16(label, 6, epoch & 0xFFFF)
        key = hmac(key, label)
    return key


def frame_key(key: "bytes | bytearray", salt: "bytes | bytearray") -> bytes:
    """AES key and IV of an epoch: HMAC(CK(e), "key" | salt)[0:29]."""
    return hmac(key, b"key" + salt)[:OKM_SIZE]


def challenge(key: "bytes | bytearray", nonce: bytes) -> bytes:
    """Proof that the other end holds a chain key, without telling it: 16 bytes."""
    return hmac(key, b"proof" + nonce)[:16]


def new_record(
    record: bytearray, keys: "KeyPort", root: bytes, row: int, kid: int, generation: int,
    flags: int,
) -> None:  # fmt: skip
    """Write the record with which a chain begins; `kid` is the pair's base."""
    carrier_class = row >> 2
    sender, receiver = keys.own_id, keys.peer_id
    flags &= ~(FLAG_RECEIVE | FLAG_BUNDLE | FLAG_REVOKED)
    if row & 2:
        sender, receiver = receiver, sender
        flags = (flags | FLAG_RECEIVE) & ~FLAG_WAITING
    else:
        flags &= ~FLAG_ISSUER
    fill(record, 0, RECORD_SIZE, 0)
    record[0] = _FORM
    record[1] = flags | carrier_class * FLAG_BUNDLE
    put_u16(record, RECORD_KID_AT, kid | carrier_class << 1 | (1 if sender > receiver else 0))
    put_u16(record, RECORD_GENERATION_AT, generation)
    key = first_key(root, carrier_class, sender, receiver)
    copy(record, RECORD_KEY_AT, key, 0, _KEY_SIZE)
    finish(record)


def _name_record(record: bytearray, root: bytes, kid: int, generation: int) -> None:
    """Write the record of the key that a broker's topics come from."""
    fill(record, 0, RECORD_SIZE, 0)
    record[0] = _FORM
    put_u16(record, RECORD_KID_AT, kid)
    put_u16(record, RECORD_GENERATION_AT, generation)
    copy(record, RECORD_KEY_AT, hmac(root, b"DRP1 topic"), 0, _KEY_SIZE)
    finish(record)


def install(keys: "KeyPort", root: bytes, kid: int, generation: int, flags: int) -> int:
    """Begin all four chains of a pair; OK, or the key port's code: then call it again.

    root: 32 random bytes, the same at both ends; kid: a multiple of 4, not 0. The name key is
    written first, then the receive records, so that nothing is sent whose answer could not be
    found or read.
    """
    assert len(root) == _KEY_SIZE and kid and not kid & 3
    record = bytearray(RECORD_SIZE)
    _name_record(record, root, kid, generation)
    code = keys.save(row_of(NAME, 0, generation), record)
    if code != OK:
        return code
    for direction in (RECEIVE, SEND):
        for carrier_class in (0, 1):
            row = row_of(carrier_class, direction, generation)
            before = generation > 0 and keys.load(row ^ 1, record) == OK
            extra = bytes(record[RECORD_EXTRA_AT:RECORD_KEY_AT])
            packs = record[1] & FLAG_PACKS if before else 0
            new_record(record, keys, root, row, kid, generation, flags | packs)
            if before and direction == RECEIVE:  # a new root is no new store
                copy(record, RECORD_EXTRA_AT, extra, 0, len(extra))
                finish(record)
            code = keys.save(row, record)
            if code != OK:
                return code
    return OK
