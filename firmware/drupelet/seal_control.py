"""What the issuer of our keys may tell us through a sealed link: REKEY and REVOKE (SPEC 11.7).

REKEY  | 1 | generation u16 | root [32]
REVOKE | 2 | device id [4]
"""

from drupelet._compat import const
from drupelet.errors import E_PEER, OK
from drupelet.limits import ID_SIZE
from drupelet.memory import fill, get_u16, put_u16
from drupelet.seal_record import (
    FLAG_ISSUER,
    FLAG_TAG16,
    FLAG_WAITING,
    RECEIVE,
    RECORD_GENERATION_AT,
    SEND,
    finish,
    install,
    row_of,
)
from drupelet.seal_row import (
    BUNDLE,
    GENERATION_AT,
    GENERATION_IN_AT,
    KID_AT,
    OWES,
    RENEW,
    TAG_SIZE_AT,
    URGENT,
    WHOLE_EPOCH_AT,
    put_u24,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.seal import Seal

REKEY = const(1)
REVOKE = const(2)
REKEY_SIZE = const(35)
REVOKE_SIZE = const(5)


def take_control(seal: "Seal", buf: bytearray, at: int, size: int) -> int:
    """Obey an authentic control frame: 0, E_PEER if it makes no sense, or the key port's code."""
    kind = buf[at]
    if kind == REVOKE and size == REVOKE_SIZE:
        return seal.keys.revoke(buf, at + 1)
    if kind != REKEY or size != REKEY_SIZE:
        return E_PEER
    generation = get_u16(buf, at + 1)
    newest = newest_generation(seal, SEND)
    if generation == newest:
        return OK  # told again: we have it
    if generation != newest + 1:
        return E_PEER
    root = bytes(buf[at + 3 : at + 3 + ID_SIZE])
    fill(buf, at, size, 0)
    rows = seal.context.rows
    flags = FLAG_ISSUER | (FLAG_TAG16 if rows[seal.at + TAG_SIZE_AT] == 16 else 0)
    kid = get_u16(rows, seal.at + KID_AT) & ~3
    code = install(seal.keys, root, kid, generation, flags)
    if code == OK:
        for carrier_class in (0, 1):
            seal.keys.drop(row_of(carrier_class, SEND, newest))
        # The issuer waits to hear us in the new generation: it is told at once.
        seal.flags |= RENEW | URGENT | OWES
    return code


def newest_generation(seal: "Seal", direction: int) -> int:
    """The highest generation of the bundle chains, which are written last; -1 for none."""
    record = seal.context.record
    newest = -1
    for parity in (0, 1):
        if seal.keys.load(row_of(1, direction, parity), record) == OK:
            newest = max(newest, get_u16(record, RECORD_GENERATION_AT))
    return newest


def turn_over(seal: "Seal", generation: int) -> None:
    """The peer was heard in a new generation: it has the new root, so the old one goes."""
    keys = seal.keys
    record = seal.context.record
    rows = seal.context.rows
    keys.drop(row_of(1 if seal.flags & BUNDLE else 0, RECEIVE, generation - 1))
    put_u16(rows, seal.at + GENERATION_IN_AT, generation)
    put_u24(rows, seal.at + WHOLE_EPOCH_AT, 0)
    for carrier_class in (0, 1):
        row = row_of(carrier_class, SEND, generation)
        if keys.load(row, record) == OK and record[1] & FLAG_WAITING:
            record[1] &= ~FLAG_WAITING
            finish(record)
            if keys.save(row, record) == OK:
                keys.drop(row_of(carrier_class, SEND, generation - 1))
    if get_u16(rows, seal.at + GENERATION_AT) != generation:
        seal.flags |= RENEW
