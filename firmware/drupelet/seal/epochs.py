"""What a seal does once per key epoch: load, open an epoch of its own, follow the peer's.

The order is what makes it safe: our epoch is durable before its first frame leaves, the peer's
only after a tag was right and before anything of it is handed on (docs/SPEC.md 11.4).
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.limits import (
    SEAL_EPOCH_MAX,
    SEAL_JUMP,
    SEAL_JUMP_AFTER,
    SEAL_SKIP_FREE,
    SEAL_SKIP_MS,
)
from drupelet.base.memory import copy, equal, fill, get_u16, get_u32, put_u16, put_u32
from drupelet.base.time_ms import elapsed_ms
from drupelet.seal.record import (
    FLAG_ISSUER,
    FLAG_REVOKED,
    FLAG_TAG16,
    FLAG_WAITING,
    OKM_SIZE,
    RECEIVE,
    RECORD_EPOCH_AT,
    RECORD_EXTRA_AT,
    RECORD_GENERATION_AT,
    RECORD_KEY_AT,
    RECORD_KID_AT,
    SEND,
    finish,
    frame_key,
    row_of,
    step,
)
from drupelet.seal.row import (
    AGE_AT,
    ANSWERED_AT,
    BUNDLE,
    CLOSED_EPOCH_AT,
    FAILED_OTHER_AT,
    FORGED_HERE_AT,
    GENERATION_AT,
    GENERATION_IN_AT,
    IN_AT,
    IN_EPOCH_AT,
    IN_OPEN,
    IN_SALT_AT,
    ISSUER,
    KID_AT,
    MUTED,
    OLD_EPOCH,
    OLD_OWNER,
    OLD_SIZE,
    OUT_AT,
    OUT_EPOCH_AT,
    OUT_OPEN,
    OUT_SALT_AT,
    OWES,
    PEER_GEN_AT,
    PEER_LOST,
    RENAMED,
    RENEW,
    SEQ_AT,
    TAG_SIZE_AT,
    TOLD,
    UNCONFIRMED,
    URGENT,
    WHOLE_EPOCH_AT,
    WINDOW,
    get_u24,
    put_u24,
)
from drupelet.seal.seal import HEAD_SIZE, SALTED_SIZE, STATUS_SIZE, TYPE_STATUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.seal.seal import Seal

_KEY_SIZE = const(32)
_WINDOW_SIZE = const(32)
_SALT_SIZE = const(8)
_TYPE = const(0x07)
_CLASS_BIT = const(3)  # of the flags: BUNDLE
_GENERATION_NONE = const(0xFFFF)


def load(seal: "Seal") -> int:
    """Take up both chains from the key port; see `Seal.load`."""
    context = seal.context
    record = context.record
    rows = context.rows
    at = seal.at
    code = _choose(seal, RECEIVE)
    if code != OK:
        return code
    # Whatever was open before a reboot is closed: its window is gone.
    seal.flags &= ~(OUT_OPEN | IN_OPEN | ISSUER)
    old_of(seal, True)
    put_u24(rows, at + WHOLE_EPOCH_AT, 0)
    if record[1] & FLAG_ISSUER:
        seal.flags |= ISSUER
    rows[at + TAG_SIZE_AT] = 16 if record[1] & FLAG_TAG16 else 8
    copy(rows, at + KID_AT, record, RECORD_KID_AT, 4)  # and the generation
    copy(rows, at + IN_EPOCH_AT, record, RECORD_EPOCH_AT + 1, 3)
    copy(rows, at + PEER_GEN_AT, record, RECORD_EXTRA_AT, 4)
    put_u16(rows, at + GENERATION_AT, _GENERATION_NONE)
    return _load_send(seal)


def _load_send(seal: "Seal") -> int:
    code = _choose(seal, SEND)
    if code == OK:
        record = seal.context.record
        rows = seal.context.rows
        at = seal.at
        # Of the same generation the peer may have told more since then.
        if not equal(record, RECORD_GENERATION_AT, rows, at + GENERATION_AT, 2):
            seal.flags |= RENAMED
            copy(rows, at + GENERATION_AT, record, RECORD_GENERATION_AT, 2)
            copy(rows, at + ANSWERED_AT, record, RECORD_EXTRA_AT + 1, 3)
        copy(rows, at + OUT_EPOCH_AT, record, RECORD_EPOCH_AT + 1, 3)
    return code


def _choose(seal: "Seal", direction: int) -> int:
    """Load the record in use: the older generation to receive, the newest that may to send."""
    record = seal.context.record
    chosen = -1
    row = 0
    for parity in (0, 1):
        at = row_of(seal.flags >> _CLASS_BIT & 1, direction, parity)
        if seal.keys.load(at, record) != OK:
            continue
        if record[1] & FLAG_REVOKED:
            return E_PEER
        generation = get_u16(record, RECORD_GENERATION_AT)
        if record[1] & FLAG_WAITING:
            continue
        if chosen < 0 or (generation < chosen) == (direction == RECEIVE):
            chosen = generation
            row = at
    return E_STORAGE if chosen < 0 else seal.keys.load(row, record)


def open_send(seal: "Seal") -> int:
    """Open the next epoch of ours: durable, then usable."""
    context = seal.context
    record = context.record
    code = _load_send(seal)
    if code != OK:
        return code
    rows = context.rows
    at = seal.at
    base = get_u24(rows, at + OUT_EPOCH_AT)
    answered = get_u24(rows, at + ANSWERED_AT)
    epoch = max(base, answered) + 1
    unanswered = epoch - answered
    if unanswered == SEAL_JUMP_AFTER or unanswered == SEAL_JUMP + 8 * SEAL_JUMP_AFTER:
        epoch += SEAL_JUMP  # an older copy of ourselves may have been put back
    if epoch > SEAL_EPOCH_MAX:
        return E_CAPACITY
    salt = bytearray(_SALT_SIZE)
    for i in range(_SALT_SIZE):
        salt[i] = context.random_byte()
    key = step(record[RECORD_KEY_AT : RECORD_KEY_AT + _KEY_SIZE], base, epoch - base)
    okm = frame_key(key, salt)
    cipher = context.aead.cipher(okm, 0)
    put_u32(record, RECORD_EPOCH_AT, epoch)
    put_u32(record, RECORD_EXTRA_AT, answered)
    copy(record, RECORD_KEY_AT, key, 0, _KEY_SIZE)
    finish(record)
    code = seal.keys.save(
        row_of(seal.flags >> _CLASS_BIT & 1, SEND, rows[at + GENERATION_AT + 1]), record
    )
    fill(record, RECORD_KEY_AT, _KEY_SIZE, 0)
    if code != OK:
        return code
    copy(rows, at + OUT_AT, okm, 0, OKM_SIZE)
    copy(rows, at + OUT_SALT_AT, salt, 0, _SALT_SIZE)
    context.cipher(at + OUT_AT, cipher)
    put_u24(rows, at + OUT_EPOCH_AT, epoch)
    rows[at + SEQ_AT] = 0
    put_u16(rows, at + AGE_AT, 0)
    seal.flags = (seal.flags | OUT_OPEN | OWES | UNCONFIRMED) & ~RENEW
    return OK


def open_other(seal: "Seal", buf: bytearray, head: int, text: int, now_ms: int) -> int:
    """Open a frame that is not of the peer's current epoch."""
    rows = seal.context.rows
    at = seal.at
    epoch = get_u24(buf, 3)
    known = get_u24(rows, at + IN_EPOCH_AT)
    generation = get_u16(rows, at + GENERATION_IN_AT)
    if (buf[0] >> 3 ^ generation) & 1:
        generation += 1
    else:
        old = old_of(seal, False)
        if old >= 0 and equal(buf, 3, rows, old + OLD_EPOCH, 3):
            got = seal.open_with(old, buf, head, text, now_ms)
            if got != E_PEER or head == HEAD_SIZE:
                return got
            # It may be under another salt: who was set back to this epoch must hear of ours.
        if epoch < known or (epoch == known and not seal.flags & IN_OPEN):
            head = HEAD_SIZE
    if head == HEAD_SIZE:
        # Closed, or it takes us for one who knows its salt: an older copy of us was put back.
        seal.count(CLOSED_EPOCH_AT)
        seal.flags |= URGENT | OWES
        return E_PEER
    return _follow(seal, buf, text, epoch, generation, now_ms)


