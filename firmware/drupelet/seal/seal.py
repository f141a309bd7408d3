"""Sealed links: encrypts and authenticates every frame of a carrier (docs/SPEC.md 11).

    off len
    0   1    flags   bits 7-6 "10", 5 SALT, 4 FINAL, 3 generation & 1, 2-0 type
    1   2    kid     identifies sender, receiver and carrier class
    3   3    epoch   of the sender, durable before its first frame
    6   1    seq     0 to 255, then a new epoch
    7   8    salt    only with SALT
    ..       ciphertext, then a tag of 8 or 16 bytes

Sealing and opening a frame of a confirmed epoch allocates nothing if its cipher is cached. The
device caches one cipher per seal, at least two.
"""

from drupelet.base.compat import ON_BOARD, const
from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.memory import copy, equal, fill, get_u16, get_u32, put_u16, put_u32
from drupelet.base.time_ms import elapsed_ms
from drupelet.seal.control import take_control, turn_over

# isort: off
# fmt: off
from drupelet.base.limits import (
    FRAME_SIZE_MAX, SEAL_AGE_MAX, SEAL_FORGED_MAX, SEAL_FORGED_PER_SLICE, SEAL_OLD_MAX,
    SEAL_STEPS_MAX, SEAL_EPOCH_MAX, SEAL_JUMP, SEAL_JUMP_AFTER, SEAL_SKIP_FREE, SEAL_SKIP_MS,
)
from drupelet.seal.record import (
    AGE_AT, ANEW, ANSWERED_AT, BUNDLE, CLOSED, CLOSED_EPOCH_AT, FAILED_AT, FAILED_OTHER_AT,
    FLAG_ISSUER, FLAG_REVOKED, FLAG_TAG16, FLAG_WAITING, FORGED_AT, FORGED_HERE_AT,
    FRAME_SIZE_AT, GENERATION_AT, GENERATION_IN_AT, HEARD, IN_AT, IN_EPOCH_AT, IN_OPEN,
    IN_SALT_AT, ISSUER, KID_AT, MUTED, OKM_SIZE, OLD_EPOCH, OLD_OWNER, OLD_SIZE, OUT_AT,
    OUT_EPOCH_AT, OUT_OPEN, OUT_SALT_AT, OWES, PEER_GEN_AT, PEER_LOST, RECEIVE,
    RECORD_EPOCH_AT, RECORD_EXTRA_AT, RECORD_GENERATION_AT, RECORD_KEY_AT, RECORD_KID_AT,
    RENAMED, RENEW, REPLAYED_AT, ROW_SIZE, SEND, SEQ_AT, SLICE_AT, STATUS_FLAGS, STATUS_SEQ_AT,
    TAG_SIZE_AT, STATUS_SEEN, UNCONFIRMED, URGENT, WHOLE_EPOCH_AT, WINDOW, finish, frame_key,
    get_u24, put_u24, row_of, step,
)
# fmt: on
# isort: on

if not ON_BOARD:
    from drupelet.seal.ports import SealFields
else:
    SealFields = object  # type: ignore[assignment,misc]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.base.ports import AeadPort, Cipher, KeyPort

CLASS_LIVE = const(0)  # serial, MQTT
CLASS_BUNDLE = const(1)  # stick

_VERSION = const(0x80)
_SALT = const(0x20)
FINAL = const(0x10)
_PARITY = const(0x08)
_TYPE = const(0x07)
TYPE_DATA = const(0)
TYPE_STATUS = const(1)
TYPE_CONTROL = const(2)
HEAD_SIZE = const(7)
SALTED_SIZE = const(15)
STATUS_SIZE = const(9)
# Bits of the status' last byte.
_OPEN = const(1)  # the sender has the reader's epoch that the status names open
_STATUS_SEEN = const(2)  # and has received a status in it
_ASK = const(4)  # the sender's own epoch is not confirmed: it asks for the reader's status
_SEEN_PARITY = const(8)  # generation & 1 of the named epoch
_SALT_BITS = const(0xF0)  # from the second byte of its salt; the first is the status' first byte

_CLASS_BIT = const(3)  # position of BUNDLE in the flags
_GENERATION_NONE = const(0xFFFF)
_KEY_SIZE = const(32)
_WINDOW_SIZE = const(32)
_IV = const(16)  # from key to IV
_IV_SIZE = const(13)
_SALT_SIZE = const(8)


