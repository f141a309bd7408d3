"""What the issuer of our keys may tell us through a sealed link: REKEY and REVOKE (SPEC 11.7).

REKEY  | 1 | generation u16 | root [32]
REVOKE | 2 | device id [4] | kid u16
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import ID_SIZE
from drupelet.base.memory import copy, fill, get_u16, put_u16
from drupelet.seal.record import (
    ANEW,
    BUNDLE,
    CLOSED,
    FLAG_ISSUER,
    FLAG_TAG16,
    FLAG_WAITING,
    GENERATION_AT,
    GENERATION_IN_AT,
    IN_EPOCH_AT,
    IN_OPEN,
    KID_AT,
    NAME,
    RECORD_EPOCH_AT,
    RECORD_GENERATION_AT,
    RENAMED,
    RENEW,
    SEND,
    TAG_SIZE_AT,
    WHOLE_EPOCH_AT,
    finish,
    install,
    put_u24,
    row_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import KeyPort
    from drupelet.seal.ports import SealFields

REKEY = const(1)
REVOKE = const(2)
REKEY_SIZE = const(35)
REVOKE_SIZE = const(7)


def take_control(seal: "SealFields", buf: bytearray, at: int, size: int) -> int:
    """Obey an authentic control frame: 0, E_PEER if it makes no sense, or the key port's code."""
    kind = buf[at]
    if kind == REVOKE and size == REVOKE_SIZE:
        if seal.flags & BUNDLE:
            seal.flags |= ANEW  # the issuer waits for an answer
        return seal.keys.revoke(buf, at + 1)
    if kind != REKEY or size != REKEY_SIZE:
        return E_PEER
    generation = get_u16(buf, at + 1)
    newest = newest_generation(seal)
    if generation == newest + 1:
        code = _begin(seal, buf, at, generation)
        fill(buf, at, size, 0)
    elif generation == newest:
        code = OK  # told again: we have it
    else:
        return E_PEER
    if code == OK:
        code = end_waiting(seal.keys, seal.context.record, generation)
    if code == OK:
        _renew(seal, generation)
        seal.flags |= ANEW  # the issuer waits to hear us in the new generation
    return code


def _begin(seal: "SealFields", buf: bytearray, at: int, generation: int) -> int:
    """Make all four chains; none is sent on before all are there, for none begins twice."""
    context = seal.context
    rows = context.rows
    flags = FLAG_ISSUER | FLAG_WAITING
    if rows[seal.at + TAG_SIZE_AT] == 16:
        flags |= FLAG_TAG16
    kid = get_u16(rows, seal.at + KID_AT) & ~3
    root = bytes(buf[at + 3 : at + 3 + ID_SIZE])
    code = install(seal.keys, root, kid, generation, flags)
    for other in context.seals:
        if other.keys is seal.keys and not other.flags & CLOSED:
            catch_up(other, generation)
    return code


def catch_up(seal: "SealFields", generation: int) -> None:
    """After chains of `generation` were made: theirs was the row of the one before the last."""
    seal.flags |= RENAMED
    if get_u16(seal.context.rows, seal.at + GENERATION_IN_AT) + 1 < generation:
        seal.load()


def newest_generation(seal: "SealFields") -> int:
    """The highest generation of the bundles' send chains, which are written last; -1 for none."""
    record = seal.context.record
    newest = -1
    for parity in (0, 1):
        if seal.keys.load(row_of(1, SEND, parity), record) == OK:
            newest = max(newest, get_u16(record, RECORD_GENERATION_AT))
    return newest


def end_waiting(keys: "KeyPort", record: bytearray, generation: int) -> int:
    """Both ends have a generation: its send chains are used, older ones go. Call it again after
    a code that is not OK; `record` is overwritten.
    """
    code = OK
    for carrier_class in (0, 1):
        row = row_of(carrier_class, SEND, generation)
        if keys.load(row, record) != OK:
            continue
        if record[1] & FLAG_WAITING:
            record[1] &= ~FLAG_WAITING
            finish(record)
            code = keys.save(row, record)
        if code == OK:
            code = _drop_older(keys, record, row ^ 1, generation)
        if code != OK:
            break
    return code


def _drop_older(keys: "KeyPort", record: bytearray, row: int, generation: int) -> int:
    # The row of the generation before may be that of the one behind: there are two for each chain.
    if keys.load(row, record) != OK or get_u16(record, RECORD_GENERATION_AT) >= generation:
        return OK
    return keys.drop(row)


def _renew(seal: "SealFields", generation: int) -> None:
    """No seal of the peer's goes on with an epoch of an older generation."""
    context = seal.context
    for other in context.seals:
        theirs = get_u16(context.rows, other.at + GENERATION_AT)
        if other.keys is seal.keys and theirs != generation:
            other.flags |= RENEW


def turn_over(seal: "SealFields", row: int, generation: int) -> int:
    """The peer was heard in a new generation, so it has the new root: OK, or a code.

    Dropping the older receive record is last: until then a cut, or a code, leaves us in the
    generation before, and the next frame does it all again. The one at `row` is loaded then.
    """
    keys = seal.keys
    record = seal.context.record
    rows = seal.context.rows
    code = end_waiting(keys, record, generation)
    if code == OK and not seal.flags & BUNDLE:  # the topics of before are not listened to then
        code = _drop_older(keys, record, row_of(NAME, 0, generation) ^ 1, generation)
    if code == OK:
        code = _drop_older(keys, record, row ^ 1, generation)
    if code == OK:
        code = keys.load(row, record)
    if code == OK:
        put_u16(rows, seal.at + GENERATION_IN_AT, generation)
        copy(rows, seal.at + IN_EPOCH_AT, record, RECORD_EPOCH_AT + 1, 3)
        put_u24(rows, seal.at + WHOLE_EPOCH_AT, 0)
        seal.flags = (seal.flags | RENAMED) & ~IN_OPEN
        _renew(seal, generation)
    return code