def _follow(
    seal: "Seal", buf: bytearray, text: int, epoch: int, generation: int, now_ms: int
) -> int:
    """Try an epoch that is new to us, or the current one under another salt."""
    context = seal.context
    record = context.record
    rows = context.rows
    at = seal.at
    row = row_of(seal.flags >> _CLASS_BIT & 1, RECEIVE, generation)
    if not seal.may_try(FAILED_OTHER_AT, now_ms) or seal.keys.load(row, record) != OK:
        return E_PEER
    base = get_u32(record, RECORD_EPOCH_AT)
    same = generation == get_u16(rows, at + GENERATION_IN_AT)
    known = get_u24(rows, at + IN_EPOCH_AT) if same else base
    again = same and epoch == known
    if epoch <= base and not again:
        return E_PEER
    # While a loss is not seen to, a new root waits: its record would not tell of it.
    if get_u16(record, RECORD_GENERATION_AT) != generation or (
        not same and seal.flags & PEER_LOST
    ):
        return E_PEER
    if epoch - known > SEAL_SKIP_FREE and not _may_skip(seal, now_ms):
        return E_PEER
    key = _key_of(seal, epoch, base)
    if key is None:
        return E_PEER
    salt = buf[HEAD_SIZE:SALTED_SIZE]
    okm = frame_key(key, salt)
    cipher = context.aead.cipher(okm, 0)
    seal.set_nonce(okm, 0, buf[6])
    if not context.aead.open(
        cipher, context.nonce, buf, 0, SALTED_SIZE, text, rows[at + TAG_SIZE_AT]
    ):
        seal.failed(FAILED_OTHER_AT)
        return E_PEER
    if again:
        seal.clones += 1  # two senders in one epoch: a clone, or one that was set back
        seal.flags |= URGENT | OWES
        return E_PEER
    told = buf[0] & _TYPE == TYPE_STATUS and text >= STATUS_SIZE
    if told and equal(rows, at + PEER_GEN_AT, b"\0\0\0\0", 0, 4):
        copy(rows, at + PEER_GEN_AT, buf, SALTED_SIZE + 4, 4)  # the first that it tells
    code = _make_durable(seal, row, epoch, key, generation)
    fill(record, RECORD_KEY_AT, _KEY_SIZE, 0)
    if code != OK:
        return code
    _accept(seal, okm, salt, cipher, epoch)
    return seal.take_once(at + IN_AT, buf, SALTED_SIZE, text)


