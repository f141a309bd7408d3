"""What a seal does once per key epoch: load, open an epoch of its own, follow the peer's.

The order is what makes it safe: our epoch is durable before its first frame leaves, the peer's
only after a tag was right and before anything of it is handed on (docs/SPEC.md 11.4).
"""

from drupelet._compat import const
from drupelet.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.limits import (
    SEAL_EPOCH_MAX,
    SEAL_JUMP,
    SEAL_JUMP_AFTER,
    SEAL_SKIP_FREE,
    SEAL_SKIP_MS,
    SEAL_STEPS_HOST_MAX,
)
from drupelet.memory import copy, fill, get_u16, get_u32, put_u32
from drupelet.schedule import elapsed_ms
from drupelet.seal import (
    CLASS_LIVE,
    HEAD_SIZE,
    IN_AT,
    IN_SALT_AT,
    IN_WINDOW_AT,
    OLD_AT,
    OUT_AT,
    OUT_SALT_AT,
    PEER_GEN_AT,
    STATUS_SIZE,
    TOLD_GEN_AT,
    TYPE_STATUS,
)
from drupelet.seal_record import (
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.seal import Seal

_KEY_SIZE = const(32)
_WINDOW_SIZE = const(32)
_SALT_SIZE = const(8)
_TYPE = const(0x07)


def load(seal: "Seal") -> int:
    """Take up both chains from the key port; see `Seal.load`."""
    record = seal.context.record
    code = _choose(seal, RECEIVE)
    if code != OK:
        return code
    seal.kid_in = get_u16(record, RECORD_KID_AT)
    seal.tag_size = 16 if record[1] & FLAG_TAG16 else 8
    seal.issuer = record[1] & FLAG_ISSUER != 0
    seal.generation_in = get_u16(record, RECORD_GENERATION_AT)
    seal.in_epoch = get_u32(record, RECORD_EPOCH_AT)
    seal.old_epoch = -1
    seal.cipher_in = None  # whatever was open before a reboot is closed: its window is gone
    copy(seal.state, PEER_GEN_AT, record, RECORD_EXTRA_AT, 4)
    copy(seal.state, TOLD_GEN_AT, record, RECORD_EXTRA_AT, 4)
    seal.cipher_out = None
    seal.generation = -1
    return _load_send(seal)


def _load_send(seal: "Seal") -> int:
    code = _choose(seal, SEND)
    if code == OK:
        record = seal.context.record
        generation = get_u16(record, RECORD_GENERATION_AT)
        if generation != seal.generation:  # else the peer may have told more since then
            seal.generation = generation
            seal.answered = get_u32(record, RECORD_EXTRA_AT)
        seal.kid_out = get_u16(record, RECORD_KID_AT)
        seal.out_epoch = get_u32(record, RECORD_EPOCH_AT)
    return code


def _choose(seal: "Seal", direction: int) -> int:
    """Load the record in use: the older generation to receive, the newest that may to send."""
    record = seal.context.record
    chosen = -1
    row = 0
    for parity in (0, 1):
        at = row_of(seal.carrier_class, direction, parity)
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
    base = seal.out_epoch
    answered = seal.answered
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
    code = seal.keys.save(row_of(seal.carrier_class, SEND, seal.generation), record)
    fill(record, RECORD_KEY_AT, _KEY_SIZE, 0)
    if code != OK:
        return code
    copy(seal.state, OUT_AT, okm, 0, OKM_SIZE)
    copy(seal.state, OUT_SALT_AT, salt, 0, _SALT_SIZE)
    seal.cipher_out = cipher
    seal.out_epoch = epoch
    seal.seq = 0
    seal.confirmed = seal.renew = False
    seal.owes = True
    return OK


def open_other(seal: "Seal", buf: bytearray, head: int, text: int, epoch: int, now_ms: int) -> int:
    """Open a frame that is not of the peer's current epoch."""
    generation = seal.generation_in
    if buf[0] >> 3 & 1 != generation & 1:
        generation += 1
    elif epoch == seal.old_epoch:
        cipher = seal.context.aead.cipher(seal.state, OLD_AT)
        return seal.open_with(cipher, OLD_AT, buf, head, text, now_ms)
    elif epoch < seal.in_epoch or (epoch == seal.in_epoch and seal.cipher_in is None):
        seal.closed_epoch += 1
        seal.urgent = seal.owes = True
        return E_PEER
    if head == HEAD_SIZE:
        # It takes us for one who knows its salt: an older copy of us was put back.
        seal.closed_epoch += 1
        seal.urgent = seal.owes = True
        return E_PEER
    return _follow(seal, buf, head, text, epoch, generation, now_ms)


def _follow(
    seal: "Seal", buf: bytearray, head: int, text: int, epoch: int, generation: int, now_ms: int
) -> int:
    """Try an epoch that is new to us, or the current one under another salt."""
    context = seal.context
    record = context.record
    row = row_of(seal.carrier_class, RECEIVE, generation)
    if not seal.may_try(now_ms) or seal.keys.load(row, record) != OK:
        return E_PEER
    if get_u16(record, RECORD_GENERATION_AT) != generation:
        return E_PEER
    base = get_u32(record, RECORD_EPOCH_AT)
    same = generation == seal.generation_in
    if epoch <= base and not (same and epoch == seal.in_epoch):
        return E_PEER
    known = seal.in_epoch if same else base
    if epoch - known > SEAL_SKIP_FREE and not _may_skip(seal, epoch - base, now_ms):
        return E_PEER
    key = _key_of(seal, epoch, base)
    if key is None:
        return E_PEER
    salt = buf[HEAD_SIZE : HEAD_SIZE + _SALT_SIZE]
    okm = frame_key(key, salt)
    cipher = context.aead.cipher(okm, 0)
    seal.set_nonce(okm, 0, buf[6])
    if not context.aead.open(cipher, context.nonce, buf, 0, head, text, seal.tag_size):
        seal.failed(now_ms)
        return E_PEER
    if same and epoch == seal.in_epoch:
        seal.clones += 1  # two senders in one epoch: a clone, or one that was set back
        seal.urgent = seal.owes = True
        return E_PEER
    state = seal.state
    if (
        buf[0] & _TYPE == TYPE_STATUS
        and text >= STATUS_SIZE
        and not any(state[PEER_GEN_AT : PEER_GEN_AT + 4])
    ):
        copy(state, PEER_GEN_AT, buf, head + 4, 4)  # the first that it tells
    put_u32(record, RECORD_EPOCH_AT, epoch)
    copy(record, RECORD_KEY_AT, key, 0, _KEY_SIZE)
    copy(record, RECORD_EXTRA_AT, state, PEER_GEN_AT, 4)
    finish(record)
    code = seal.keys.save(row, record) if seal.carrier_class == CLASS_LIVE else OK
    fill(record, RECORD_KEY_AT, _KEY_SIZE, 0)
    if code != OK:
        return code
    _accept(seal, okm, salt, cipher, epoch, generation)
    seal.state[IN_WINDOW_AT + (buf[6] >> 3)] = 1 << (buf[6] & 7)
    return seal.take(buf, head, text, True)


def _may_skip(seal: "Seal", steps: int, now_ms: int) -> bool:
    """Whether so many steps may be computed now: they cost time, and the frame may be forged."""
    if steps > SEAL_STEPS_HOST_MAX:
        seal.too_far += 1
        return False
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


def _accept(
    seal: "Seal", okm: bytes, salt: bytearray, cipher: object, epoch: int, generation: int
) -> None:
    """Make an epoch that was authentic the current one; the one before stays for stragglers."""
    state = seal.state
    copy(state, OLD_AT, state, IN_AT, OKM_SIZE + _WINDOW_SIZE)
    seal.old_epoch = -1 if seal.cipher_in is None else seal.in_epoch
    copy(state, IN_AT, okm, 0, OKM_SIZE)
    copy(state, IN_SALT_AT, salt, 0, _SALT_SIZE)
    fill(state, IN_WINDOW_AT, _WINDOW_SIZE, 0)
    seal.cipher_in = cipher
    seal.ahead = None
    seal.opened(epoch)
    if generation != seal.generation_in:
        seal.old_epoch = -1
        from drupelet.seal_control import turn_over

        turn_over(seal, generation)


def commit(seal: "Seal") -> int:
    """Make the receive epoch of the last whole bundle durable: all that it brought is."""
    epoch = seal.whole_epoch
    if not epoch:
        return OK
    record = seal.context.record
    row = row_of(seal.carrier_class, RECEIVE, seal.generation_in)
    code = seal.keys.load(row, record)
    base = get_u32(record, RECORD_EPOCH_AT)
    if code == OK and epoch > base:
        key = step(record[RECORD_KEY_AT : RECORD_KEY_AT + _KEY_SIZE], base, epoch - base)
        put_u32(record, RECORD_EPOCH_AT, epoch)
        copy(record, RECORD_EXTRA_AT, seal.state, PEER_GEN_AT, 4)
        copy(record, RECORD_KEY_AT, key, 0, _KEY_SIZE)
        finish(record)
        code = seal.keys.save(row, record)
    fill(record, RECORD_KEY_AT, _KEY_SIZE, 0)
    if code == OK:
        seal.whole_epoch = 0
    return code
