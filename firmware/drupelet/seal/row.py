"""A seal's row in the slab that all seals of a device share: 146 bytes, where each thing is.

Epochs have three bytes, counters two (they stay at 65,535), all big-endian.
"""

from drupelet.base.compat import const
from drupelet.base.memory import get_u16, put_u16

SEQ_AT = const(0)  # of our next frame
STATUS_SEQ_AT = const(1)  # of the peer's newest status in this epoch, with TOLD
OUT_EPOCH_AT = const(2)  # in use, or the last one while OUT_OPEN is not set
OUT_AT = const(5)  # key of 16 and IV of 13 bytes
OUT_SALT_AT = const(34)
IN_EPOCH_AT = const(42)
IN_AT = const(45)  # as OUT_AT; up to its end it is as in a snapshot (seal_sleep)
IN_WINDOW_AT = const(74)  # a bit for each of 256 numbers that was opened
IN_SALT_AT = const(106)
PEER_GEN_AT = const(114)  # the store_gen that the peer told last, 4 bytes; zeros: none
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
TOLD = const(2)  # a status came in the peer's epoch
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
ANEW = const(8192)  # our own log is begun anew: told alone until the peer has heard of it
RENAMED = const(16384)  # the keys' topics are others than those that the carrier was given
STATUS_FLAGS = const(7)


def get_u24(buf: "bytes | bytearray", at: int) -> int:
    """Return the 3-byte integer at buf[at]."""
    return buf[at] << 16 | get_u16(buf, at + 1)


def put_u24(buf: bytearray, at: int, value: int) -> None:
    """Store `value` at buf[at] in 3 bytes."""
    buf[at] = value >> 16
    put_u16(buf, at + 1, value & 0xFFFF)