def _make_durable(
    seal: "Seal", row: int, epoch: int, key: "bytes | bytearray", generation: int
) -> int:
    code = OK
    if generation != get_u16(seal.context.rows, seal.at + GENERATION_IN_AT):
        from drupelet.seal.control import turn_over

        code = turn_over(seal, row, generation)
    # On a stick the epoch is, once its bundle is whole.
    return _keep(seal, row, epoch, key) if code == OK and not seal.flags & BUNDLE else code


def _keep(seal: "Seal", row: int, epoch: int, key: "bytes | bytearray") -> int:
    """Make a receive epoch durable in the record that was loaded; a code of the key port."""
    record = seal.context.record
    put_u32(record, RECORD_EPOCH_AT, epoch)
    copy(record, RECORD_KEY_AT, key, 0, _KEY_SIZE)
    if not seal.flags & PEER_LOST:  # else it still says what the peer had
        copy(record, RECORD_EXTRA_AT, seal.context.rows, seal.at + PEER_GEN_AT, 4)
    finish(record)
    return seal.keys.save(row, record)


def _may_skip(seal: "Seal", now_ms: int) -> bool:
    """Whether many steps may be computed now: they cost time, and the frame may be forged."""
    if seal.skip_ms >= 0 and elapsed_ms(now_ms, seal.skip_ms) < SEAL_SKIP_MS:
        return False
    seal.skip_ms = now_ms
    return True


