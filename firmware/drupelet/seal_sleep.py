"""Key state over a deep sleep: an epoch goes on, for one write of flash less (SPEC 11.6).

What is exported may be imported once: the owner marks the snapshot as used before the first frame
leaves. It fits only the records that it was made beside, so it is never older than they are.

    0   seq u8           next of ours
    1   flags u8         bit 0 confirmed, bit 1 the peer's status came
    2   out epoch u24    and key and IV [29], salt [8]
    42  in epoch u24     and key and IV [29]; 0: none is open
    74  seen [9]         highest number that was opened, and the 64 below it as bits
    83  salt [8]         of the in epoch
    91  generation u8    of both chains, modulo 256
"""

from drupelet._compat import const
from drupelet.errors import E_PEER, OK
from drupelet.memory import copy, fill, get_u16, put_u16
from drupelet.seal import IN_AT, IN_SALT_AT, IN_WINDOW_AT, OUT_AT, OUT_SALT_AT
from drupelet.seal_record import OKM_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.seal import Seal

SLEEP_SIZE = const(92)
_OUT = const(2)
_OUT_KEY = const(5)
_SALT = const(34)
_IN = const(42)
_IN_KEY = const(45)
_SEEN = const(74)
_IN_SALT = const(83)
_GENERATION = const(91)
_SALT_SIZE = const(8)
_CONFIRMED = const(1)
_TOLD = const(2)


def export_into(seal: "Seal", buf: bytearray, at: int) -> int:
    """Write what the next wake needs; its size, 0 when there is nothing worth keeping."""
    if seal.cipher_out is None or seal.renew or seal.owes or seal.seq > 255:
        return 0
    if seal.generation != seal.generation_in:
        return 0
    state = seal.state
    fill(buf, at, SLEEP_SIZE, 0)
    buf[at] = seal.seq
    buf[at + 1] = (_CONFIRMED if seal.confirmed else 0) | (0 if seal.status_seq < 0 else _TOLD)
    buf[at + _OUT] = seal.out_epoch >> 16
    put_u16(buf, at + _OUT + 1, seal.out_epoch & 0xFFFF)
    copy(buf, at + _OUT_KEY, state, OUT_AT, OKM_SIZE)
    copy(buf, at + _SALT, state, OUT_SALT_AT, _SALT_SIZE)
    if seal.cipher_in is not None:
        buf[at + _IN] = seal.in_epoch >> 16
        put_u16(buf, at + _IN + 1, seal.in_epoch & 0xFFFF)
        copy(buf, at + _IN_KEY, state, IN_AT, OKM_SIZE)
        copy(buf, at + _IN_SALT, state, IN_SALT_AT, _SALT_SIZE)
        highest = 255
        while highest and not state[IN_WINDOW_AT + (highest >> 3)] & 1 << (highest & 7):
            highest -= 1
        buf[at + _SEEN] = highest
        for i in range(64):
            seq = highest - 1 - i
            if seq >= 0 and state[IN_WINDOW_AT + (seq >> 3)] & 1 << (seq & 7):
                buf[at + _SEEN + 1 + (i >> 3)] |= 1 << (i & 7)
    buf[at + _GENERATION] = seal.generation & 255
    # From here on the copy is the one that counts.
    seal.cipher_out = None
    return SLEEP_SIZE


def import_from(seal: "Seal", buf: bytearray, at: int, size: int) -> int:
    """Go on with an exported state, after `load`: OK, or E_PEER when it does not fit."""
    if size < SLEEP_SIZE or seal.cipher_out is not None:
        return E_PEER
    out_epoch = buf[at + _OUT] << 16 | get_u16(buf, at + _OUT + 1)
    in_epoch = buf[at + _IN] << 16 | get_u16(buf, at + _IN + 1)
    generation = buf[at + _GENERATION]
    if (
        generation != seal.generation & 255
        or generation != seal.generation_in & 255
        or out_epoch != seal.out_epoch
        or not out_epoch
        or (in_epoch and in_epoch != seal.in_epoch)
    ):
        return E_PEER
    state = seal.state
    aead = seal.context.aead
    copy(state, OUT_AT, buf, at + _OUT_KEY, OKM_SIZE)
    copy(state, OUT_SALT_AT, buf, at + _SALT, _SALT_SIZE)
    cipher_out = aead.cipher(state, OUT_AT)
    if in_epoch:
        copy(state, IN_AT, buf, at + _IN_KEY, OKM_SIZE)
        copy(state, IN_SALT_AT, buf, at + _IN_SALT, _SALT_SIZE)
        highest = buf[at + _SEEN]
        fill(state, IN_WINDOW_AT, 32, 0)
        for seq in range(highest + 1):
            i = highest - 1 - seq
            # What is further back than the 64 counts as opened.
            if i < 0 or i >= 64 or buf[at + _SEEN + 1 + (i >> 3)] & 1 << (i & 7):
                state[IN_WINDOW_AT + (seq >> 3)] |= 1 << (seq & 7)
        seal.cipher_in = aead.cipher(state, IN_AT)
        seal.opened(in_epoch)
        if buf[at + 1] & _TOLD:
            seal.status_seq = 0
    seal.cipher_out = cipher_out
    seal.seq = buf[at]
    seal.confirmed = buf[at + 1] & _CONFIRMED != 0
    seal.owes = seal.renew = False
    return OK
