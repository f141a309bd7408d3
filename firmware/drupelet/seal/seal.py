"""Sealed links: every frame of a carrier encrypted and authenticated (docs/SPEC.md 11).

    off len
    0   1    flags   bits 7-6 "10", 5 SALT, 4 FINAL, 3 generation & 1, 2-0 type
    1   2    kid     names sender, receiver and carrier class
    3   3    epoch   of the sender: durable before its first frame
    6   1    seq     0 to 255, then a new epoch
    7   8    salt    only with SALT
    ..       ciphertext, then a tag of 8 or 16 bytes

Here is what happens to each frame; what happens once per epoch is in `seal_epoch`. A frame of a
confirmed epoch is sealed and opened without an allocation, as long as its cipher is one of those
that the device keeps: one per seal, two at least.
"""

from drupelet.base.compat import ON_BOARD, const
from drupelet.base.errors import E_PEER, E_STORAGE, OK
from drupelet.base.memory import copy, equal, fill, get_u16, put_u16

# isort: off
# fmt: off
from drupelet.base.limits import (
    FRAME_SIZE_MAX, SEAL_AGE_MAX, SEAL_FORGED_MAX, SEAL_FORGED_PER_SLICE, SEAL_OLD_MAX,
    SEAL_STEPS_MAX,
)
from drupelet.seal.row import (
    AGE_AT, ANEW, ANSWERED_AT, BUNDLE, CLOSED, FORGED_AT, FORGED_HERE_AT, FRAME_SIZE_AT,
    GENERATION_AT, GENERATION_IN_AT, HEARD, IN_AT, IN_EPOCH_AT, IN_OPEN, IN_SALT_AT, ISSUER,
    KID_AT, MUTED, OLD_SIZE, FAILED_OTHER_AT, OUT_AT, OUT_EPOCH_AT, OUT_OPEN, OUT_SALT_AT, OWES,
    PEER_GEN_AT, PEER_LOST, RENEW, REPLAYED_AT, ROW_SIZE, SEQ_AT, SLICE_AT, STATUS_FLAGS,
    STATUS_SEQ_AT, TAG_SIZE_AT, FAILED_AT, TOLD, UNCONFIRMED, URGENT, WINDOW, get_u24, put_u24,
)
# fmt: on
# isort: on

if not ON_BOARD:
    from drupelet.seal.view import Named
else:
    Named = object  # type: ignore[assignment,misc]

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
_OPEN = const(1)  # the epoch seen is open here
_TOLD = const(2)  # and its status came
_ASK = const(4)  # our own epoch is not confirmed: tell yours
_SEEN_PARITY = const(8)  # generation & 1 of the epoch seen
_SALT_BITS = const(0xF0)  # of the second byte of its salt; the first one begins the status

_IV = const(16)  # from key to IV
_IV_SIZE = const(13)
_SALT_SIZE = const(8)


class SealContext:
    """What all seals of a device share: their rows, and ciphers of keys used lately.

    store_gen: 4 bytes; old_max: epochs that are kept for stragglers, of all peers together;
    forged_max: wrong tags of open epochs that are tried in a slice of 64 ms, 4 to 255.
    """

    def __init__(
        self, aead: "AeadPort", random_byte: "Callable[[], int]", store_gen: bytes,
        steps_max: int = SEAL_STEPS_MAX, old_max: int = SEAL_OLD_MAX,
        forged_max: int = SEAL_FORGED_PER_SLICE,
    ) -> None:  # fmt: skip
        from drupelet.seal import epochs as seal_epoch  # it imports this module, too

        self.epochs = seal_epoch
        self.aead = aead
        self.random_byte = random_byte
        self.store_gen = store_gen
        self.steps_max = steps_max
        self.old_max = old_max
        self.forged_max = forged_max
        self.old_next = 0
        self.rows = bytearray(old_max * OLD_SIZE)
        self.places = [-1, -1]  # where the keys of the ciphers are in `rows`
        self.ciphers: "list[Cipher]" = [None, None]
        self.seals: "list[Seal]" = []
        self._next = 0  # to go when there is a new one
        self.record = bytearray(52)
        self.nonce = bytearray(_IV_SIZE)
        self.at = 0  # where `Seal.open` left the plaintext
        self.final = False  # and whether the frame was the last of a bundle

    def cipher(self, place: int, made: "Cipher" = None) -> "Cipher":
        """The cipher of the key at rows[place]. `made`: the key is new, and this is its cipher."""
        places = self.places
        ciphers = self.ciphers
        free = self._next
        for i in range(len(places)):
            if places[i] == place:
                if made is not None:
                    ciphers[i] = made
                return ciphers[i]
            if places[i] < 0:
                free = i
        i = free
        self._next = (i + 1) % len(places)
        places[i] = -1
        ciphers[i] = None
        ciphers[i] = self.aead.cipher(self.rows, place) if made is None else made
        places[i] = place
        return ciphers[i]

    def forget(self, place: int) -> None:
        """The key at rows[place] is used no more."""
        for i in range(len(self.places)):
            if self.places[i] == place:
                self.places[i] = -1
                self.ciphers[i] = None