def _key_of(seal: "Seal", epoch: int, base: int) -> "bytes | bytearray | None":
    """CK(epoch), from the record's; None: so far ahead that only a part of the way was gone now.

    Where it came to stays in RAM, not in the record: nothing authentic has said that it is right.
    """
    key = seal.context.record[RECORD_KEY_AT : RECORD_KEY_AT + _KEY_SIZE]
    if seal.ahead is not None and base < seal.ahead_epoch <= epoch:
        key = seal.ahead
        base = seal.ahead_epoch
    most = seal.context.steps_max
    if epoch - base <= most:
        return step(key, base, epoch - base)
    seal.ahead = bytearray(step(key, base, most))
    seal.ahead_epoch = base + most
    return None


def old_of(seal: "Seal", drop: bool) -> int:
    """Where the older epoch of the peer is kept in `rows`, until it is dropped; -1: none is."""
    context = seal.context
    for i in range(context.old_max):
        old = i * OLD_SIZE
        if get_u24(context.rows, old + OLD_OWNER) == seal.at:
            if drop:
                context.forget(old)
                fill(context.rows, old, OLD_SIZE, 0)
            return old
    return -1


def _accept(seal: "Seal", okm: bytes, salt: bytearray, cipher: object, epoch: int) -> None:
    """Make an epoch that was authentic the current one; the one before stays for stragglers."""
    context = seal.context
    rows = context.rows
    at = seal.at
    old = old_of(seal, True)
    if seal.flags & IN_OPEN:
        if old < 0:
            old = context.old_next * OLD_SIZE
            context.old_next = (context.old_next + 1) % context.old_max
            context.forget(old)
        copy(rows, old, rows, at + IN_AT, OLD_EPOCH)
        copy(rows, old + OLD_EPOCH, rows, at + IN_EPOCH_AT, 3)
        put_u24(rows, old + OLD_OWNER, at)
    copy(rows, at + IN_AT, okm, 0, OKM_SIZE)
    copy(rows, at + IN_SALT_AT, salt, 0, _SALT_SIZE)
    fill(rows, at + IN_AT + WINDOW, _WINDOW_SIZE, 0)
    context.cipher(at + IN_AT, cipher)
    put_u24(rows, at + IN_EPOCH_AT, epoch)
    put_u16(rows, at + FORGED_HERE_AT, 0)
    seal.flags = (seal.flags | IN_OPEN) & ~(TOLD | MUTED)
    if seal.ahead is not None:
        seal.ahead = None


def commit(seal: "Seal") -> int:
    """Make the receive epoch of the last whole bundle durable: all that it brought is."""
    rows = seal.context.rows
    epoch = get_u24(rows, seal.at + WHOLE_EPOCH_AT)
    if not epoch:
        return OK
    record = seal.context.record
    row = row_of(1, RECEIVE, rows[seal.at + GENERATION_IN_AT + 1])
    code = seal.keys.load(row, record)
    base = get_u32(record, RECORD_EPOCH_AT)
    if code == OK and epoch > base:
        key = step(record[RECORD_KEY_AT : RECORD_KEY_AT + _KEY_SIZE], base, epoch - base)
        code = _keep(seal, row, epoch, key)
    fill(record, RECORD_KEY_AT, _KEY_SIZE, 0)
    if code == OK:
        put_u24(rows, seal.at + WHOLE_EPOCH_AT, 0)
    return code
