"""Sealed links: every frame of a carrier encrypted and authenticated (docs/SPEC.md 11).

    off len
    0   1    flags   bits 7-6 "10", 5 SALT, 4 FINAL, 3 generation & 1, 2-0 type
    1   2    kid     names sender, receiver and carrier class
    3   3    epoch   of the sender: durable before its first frame
    6   1    seq     0 to 255, then a new epoch
    7   8    salt    only with SALT
    ..       ciphertext, then a tag of 8 or 16 bytes

Here is what happens to each frame; what happens once per epoch is in `seal_epoch`. A frame of a
confirmed epoch is sealed and opened without an allocation.
"""

from drupelet._compat import const
from drupelet.errors import E_PEER, OK
from drupelet.limits import FRAME_SIZE_MAX, SEAL_FORGED_MAX, SEAL_FORGED_PER_S, SEAL_STEPS_MAX
from drupelet.memory import copy, equal, get_u16, put_u16
from drupelet.schedule import elapsed_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.ports import AeadPort, Cipher, KeyPort

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

# Where things are in `state`: key and IV of 29 bytes, windows of 256 bits.
OUT_AT = const(0)
OUT_SALT_AT = const(29)
IN_AT = const(37)
IN_WINDOW_AT = const(66)
IN_SALT_AT = const(98)
OLD_AT = const(106)
PEER_GEN_AT = const(167)
TOLD_GEN_AT = const(171)
_STATE_SIZE = const(175)
_WINDOW = const(29)  # from key to window
_IV = const(16)  # from key to IV
_IV_SIZE = const(13)
_SALT_SIZE = const(8)
_SEQ_MAX = const(255)


class SealContext:
    """What all seals of a device share; `store_gen` is 4 bytes, zeros on a board."""

    def __init__(
        self, aead: "AeadPort", random_byte: "Callable[[], int]", store_gen: bytes,
        steps_max: int = SEAL_STEPS_MAX,
    ) -> None:  # fmt: skip
        from drupelet import seal_epoch  # it imports this module, too

        self.epochs = seal_epoch
        self.aead = aead
        self.random_byte = random_byte
        self.store_gen = store_gen
        self.steps_max = steps_max
        self.record = bytearray(52)
        self.nonce = bytearray(_IV_SIZE)
        self.at = 0  # where `Seal.open` left the plaintext
        self.final = False  # and whether the frame was the last of a bundle


