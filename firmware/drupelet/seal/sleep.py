"""Seal state for a deep sleep: continuing an epoch saves a flash write (docs/SPEC.md 11.6).

An exported state may be imported once: the owner marks the snapshot as used before the first frame
is sent. It is accepted only with the records that it was exported with, so it is never outdated.

    0   seq u8           of our next frame
    1   flags u8         as in our status: bit 0 in epoch open, 1 status seen, 2 unconfirmed
    2   out epoch u24    then key and IV [29], salt [8]
    42  in epoch u24     then key and IV [29]
    74  seen [9]         highest seq that was opened, and the 64 below it as bits
    83  salt [8]         of the in epoch
    91  generation u8    of both chains, modulo 256
    92  age u16          of our epoch, in units of 65,536 ms
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.memory import copy, equal, fill
from drupelet.seal.record import (
    AGE_AT,
    ANEW,
    GENERATION_AT,
    GENERATION_IN_AT,
    IN_EPOCH_AT,
    IN_SALT_AT,
    IN_WINDOW_AT,
    OUT_EPOCH_AT,
    OUT_OPEN,
    OWES,
    RENEW,
    STATUS_FLAGS,
    STATUS_SEQ_AT,
    UNCONFIRMED,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.seal.seal import Seal

SLEEP_SIZE = const(94)
_SEEN = const(74)  # up to here the bytes are those of a seal's row
_IN_SALT = const(83)
_GENERATION = const(91)
_AGE = const(92)
_SALT_SIZE = const(8)
_NO_EPOCH = b"\0\0\0"


def export_into(seal: "Seal", buf: bytearray, at: int) -> int:
    """Write a seal's state to buf[at]; return its size, 0 if the epoch cannot be continued."""
    rows = seal.context.rows
    row = seal.at
    flags = seal.flags
    if flags & (OUT_OPEN | RENEW | OWES) != OUT_OPEN:
        return 0
    if not equal(rows, row + GENERATION_AT, rows, row + GENERATION_IN_AT, 2):
        return 0
    fill(buf, at, SLEEP_SIZE, 0)
    copy(buf, at, rows, row, _SEEN)
    buf[at + STATUS_SEQ_AT] = flags & STATUS_FLAGS
    copy(buf, at + _IN_SALT, rows, row + IN_SALT_AT, _SALT_SIZE)
    highest = 255
    while highest and not _is_seen(rows, row, highest):
        highest -= 1
    buf[at + _SEEN] = highest
    for i in range(64):
        if _is_seen(rows, row, highest - 1 - i):
            buf[at + _SEEN + 1 + (i >> 3)] |= 1 << (i & 7)
    buf[at + _GENERATION] = rows[row + GENERATION_AT + 1]
    copy(buf, at + _AGE, rows, row + AGE_AT, 2)
    # From now on only the exported copy may use this epoch.
    seal.flags &= ~OUT_OPEN
    return SLEEP_SIZE


def _is_seen(rows: bytearray, row: int, seq: int) -> int:
    return seq >= 0 and rows[row + IN_WINDOW_AT + (seq >> 3)] & 1 << (seq & 7)


def import_from(seal: "Seal", buf: bytearray, at: int, size: int) -> int:
    """Continue an exported state, after `load`; OK, or E_PEER if it does not fit the records."""
    if size < SLEEP_SIZE or seal.flags & OUT_OPEN:
        return E_PEER
    rows = seal.context.rows
    row = seal.at
    generation = buf[at + _GENERATION]
    if (
        generation != rows[row + GENERATION_AT + 1]
        or generation != rows[row + GENERATION_IN_AT + 1]
        or not equal(buf, at + OUT_EPOCH_AT, rows, row + OUT_EPOCH_AT, 3)
        or equal(buf, at + OUT_EPOCH_AT, _NO_EPOCH, 0, 3)
        or not equal(buf, at + IN_EPOCH_AT, rows, row + IN_EPOCH_AT, 3)
    ):
        return E_PEER
    copy(rows, row, buf, at, _SEEN)
    copy(rows, row + IN_SALT_AT, buf, at + _IN_SALT, _SALT_SIZE)
    copy(rows, row + AGE_AT, buf, at + _AGE, 2)
    highest = buf[at + _SEEN]
    fill(rows, row + IN_WINDOW_AT, 32, 0)
    for seq in range(highest + 1):
        i = highest - 1 - seq
        # Sequence numbers below the 64 count as opened.
        if i < 0 or i >= 64 or buf[at + _SEEN + 1 + (i >> 3)] & 1 << (i & 7):
            rows[row + IN_WINDOW_AT + (seq >> 3)] |= 1 << (seq & 7)
    rows[row + STATUS_SEQ_AT] = 0
    flags = seal.flags & ~(STATUS_FLAGS | OWES | RENEW) | OUT_OPEN
    flags |= buf[at + 1] & STATUS_FLAGS
    seal.flags = flags if flags & UNCONFIRMED else flags & ~ANEW
    return OK