class SealContext:
    """What all seals of a device share: their rows, and a cache of ciphers.

    store_gen: 4 bytes. steps_max: most chain steps computed for one frame. old_max: how many older
    epochs of peers are kept for late frames, in total. forged_max: after this many wrong tags
    in open epochs, 4 to 255, no more frames are tried within a slice of 64 ms.
    """

    def __init__(
        self, aead: "AeadPort", random_byte: "Callable[[], int]", store_gen: bytes,
        steps_max: int = SEAL_STEPS_MAX, old_max: int = SEAL_OLD_MAX,
        forged_max: int = SEAL_FORGED_PER_SLICE,
    ) -> None:  # fmt: skip
        self.aead = aead
        self.random_byte = random_byte
        self.store_gen = store_gen
        self.steps_max = steps_max
        self.old_max = old_max
        self.forged_max = forged_max
        self.old_next = 0
        self.rows = bytearray(old_max * OLD_SIZE)
        self.places = [-1, -1]  # offset in `rows` of the key of each cached cipher; -1: free
        self.ciphers: "list[Cipher]" = [None, None]
        self.seals: "list[Seal]" = []
        self._next = 0  # the cache entry to evict next
        self.record = bytearray(52)
        self.nonce = bytearray(_IV_SIZE)
        self.at = 0  # offset of the plaintext that `Seal.open` opened
        self.final = False  # whether that frame was the last of a bundle

    def cipher(self, place: int, new: "Cipher" = None) -> "Cipher":
        """Return the cipher of the key at rows[place]; `new`: put this cipher into the cache."""
        places = self.places
        ciphers = self.ciphers
        victim = self._next
        for i in range(len(places)):
            if places[i] == place:
                if new is not None:
                    ciphers[i] = new
                return ciphers[i]
            if places[i] < 0:
                victim = i
        self._next = (victim + 1) % len(places)
        places[victim] = -1
        ciphers[victim] = None
        ciphers[victim] = self.aead.cipher(self.rows, place) if new is None else new
        places[victim] = place
        return ciphers[victim]

    def forget(self, place: int) -> None:
        """Drop the cipher of the key at rows[place] from the cache."""
        for i in range(len(self.places)):
            if self.places[i] == place:
                self.places[i] = -1
                self.ciphers[i] = None