class Seal(Named):
    """The chains of one peer and carrier class, both ways. Call `load` before anything else."""

    # What few seals ever need stands here, so that the others do not pay for it.
    skip_ms = -1  # of the last long skip; -1 none
    ahead: "bytearray | None" = None  # a chain key on the way to an epoch far ahead
    ahead_epoch = 0
    clones = unknown = 0

    def __init__(self, context: SealContext, keys: "KeyPort", carrier_class: int) -> None:
        self.context = context
        self.keys = keys
        self.at = at = len(context.rows)
        context.seals.append(self)
        self.flags = HEARD | UNCONFIRMED | (BUNDLE if carrier_class else 0)
        context.rows += bytearray(ROW_SIZE)
        put_u16(context.rows, at + FRAME_SIZE_AT, FRAME_SIZE_MAX)
        if (at - context.old_max * OLD_SIZE) // ROW_SIZE >= len(context.places):
            context.places.append(-1)
            context.ciphers.append(None)

    def load(self) -> int:
        """Take up the chains: OK, E_STORAGE when there are none, E_PEER when revoked."""
        code: int = self.context.epochs.load(self)
        return code

    def close(self) -> None:
        """Revoked: nothing is sealed or opened any more."""
        self.flags = CLOSED
        context = self.context
        context.forget(self.at + OUT_AT)
        context.forget(self.at + IN_AT)
        context.epochs.old_of(self, True)
        fill(context.rows, self.at, ROW_SIZE, 0)

    def count(self, what: int) -> None:
        """One more of what is counted at this place of the row."""
        rows = self.context.rows
        what += self.at
        many = get_u16(rows, what) + 1
        if many < 0x10000:
            put_u16(rows, what, many)

    def grow_old(self, units: int) -> None:
        """So many units of 65,536 ms went by: an epoch of 30 days ends."""
        rows = self.context.rows
        units += get_u16(rows, self.at + AGE_AT)
        if units >= SEAL_AGE_MAX:
            self.flags |= RENEW
        else:
            put_u16(rows, self.at + AGE_AT, units)

    # --- out ---

    def prepare(self) -> int:
        """Open an epoch if the next frame needs one; OK, or a code: nothing may be sent."""
        if self.flags & CLOSED:
            return E_PEER
        if self.flags & (OUT_OPEN | RENEW) == OUT_OPEN:
            return OK
        code: int = self.context.epochs.open_send(self)
        return code

    def room(self) -> int:
        """The most bytes of plaintext in a frame that carries its salt."""
        rows = self.context.rows
        return get_u16(rows, self.at + FRAME_SIZE_AT) - SALTED_SIZE - rows[self.at + TAG_SIZE_AT]

    def seal_into(self, out: bytearray, frame: "bytes | bytearray", size: int, kind: int) -> int:
        """Seal frame[:size] into `out`; its size there, or a code below 0: do not send.

        `kind` is TYPE_DATA, with FINAL or not, or TYPE_CONTROL. Data carries our status in front
        when that is due and fits.
        """
        code = self.prepare()
        if code != OK:
            return code
        context = self.context
        rows = context.rows
        at = self.at
        seq = rows[at + SEQ_AT]
        salted = self.flags & (BUNDLE | UNCONFIRMED) == UNCONFIRMED
        # Again with frames 4, 8, 16 ...: the first one may have been lost.
        due = self.flags & OWES or (salted and not seq & (seq - 1 | 3))
        if due and not kind & _TYPE and self.room() >= STATUS_SIZE + size:
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
        # Before the key is used, whatever happens then.
        rows[at + SEQ_AT] = seq + 1 & 255
        if seq == 255:
            self.flags |= RENEW
        self.set_nonce(rows, at + OUT_AT, seq)
        size += text_at - head
        tag_size = rows[at + TAG_SIZE_AT]
        context.aead.seal(context.cipher(at + OUT_AT), context.nonce, out, 0, head, size, tag_size)
        return head + size + tag_size

    def _put_status(self, out: bytearray, at: int) -> None:
        # Who was set back has used its epoch's number before, with another salt: tell which one.
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
        """Put the nonce of frame `seq` together from the IV behind a key."""
        nonce = self.context.nonce
        copy(nonce, 0, okm, at + _IV, _IV_SIZE)
        nonce[12] ^= seq

    # --- in ---

    def open(self, buf: bytearray, size: int, now_ms: int) -> int:
        """Open the frame buf[:size] in place: the size of what is in it for the link, at
        buf[context.at]; 0 when it is authentic but there is nothing; E_PEER when it is refused.
        E_STORAGE: its epoch could not be made durable, so it counts as lost.
        """
        flags = buf[0]
        rows = self.context.rows
        at = self.at
        head = SALTED_SIZE if flags & _SALT else HEAD_SIZE
        text = size - head - rows[at + TAG_SIZE_AT]
        wrong = self.flags & CLOSED or text < 0 or flags & 0xC0 != _VERSION
        if wrong or not equal(buf, 1, rows, at + KID_AT, 2):
            return E_PEER
        if (
            self.flags & IN_OPEN
            and equal(buf, 3, rows, at + IN_EPOCH_AT, 3)
            and not (flags >> 3 ^ rows[at + GENERATION_IN_AT + 1]) & 1
            and (head == HEAD_SIZE or equal(buf, HEAD_SIZE, rows, at + IN_SALT_AT, _SALT_SIZE))
        ):
            return self.open_with(at + IN_AT, buf, head, text, now_ms)
        got: int = self.context.epochs.open_other(self, buf, head, text, now_ms)
        return got

    def open_with(self, place: int, buf: bytearray, head: int, text: int, now_ms: int) -> int:
        """Open with the key at rows[place], whose window is behind it."""
        context = self.context
        rows = context.rows
        seq = buf[6]
        if rows[place + WINDOW + (seq >> 3)] & 1 << (seq & 7):
            self.count(REPLAYED_AT)
            return E_PEER
        if not self.may_try(FAILED_AT, now_ms):
            return E_PEER
        self.set_nonce(rows, place, seq)
        cipher = context.cipher(place)
        tag_size = rows[self.at + TAG_SIZE_AT]
        if not context.aead.open(cipher, context.nonce, buf, 0, head, text, tag_size):
            self.failed(FAILED_AT)
            self.count(FORGED_HERE_AT)
            if get_u16(rows, self.at + FORGED_HERE_AT) >= SEAL_FORGED_MAX:
                self.flags = (self.flags | MUTED | URGENT) & ~IN_OPEN
                context.epochs.old_of(self, True)
            return E_PEER
        return self.take_once(place, buf, head, text)

    def take_once(self, place: int, buf: bytearray, head: int, text: int) -> int:
        """`take`, and note that the frame came, unless what it asks for could not be kept."""
        got = self.take(buf, head, text, place == self.at + IN_AT)
        if got != E_STORAGE:
            self.context.rows[place + WINDOW + (buf[6] >> 3)] |= 1 << (buf[6] & 7)
        return got

    def may_try(self, failed_at: int, now_ms: int) -> bool:
        """False while too many frames of this kind failed within a slice of 64 ms."""
        rows = self.context.rows
        at = self.at
        if rows[at + SLICE_AT] != now_ms >> 6 & 255:
            rows[at + SLICE_AT] = now_ms >> 6 & 255
            rows[at + FAILED_AT] = rows[at + FAILED_OTHER_AT] = 0
        most = self.context.forged_max
        return rows[at + failed_at] < (most if failed_at == FAILED_AT else most >> 2)

    def failed(self, failed_at: int) -> None:
        """A tag was wrong, after `may_try`: noise, or somebody tries."""
        self.context.rows[self.at + failed_at] += 1
        self.count(FORGED_AT)

    def take(self, buf: bytearray, head: int, text: int, current: bool) -> int:
        """Do what an authentic frame asks for; the size of what is for the link."""
        flags = buf[0]
        kind = flags & _TYPE
        context = self.context
        context.final = flags & FINAL != 0
        context.at = head
        self.flags |= HEARD
        if kind == TYPE_DATA:
            if flags & _SALT:
                self.flags |= OWES  # the peer does not know that we have its epoch
            return text
        if kind == TYPE_STATUS and text >= STATUS_SIZE:
            status_at = self.at + STATUS_SEQ_AT
            if current and (not self.flags & TOLD or buf[6] > context.rows[status_at]):
                context.rows[status_at] = buf[6]
                self.flags |= TOLD
                self._take_status(buf, head)
                if text == STATUS_SIZE and self.flags & OWES:
                    self.flags |= URGENT  # who has nothing else to say waits for ours
            context.at += STATUS_SIZE
            return text - STATUS_SIZE
        if kind == TYPE_CONTROL and self.flags & ISSUER:
            from drupelet.seal.control import take_control

            return take_control(self, buf, head, text)
        if kind > TYPE_CONTROL:
            self.unknown += 1  # 3 is kept for firmware, the others for nothing yet
        return E_PEER

    def _take_status(self, buf: bytearray, at: int) -> None:
        caps = buf[at + 8]
        rows = self.context.rows
        row = self.at
        if not equal(buf, at + 4, rows, row + PEER_GEN_AT, 4):
            if not equal(rows, row + PEER_GEN_AT, b"\0\0\0\0", 0, 4):
                self.flags |= PEER_LOST
                # What left before the loss speaks of what is lost: it comes too late.
                self.context.epochs.old_of(self, True)
            copy(rows, row + PEER_GEN_AT, buf, at + 4, 4)
        if caps & _ASK:
            self.flags |= OWES
        if caps & _SEEN_PARITY != (rows[row + GENERATION_AT + 1] & 1) * _SEEN_PARITY:
            return
        seen = get_u24(buf, at + 1)
        ours = get_u24(rows, row + OUT_EPOCH_AT)
        if seen - ours > self.context.steps_max:
            return  # further than we could follow
        put_u24(rows, row + ANSWERED_AT, seen)
        if self.flags & BUNDLE:
            if seen == ours and self.flags & OUT_OPEN:
                self.flags &= ~ANEW
            return
        same = buf[at] == rows[row + OUT_SALT_AT]
        same = same and not (caps ^ rows[row + OUT_SALT_AT + 1]) & _SALT_BITS
        if seen == ours and caps & _OPEN and same:
            if caps & _TOLD:
                self.flags &= ~(UNCONFIRMED | ANEW)
            else:
                self.flags |= OWES
        elif seen >= ours or not self.flags & UNCONFIRMED:
            # Closed there, or we or the peer are older than we were: nothing in this epoch counts.
            self.flags |= RENEW | OWES

    def settle(self) -> None:
        """What the peer lost is shown to it again: take note of its store's generation."""
        self.flags &= ~PEER_LOST
