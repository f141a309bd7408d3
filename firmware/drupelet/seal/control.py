"""Control frames of the issuer of our keys, through a sealed link: REKEY and REVOKE (SPEC 11.7).

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
    """Carry out an authentic control frame; OK, E_PEER if malformed, or the key port's code."""
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
        code = OK  # a retransmission: we have this root
    else:
        return E_PEER
    if code == OK:
        code = end_waiting(seal.keys, seal.context.record, generation)
    if code == OK:
        _renew(seal, generation)
        seal.flags |= ANEW  # the issuer waits to hear us in the new generation
    return code


def _begin(seal: "SealFields", buf: bytearray, at: int, generation: int) -> int:
    """Begin all four chains of a new root; OK, or the key port's code.

    The send chains wait (FLAG_WAITING) until all four are durable: no chain may begin twice.
    """
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
    """Reload a seal if the chains of `generation` replaced the records that it uses.

    There are two records per chain, so those of the generation before the last are overwritten.
    """
    seal.flags |= RENAMED
    if get_u16(seal.context.rows, seal.at + GENERATION_IN_AT) + 1 < generation:
        seal.load()


def newest_generation(seal: "SealFields") -> int:
    """Return the highest generation of the bundle send chain, which is written last; -1: none."""
    record = seal.context.record
    newest = -1
    for parity in (0, 1):
        if seal.keys.load(row_of(1, SEND, parity), record) == OK:
            newest = max(newest, get_u16(record, RECORD_GENERATION_AT))
    return newest


def end_waiting(keys: "KeyPort", record: bytearray, generation: int) -> int:
    """Begin to use the send chains of a generation that both ends have; drop the older ones.

    Returns OK or the key port's code; then call it again. `record` is overwritten.
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
    # There are two rows per chain, so this row may hold the next generation already.
    if keys.load(row, record) != OK or get_u16(record, RECORD_GENERATION_AT) >= generation:
        return OK
    return keys.drop(row)


def _renew(seal: "SealFields", generation: int) -> None:
    """Make all seals of the peer that use an older generation open a new epoch."""
    context = seal.context
    for other in context.seals:
        generation_of_other = get_u16(context.rows, other.at + GENERATION_AT)
        if other.keys is seal.keys and generation_of_other != generation:
            other.flags |= RENEW


def turn_over(seal: "SealFields", row: int, generation: int) -> int:
    """Switch to a generation in which the peer was heard, so it has the new root; OK, or a code.

    The older receive record is dropped last: after a power cut or an error before that we are
    still in the old generation, and the next frame repeats the switch. Then the receive record at
    `row` is loaded into the context.
    """
    keys = seal.keys
    record = seal.context.record
    rows = seal.context.rows
    code = end_waiting(keys, record, generation)
    if code == OK and not seal.flags & BUNDLE:  # the topics of the old name key are given up
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