class Seal(SealFields):
    """The key chains of one peer and carrier class, both ways; call `load` first."""

    # Rarely used fields are class attributes: an instance takes RAM for one only once it is set.
    skip_ms = -1  # when many steps were computed last; -1: never
    ahead: "bytearray | None" = None  # the chain key on the way to an epoch far ahead
    ahead_epoch = 0
    clones = unknown = 0

    def __init__(self, context: SealContext, keys: "KeyPort", carrier_class: int) -> None:
        self.context: SealContext = context
        self.keys = keys
        self.at = at = len(context.rows)
        context.seals.append(self)
        self.flags = HEARD | UNCONFIRMED | (BUNDLE if carrier_class else 0)
        context.rows += bytearray(ROW_SIZE)
        put_u16(context.rows, at + FRAME_SIZE_AT, FRAME_SIZE_MAX)
        if (at - context.old_max * OLD_SIZE) // ROW_SIZE >= len(context.places):
            context.places.append(-1)
            context.ciphers.append(None)

    def close(self) -> None:
        """Erase the keys after a revocation: nothing is sealed or opened any more."""
        self.flags = CLOSED
        context = self.context
        context.forget(self.at + OUT_AT)
        context.forget(self.at + IN_AT)
        self._old(True)
        fill(context.rows, self.at, ROW_SIZE, 0)

    def count(self, what: int) -> None:
        """Increment the counter at offset `what` of the row; it saturates at 65,535."""
        rows = self.context.rows
        what += self.at
        total = get_u16(rows, what) + 1
        if total < 0x10000:
            put_u16(rows, what, total)

    def grow_old(self, units: int) -> None:
        """Add `units` of 65,536 ms to our epoch's age; renew the epoch at 30 days."""
        rows = self.context.rows
        units += get_u16(rows, self.at + AGE_AT)
        if units >= SEAL_AGE_MAX:
            self.flags |= RENEW
        else:
            put_u16(rows, self.at + AGE_AT, units)

    # --- out ---

    def prepare(self) -> int:
        """Open an epoch if the next frame needs a new one; OK, or a code: send nothing."""
        if self.flags & CLOSED:
            return E_PEER
        if self.flags & (OUT_OPEN | RENEW) == OUT_OPEN:
            return OK
        return self._open_send()

    def room(self) -> int:
        """Return how many bytes of plaintext fit in a frame with a salt."""
        rows = self.context.rows
        return get_u16(rows, self.at + FRAME_SIZE_AT) - SALTED_SIZE - rows[self.at + TAG_SIZE_AT]

    def seal_into(self, out: bytearray, frame: "bytes | bytearray", size: int, kind: int) -> int:
        """Seal frame[:size] into `out`; return the sealed size, or a negative code: send nothing.

        `kind` is TYPE_DATA or TYPE_CONTROL, with or without FINAL. Our status is put in front of
        data if it is due and there is room.
        """
        code = self.prepare()
        if code != OK:
            return code
        context = self.context
        rows = context.rows
        at = self.at
        seq = rows[at + SEQ_AT]
        salted = self.flags & (BUNDLE | UNCONFIRMED) == UNCONFIRMED
        # Repeat it with frames 4, 8, 16 ..., in case the first was lost.
        is_status_due = self.flags & OWES or (salted and not seq & (seq - 1 | 3))
        if is_status_due and not kind & _TYPE and self.room() >= STATUS_SIZE + size:
            kind |= TYPE_STATUS
        head = HEAD_SIZE
        if kind & TYPE_STATUS or salted or not seq:
            kind |= _SALT
            copy(out, HEAD_SIZE, rows, at + OUT_SALT_AT, _SALT_SIZE)
            head = SALTED_SIZE
        text_at = head
        if kind & TYPE_STATUS:
            self._put_status(out, head)
            text_at += STATUS_SIZE
        copy(out, text_at, frame, 0, size)
        out[0] = kind | _VERSION | (rows[at + GENERATION_AT + 1] & 1) * _PARITY
        out[1] = rows[at + KID_AT]
        out[2] = rows[at + KID_AT + 1] ^ 1
        copy(out, 3, rows, at + OUT_EPOCH_AT, 3)
        out[6] = seq
        # Advance before the key is used: a nonce must not be used twice, whatever fails.
        rows[at + SEQ_AT] = seq + 1 & 255
        if seq == 255:
            self.flags |= RENEW
        self.set_nonce(rows, at + OUT_AT, seq)
        size += text_at - head
        tag_size = rows[at + TAG_SIZE_AT]
        context.aead.seal(context.cipher(at + OUT_AT), context.nonce, out, 0, head, size, tag_size)
        return head + size + tag_size

    def _put_status(self, out: bytearray, at: int) -> None:
        # A peer restored from an older copy uses an epoch number again: the salt tells which of
        # the two epochs we mean.
        rows = self.context.rows
        row = self.at
        out[at] = rows[row + IN_SALT_AT]
        copy(out, at + 1, rows, row + IN_EPOCH_AT, 3)
        copy(out, at + 4, self.context.store_gen, 0, 4)
        out[at + 8] = (
            self.flags & STATUS_FLAGS
            | (rows[row + GENERATION_IN_AT + 1] & 1) * _SEEN_PARITY
            | (rows[row + IN_SALT_AT + 1] & _SALT_BITS)
        )
        self.flags &= ~(OWES | URGENT)

    def set_nonce(self, okm: "bytes | bytearray", at: int, seq: int) -> None:
        """Set context.nonce for frame `seq`, from the IV behind the key at okm[at]."""
        nonce = self.context.nonce
        copy(nonce, 0, okm, at + _IV, _IV_SIZE)
        nonce[12] ^= seq

    # --- in ---

    def open(self, buf: bytearray, size: int, now_ms: int) -> int:
        """Open the frame buf[:size] in place; return the size of the data for the link.

        The data is at buf[context.at]; 0: the frame is authentic, but has none. E_PEER: the frame
        is refused. E_STORAGE: its epoch could not be made durable, so it counts as lost.
        """
        flags = buf[0]
        rows = self.context.rows
        at = self.at
        head = SALTED_SIZE if flags & _SALT else HEAD_SIZE
        text = size - head - rows[at + TAG_SIZE_AT]
        is_wrong = self.flags & CLOSED or text < 0 or flags & 0xC0 != _VERSION
        if is_wrong or not equal(buf, 1, rows, at + KID_AT, 2):
            return E_PEER
        if (
            self.flags & IN_OPEN
            and equal(buf, 3, rows, at + IN_EPOCH_AT, 3)
            and not (flags >> 3 ^ rows[at + GENERATION_IN_AT + 1]) & 1
            and (head == HEAD_SIZE or equal(buf, HEAD_SIZE, rows, at + IN_SALT_AT, _SALT_SIZE))
        ):
            return self._open_with(at + IN_AT, buf, head, text, now_ms)
        return self._open_other(buf, head, text, now_ms)

    def _open_with(self, place: int, buf: bytearray, head: int, text: int, now_ms: int) -> int:
        """Open a frame with the key at rows[place], which its replay window follows."""
        context = self.context
        rows = context.rows
        seq = buf[6]
        if rows[place + WINDOW + (seq >> 3)] & 1 << (seq & 7):
            self.count(REPLAYED_AT)
            return E_PEER
        if not self._may_try(FAILED_AT, now_ms):
            return E_PEER
        self.set_nonce(rows, place, seq)
        cipher = context.cipher(place)
        tag_size = rows[self.at + TAG_SIZE_AT]
        if not context.aead.open(cipher, context.nonce, buf, 0, head, text, tag_size):
            self._failed(FAILED_AT)
            self.count(FORGED_HERE_AT)
            if get_u16(rows, self.at + FORGED_HERE_AT) >= SEAL_FORGED_MAX:
                self.flags = (self.flags | MUTED | URGENT) & ~IN_OPEN
                self._old(True)
            return E_PEER
        return self._take(place, buf, head, text)

    def _may_try(self, failed_at: int, now_ms: int) -> bool:
        """Whether to try a frame: False if too many of its kind failed in this slice of 64 ms."""
        rows = self.context.rows
        at = self.at
        if rows[at + SLICE_AT] != now_ms >> 6 & 255:
            rows[at + SLICE_AT] = now_ms >> 6 & 255
            rows[at + FAILED_AT] = rows[at + FAILED_OTHER_AT] = 0
        most = self.context.forged_max
        return rows[at + failed_at] < (most if failed_at == FAILED_AT else most >> 2)

    def _failed(self, failed_at: int) -> None:
        """Count a wrong tag, after `_may_try`: noise or a forgery."""
        self.context.rows[self.at + failed_at] += 1
        self.count(FORGED_AT)

    def _take(self, place: int, buf: bytearray, head: int, text: int) -> int:
        """Handle an authentic frame by its type; return the size of its data, or a code.

        The frame is marked in the replay window unless the key port failed (E_STORAGE).
        """
        flags = buf[0]
        kind = flags & _TYPE
        context = self.context
        rows = context.rows
        context.final = flags & FINAL != 0
        context.at = head
        self.flags |= HEARD
        result = E_PEER
        if kind == TYPE_DATA:
            if flags & _SALT:
                self.flags |= OWES  # the peer does not know that we have its epoch open
            result = text
        elif kind == TYPE_STATUS and text >= STATUS_SIZE:
            newer = not self.flags & STATUS_SEEN or buf[6] > rows[self.at + STATUS_SEQ_AT]
            if newer and place == self.at + IN_AT:
                rows[self.at + STATUS_SEQ_AT] = buf[6]
                self.flags |= STATUS_SEEN
                self._take_status(buf, head)
                if text == STATUS_SIZE and self.flags & OWES:
                    self.flags |= URGENT  # a peer that sends only its status waits for ours
            context.at += STATUS_SIZE
            result = text - STATUS_SIZE
        elif kind == TYPE_CONTROL and self.flags & ISSUER:
            result = take_control(self, buf, head, text)
        elif kind > TYPE_CONTROL:
            self.unknown += 1  # type 3 is reserved for firmware, the others are unassigned
        if result != E_STORAGE:
            rows[place + WINDOW + (buf[6] >> 3)] |= 1 << (buf[6] & 7)
        return result

    def _take_status(self, buf: bytearray, at: int) -> None:
        caps = buf[at + 8]
        rows = self.context.rows
        row = self.at
        if not equal(buf, at + 4, rows, row + PEER_GEN_AT, 4):
            if get_u32(rows, row + PEER_GEN_AT):
                self.flags |= PEER_LOST
                # Frames from before the loss acknowledge what is lost now: refuse them.
                self._old(True)
            copy(rows, row + PEER_GEN_AT, buf, at + 4, 4)
        if caps & _ASK:
            self.flags |= OWES
        if caps & _SEEN_PARITY != (rows[row + GENERATION_AT + 1] & 1) * _SEEN_PARITY:
            return
        seen = get_u24(buf, at + 1)
        ours = get_u24(rows, row + OUT_EPOCH_AT)
        if seen - ours > self.context.steps_max:
            return  # further ahead than we could follow
        put_u24(rows, row + ANSWERED_AT, seen)
        if self.flags & BUNDLE:
            if seen == ours and self.flags & OUT_OPEN:
                self.flags &= ~ANEW
            return
        is_same_salt = buf[at] == rows[row + OUT_SALT_AT]
        is_same_salt = is_same_salt and not (caps ^ rows[row + OUT_SALT_AT + 1]) & _SALT_BITS
        if seen == ours and caps & _OPEN and is_same_salt:
            if caps & _STATUS_SEEN:
                self.flags &= ~(UNCONFIRMED | ANEW)
            else:
                self.flags |= OWES
        elif seen >= ours or not self.flags & UNCONFIRMED:
            # The peer has closed this epoch, or one of us was restored from an older copy.
            self.flags |= RENEW | OWES

    def settle(self) -> None:
        """Accept the peer's new store_gen: its messages have been marked to be offered again."""
        self.flags &= ~PEER_LOST

    # --- once per epoch ---
    # Our epoch becomes durable before its first frame is sent; the peer's, once a tag was right
    # and before any of its data is handed on (docs/SPEC.md 11.4).

    def load(self) -> int:
        """Load the chains from the key port; OK, E_STORAGE: there are none, E_PEER: revoked."""
        context = self.context
        record = context.record
        rows = context.rows
        at = self.at
        code = self._choose(RECEIVE)
        if code != OK:
            return code
        # The epochs that were open before a reboot are closed, as their replay windows are lost.
        self.flags &= ~(OUT_OPEN | IN_OPEN | ISSUER)
        self._old(True)
        put_u24(rows, at + WHOLE_EPOCH_AT, 0)
        if record[1] & FLAG_ISSUER:
            self.flags |= ISSUER
        rows[at + TAG_SIZE_AT] = 16 if record[1] & FLAG_TAG16 else 8
        copy(rows, at + KID_AT, record, RECORD_KID_AT, 4)  # and the generation
        copy(rows, at + IN_EPOCH_AT, record, RECORD_EPOCH_AT + 1, 3)
        copy(rows, at + PEER_GEN_AT, record, RECORD_EXTRA_AT, 4)
        put_u16(rows, at + GENERATION_AT, _GENERATION_NONE)
        return self._load_send()

    def _load_send(self) -> int:
        code = self._choose(SEND)
        if code == OK:
            record = self.context.record
            rows = self.context.rows
            at = self.at
            # In the same generation, ANSWERED_AT may be newer than the record.
            if not equal(record, RECORD_GENERATION_AT, rows, at + GENERATION_AT, 2):
                self.flags |= RENAMED
                copy(rows, at + GENERATION_AT, record, RECORD_GENERATION_AT, 2)
                copy(rows, at + ANSWERED_AT, record, RECORD_EXTRA_AT + 1, 3)
            copy(rows, at + OUT_EPOCH_AT, record, RECORD_EPOCH_AT + 1, 3)
        return code

    def _choose(self, direction: int) -> int:
        """Load the record in use into the context; OK or a code, as `load`.

        To receive, the older generation is used; to send, the newest that does not wait.
        """
        record = self.context.record
        chosen = -1
        row = 0
        for parity in (0, 1):
            at = row_of(self.flags >> _CLASS_BIT & 1, direction, parity)
            if self.keys.load(at, record) != OK:
                continue
            if record[1] & FLAG_REVOKED:
                return E_PEER
            generation = get_u16(record, RECORD_GENERATION_AT)
            if record[1] & FLAG_WAITING:
                continue
            if chosen < 0 or (generation < chosen) == (direction == RECEIVE):
                chosen = generation
                row = at
        return E_STORAGE if chosen < 0 else self.keys.load(row, record)

    def _open_send(self) -> int:
        """Open our next epoch: make its record durable, then use its key; OK or a code."""
        context = self.context
        record = context.record
        code = self._load_send()
        if code != OK:
            return code
        rows = context.rows
        at = self.at
        base = get_u24(rows, at + OUT_EPOCH_AT)
        answered = get_u24(rows, at + ANSWERED_AT)
        epoch = max(base, answered) + 1
        unanswered = epoch - answered
        if unanswered == SEAL_JUMP_AFTER or unanswered == SEAL_JUMP + 8 * SEAL_JUMP_AFTER:
            epoch += SEAL_JUMP  # we may have been restored from an older copy
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
        code = self.keys.save(
            row_of(self.flags >> _CLASS_BIT & 1, SEND, rows[at + GENERATION_AT + 1]), record
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
        self.flags = (self.flags | OUT_OPEN | OWES | UNCONFIRMED) & ~RENEW
        return OK

    def _open_other(self, buf: bytearray, head: int, text: int, now_ms: int) -> int:
        """Handle a frame that does not belong to the peer's current epoch; as `open`."""
        rows = self.context.rows
        at = self.at
        epoch = get_u24(buf, 3)
        known = get_u24(rows, at + IN_EPOCH_AT)
        generation = get_u16(rows, at + GENERATION_IN_AT)
        if (buf[0] >> 3 ^ generation) & 1:
            generation += 1
        else:
            old = self._old(False)
            if old >= 0 and equal(buf, 3, rows, old + OLD_EPOCH, 3):
                result = self._open_with(old, buf, head, text, now_ms)
                if result != E_PEER or head == HEAD_SIZE:
                    return result
                # It may have another salt: a peer restored to this epoch must learn our status.
            if epoch < known or (epoch == known and not self.flags & IN_OPEN):
                head = HEAD_SIZE
        if head == HEAD_SIZE:
            # The epoch is closed; or the peer believes that we know its salt, because we were
            # restored from an older copy.
            self.count(CLOSED_EPOCH_AT)
            self.flags |= URGENT | OWES
            return E_PEER
        return self._follow(buf, text, epoch, generation, now_ms)

    def _follow(self, buf: bytearray, text: int, epoch: int, generation: int, now_ms: int) -> int:
        """Try to open a frame of a new epoch, or of the current one with another salt."""
        context = self.context
        record = context.record
        rows = context.rows
        at = self.at
        row = row_of(self.flags >> _CLASS_BIT & 1, RECEIVE, generation)
        if not self._may_try(FAILED_OTHER_AT, now_ms) or self.keys.load(row, record) != OK:
            return E_PEER
        base = get_u32(record, RECORD_EPOCH_AT)
        is_same_generation = generation == get_u16(rows, at + GENERATION_IN_AT)
        known = get_u24(rows, at + IN_EPOCH_AT) if is_same_generation else base
        is_current = is_same_generation and epoch == known
        if (
            (epoch <= base and not is_current)
            or get_u16(record, RECORD_GENERATION_AT) != generation
            # Until a loss is handled (`settle`) do not switch to a new root: its record would not
            # say that the peer's store changed.
            or (self.flags & PEER_LOST and not is_same_generation)
            or (epoch - known > SEAL_SKIP_FREE and not self._may_skip(now_ms))
        ):
            return E_PEER
        key = self._key_of(epoch, base)
        if key is None:
            return E_PEER
        salt = buf[HEAD_SIZE:SALTED_SIZE]
        okm = frame_key(key, salt)
        cipher = context.aead.cipher(okm, 0)
        self.set_nonce(okm, 0, buf[6])
        if not context.aead.open(
            cipher, context.nonce, buf, 0, SALTED_SIZE, text, rows[at + TAG_SIZE_AT]
        ):
            self._failed(FAILED_OTHER_AT)
            return E_PEER
        if is_current:
            self.clones += 1  # two senders in one epoch: a clone, or a restored older copy
            self.flags |= URGENT | OWES
            return E_PEER
        if not get_u32(rows, at + PEER_GEN_AT):
            if get_u24(rows, at + IN_EPOCH_AT):
                # An epoch has ended without a status, and the store that it spoke for with it.
                self.flags = (self.flags | PEER_LOST) & ~IN_OPEN
            if buf[0] & _TYPE == TYPE_STATUS and text >= STATUS_SIZE:
                copy(rows, at + PEER_GEN_AT, buf, SALTED_SIZE + 4, 4)  # its first status
        code = OK if is_same_generation else turn_over(self, row, generation)
        if code == OK and not self.flags & BUNDLE:  # a bundle's: in `commit`
            code = self._keep(row, epoch, key)
        fill(record, RECORD_KEY_AT, _KEY_SIZE, 0)
        if code != OK:
            return code
        self._accept(okm, salt, cipher, epoch)
        return self._take(at + IN_AT, buf, SALTED_SIZE, text)

    def _keep(self, row: int, epoch: int, key: "bytes | bytearray") -> int:
        """Make a receive epoch durable in the loaded record; OK or the key port's code."""
        record = self.context.record
        put_u32(record, RECORD_EPOCH_AT, epoch)
        copy(record, RECORD_KEY_AT, key, 0, _KEY_SIZE)
        if not self.flags & PEER_LOST:  # else keep the old store_gen until the loss is handled
            copy(record, RECORD_EXTRA_AT, self.context.rows, self.at + PEER_GEN_AT, 4)
        finish(record)
        return self.keys.save(row, record)

    def _may_skip(self, now_ms: int) -> bool:
        """Whether many steps may be computed now: they take time, and the frame may be forged."""
        if self.skip_ms >= 0 and elapsed_ms(now_ms, self.skip_ms) < SEAL_SKIP_MS:
            return False
        self.skip_ms = now_ms
        return True

    def _key_of(self, epoch: int, base: int) -> "bytes | bytearray | None":
        """Return CK(epoch), computed from the loaded record; None: it takes more steps.

        Then `ahead` has the key so far, for the next frame. It is not written to the record,
        because no authentic frame has confirmed it.
        """
        key = self.context.record[RECORD_KEY_AT : RECORD_KEY_AT + _KEY_SIZE]
        if self.ahead is not None and base < self.ahead_epoch <= epoch:
            key = self.ahead
            base = self.ahead_epoch
        steps_max = self.context.steps_max
        if epoch - base <= steps_max:
            return step(key, base, epoch - base)
        self.ahead = bytearray(step(key, base, steps_max))
        self.ahead_epoch = base + steps_max
        return None

    def _old(self, drop: bool) -> int:
        """Return the offset of the peer's older epoch in `rows`, -1: none. drop: erase it."""
        context = self.context
        for i in range(context.old_max):
            old = i * OLD_SIZE
            if get_u24(context.rows, old + OLD_OWNER) == self.at:
                if drop:
                    context.forget(old)
                    fill(context.rows, old, OLD_SIZE, 0)
                return old
        return -1

    def _accept(self, okm: bytes, salt: bytearray, cipher: object, epoch: int) -> None:
        """Make an authentic epoch the current one; keep the previous one for late frames."""
        context = self.context
        rows = context.rows
        at = self.at
        old = self._old(True)
        if self.flags & IN_OPEN:
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
        self.flags = (self.flags | IN_OPEN) & ~(STATUS_SEEN | MUTED)
        if self.ahead is not None:
            self.ahead = None

    def commit(self) -> int:
        """Make the epoch of the last bundle read whole durable, after its messages are; a code."""
        rows = self.context.rows
        epoch = get_u24(rows, self.at + WHOLE_EPOCH_AT)
        if not epoch:
            return OK
        record = self.context.record
        row = row_of(1, RECEIVE, rows[self.at + GENERATION_IN_AT + 1])
        code = self.keys.load(row, record)
        base = get_u32(record, RECORD_EPOCH_AT)
        if code == OK and epoch > base:
            key = step(record[RECORD_KEY_AT : RECORD_KEY_AT + _KEY_SIZE], base, epoch - base)
            code = self._keep(row, epoch, key)
        fill(record, RECORD_KEY_AT, _KEY_SIZE, 0)
        if code == OK:
            put_u24(rows, self.at + WHOLE_EPOCH_AT, 0)
        return code