class Seal:
    """The chains of one peer and carrier class, both ways. Call `load` before anything else."""

    # What few seals ever need stands here, so that the others do not pay for it.
    closed = False
    peer_lost = False  # the peer's store is another one: show it everything again
    muted = False  # too many wrong tags
    frame_size_max = FRAME_SIZE_MAX
    whole_epoch = 0  # bundles: up to here they were read whole, which is not durable yet
    skip_ms = -1  # of the last long skip; -1 none
    ahead: "bytearray | None" = None  # a chain key on the way to an epoch far ahead
    ahead_epoch = 0
    clones = too_far = 0

    def __init__(self, context: SealContext, keys: "KeyPort", carrier_class: int) -> None:
        self.context = context
        self.keys = keys
        self.carrier_class = carrier_class
        self.state = bytearray(_STATE_SIZE)
        self.kid_in = self.kid_out = 0
        self.tag_size = 8
        self.issuer = False  # the peer may re-key and revoke
        # Out: the epoch in use, or the last one while there is no cipher.
        self.cipher_out: "Cipher" = None
        self.generation = self.out_epoch = self.seq = 0
        self.answered = 0  # our highest epoch that the peer has seen
        self.confirmed = False  # the peer has this epoch open
        self.owes = False  # the next frame tells our status
        self.renew = False  # the next frame opens a new epoch
        self.urgent = False  # and should not wait for something else to send
        # In: the same; `old_epoch` is -1 when no older one is kept.
        self.cipher_in: "Cipher" = None
        self.generation_in = self.in_epoch = 0
        self.old_epoch = -1
        self.heard = True  # something authentic came since `tell`
        self.status_seq = -1  # of the peer's newest status in this epoch; -1 none came
        self.tokens = SEAL_FORGED_PER_S
        self._tokens_ms = 0
        self._forged_here = 0
        self.forged = self.replayed = self.closed_epoch = 0

    def load(self) -> int:
        """Take up the chains: OK, E_STORAGE when there are none, E_PEER when revoked."""
        code: int = self.context.epochs.load(self)
        return code

    def close(self) -> None:
        """Revoked: nothing is sealed or opened any more."""
        self.closed = True
        self.cipher_in = self.cipher_out = None
        for i in range(_STATE_SIZE):
            self.state[i] = 0

    # --- out ---

    def prepare(self) -> int:
        """Open an epoch if the next frame needs one; OK, or a code: nothing may be sent."""
        if self.closed:
            return E_PEER
        if self.cipher_out is not None and self.seq <= _SEQ_MAX and not self.renew:
            return OK
        code: int = self.context.epochs.open_send(self)
        return code

    def room(self) -> int:
        """The most bytes of plaintext in a frame that carries its salt."""
        return self.frame_size_max - SALTED_SIZE - self.tag_size

    def seal_into(self, out: bytearray, frame: "bytes | bytearray", size: int, kind: int) -> int:
        """Seal frame[:size] into `out`; its size there, or a code below 0: do not send.

        `kind` is TYPE_DATA, with FINAL or not, or TYPE_CONTROL. Data carries our status in front
        when that is due and fits.
        """
        code = self.prepare()
        if code != OK:
            return code
        seq = self.seq
        live = self.carrier_class == CLASS_LIVE
        # Again with frames 4, 8, 16 ...: the first one may have been lost.
        due = self.owes or (live and not self.confirmed and not seq & (seq - 1 | 3))
        if due and not kind & _TYPE and self.room() >= STATUS_SIZE + size:
            kind |= TYPE_STATUS
        at = HEAD_SIZE
        if kind & TYPE_STATUS or (live and not self.confirmed) or not seq:
            kind |= _SALT
            copy(out, HEAD_SIZE, self.state, OUT_SALT_AT, _SALT_SIZE)
            at = SALTED_SIZE
        text_at = at
        if kind & TYPE_STATUS:
            self._put_status(out, at)
            text_at += STATUS_SIZE
        copy(out, text_at, frame, 0, size)
        out[0] = kind | _VERSION | (self.generation & 1) * _PARITY
        put_u16(out, 1, self.kid_out)
        out[3] = self.out_epoch >> 16
        put_u16(out, 4, self.out_epoch & 0xFFFF)
        out[6] = seq
        self.seq = seq + 1  # before the key is used, whatever happens then
        self.set_nonce(self.state, OUT_AT, seq)
        size += text_at - at
        context = self.context
        context.aead.seal(self.cipher_out, context.nonce, out, 0, at, size, self.tag_size)
        return at + size + self.tag_size

    def _put_status(self, out: bytearray, at: int) -> None:
        # Who was set back has used its epoch's number before, with another salt: tell which one.
        out[at] = self.state[IN_SALT_AT]
        out[at + 1] = self.in_epoch >> 16
        put_u16(out, at + 2, self.in_epoch & 0xFFFF)
        copy(out, at + 4, self.context.store_gen, 0, 4)
        out[at + 8] = (
            (0 if self.cipher_in is None else _OPEN)
            | (0 if self.status_seq < 0 else _TOLD)
            | (0 if self.confirmed else _ASK)
            | (self.generation_in & 1) * _SEEN_PARITY
            | (self.state[IN_SALT_AT + 1] & _SALT_BITS)
        )
        self.owes = self.urgent = False

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
        head = SALTED_SIZE if flags & _SALT else HEAD_SIZE
        text = size - head - self.tag_size
        if self.closed or text < 0 or flags & 0xC0 != _VERSION or get_u16(buf, 1) != self.kid_in:
            return E_PEER
        epoch = buf[3] << 16 | get_u16(buf, 4)
        if (
            epoch == self.in_epoch
            and self.cipher_in is not None
            and flags >> 3 & 1 == self.generation_in & 1
            and (head == HEAD_SIZE or equal(buf, HEAD_SIZE, self.state, IN_SALT_AT, _SALT_SIZE))
        ):
            return self.open_with(self.cipher_in, IN_AT, buf, head, text, now_ms)
        got: int = self.context.epochs.open_other(self, buf, head, text, epoch, now_ms)
        return got

    def open_with(
        self, cipher: "Cipher", at: int, buf: bytearray, head: int, text: int, now_ms: int
    ) -> int:
        """Open with the key at state[at], whose window is behind it."""
        state = self.state
        seq = buf[6]
        cell = at + _WINDOW + (seq >> 3)
        if state[cell] & 1 << (seq & 7):
            self.replayed += 1
            return E_PEER
        if not self.may_try(now_ms):
            return E_PEER
        self.set_nonce(state, at, seq)
        context = self.context
        if not context.aead.open(cipher, context.nonce, buf, 0, head, text, self.tag_size):
            self.failed(now_ms)
            self._forged_here += 1
            if self._forged_here >= SEAL_FORGED_MAX:
                self.muted = self.urgent = True
                self.cipher_in = None
                self.old_epoch = -1
            return E_PEER
        state[cell] |= 1 << (seq & 7)
        return self.take(buf, head, text, at == IN_AT)

    def may_try(self, now_ms: int) -> bool:
        """False while too many frames failed within a second."""
        if not self.tokens and elapsed_ms(now_ms, self._tokens_ms) >= 1000:
            self.tokens = SEAL_FORGED_PER_S
        return self.tokens > 0

    def failed(self, now_ms: int) -> None:
        """A tag was wrong: noise, or somebody tries."""
        if self.tokens == SEAL_FORGED_PER_S or elapsed_ms(now_ms, self._tokens_ms) >= 1000:
            self.tokens = SEAL_FORGED_PER_S
            self._tokens_ms = now_ms
        self.tokens -= 1
        self.forged += 1

    def opened(self, epoch: int) -> None:
        """A new epoch of the peer's was authentic: what is counted per epoch begins anew."""
        self.in_epoch = epoch
        self.status_seq = -1
        self._forged_here = 0
        if self.muted:
            self.muted = False

    def take(self, buf: bytearray, head: int, text: int, current: bool) -> int:
        """Do what an authentic frame asks for; the size of what is for the link."""
        flags = buf[0]
        kind = flags & _TYPE
        context = self.context
        context.final = flags & FINAL != 0
        context.at = head
        self.heard = True
        if kind == TYPE_DATA:
            if flags & _SALT:
                self.owes = True  # the peer does not know that we have its epoch
            return text
        if kind == TYPE_STATUS and text >= STATUS_SIZE:
            if current and buf[6] > self.status_seq:
                self.status_seq = buf[6]
                self._take_status(buf, head)
            context.at += STATUS_SIZE
            return text - STATUS_SIZE
        if kind == TYPE_CONTROL and self.issuer:
            from drupelet.seal_control import take_control

            return take_control(self, buf, head, text)
        return E_PEER

    def _take_status(self, buf: bytearray, at: int) -> None:
        caps = buf[at + 8]
        state = self.state
        if not equal(buf, at + 4, state, TOLD_GEN_AT, 4):
            copy(state, TOLD_GEN_AT, buf, at + 4, 4)
            # Zeros: it never said.
            known = any(state[PEER_GEN_AT : PEER_GEN_AT + 4])
            self.peer_lost = known and not equal(buf, at + 4, state, PEER_GEN_AT, 4)
            if not known:
                self.settle()
        if caps & _ASK:
            self.owes = True
        if caps & _SEEN_PARITY != (self.generation & 1) * _SEEN_PARITY:
            return
        seen = buf[at + 1] << 16 | get_u16(buf, at + 2)
        if seen - self.out_epoch > self.context.steps_max:
            return  # further than we could follow
        self.answered = seen
        if self.carrier_class != CLASS_LIVE:
            return
        ours = buf[at] == state[OUT_SALT_AT] and not (caps ^ state[OUT_SALT_AT + 1]) & _SALT_BITS
        if seen == self.out_epoch and caps & _OPEN and ours:
            if caps & _TOLD:
                self.confirmed = True
            else:
                self.owes = True
        elif seen >= self.out_epoch or self.confirmed:
            # Closed there, or we or the peer are older than we were: nothing in this epoch counts.
            self.renew = self.owes = True

    def settle(self) -> None:
        """What the peer lost is shown to it again: take note of its store's generation."""
        copy(self.state, PEER_GEN_AT, self.state, TOLD_GEN_AT, 4)
        self.peer_lost = False
