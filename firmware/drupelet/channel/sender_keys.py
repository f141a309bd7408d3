"""Sender keys: encrypts frames of a topic or channel for its members (docs/SPEC.md 12.8).

Each publisher has one key chain, as sealed links have (seal/record.py), for all listeners. The
publisher sends its record to each member through the member's own sealed link
(key_distribution.py). With it a member can read from that epoch on, and could also write in the
publisher's name: members trust each other. A member that leaves is excluded once the others have
begun new chains.

    sealed = SenderKeys(aead, keys, own_id, random_byte)   # keys: load, save, drop by row
    sealed.load(); sealed.create()
    sealed.record_into(record, 0)               # to be sent to each member
    sealed.admit(record, 0)                     # received from a member
    size = sealed.seal_into(out, frame, size)
    size = sealed.open(buf, size, now_ms)       # the frame is at buf[sealed.at]
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.limits import (
    CHANNEL_MEMBERS_MAX,
    SEAL_EPOCH_MAX,
    SEAL_SKIP_FREE,
    SEAL_SKIP_MS,
    SEAL_STEPS_MAX,
)
from drupelet.base.memory import copy, equal, fill, get_u32, put_u32
from drupelet.base.time_ms import elapsed_ms
from drupelet.seal.record import (
    RECORD_EPOCH_AT,
    RECORD_KEY_AT,
    RECORD_SIZE,
    finish,
    frame_key,
    get_u24,
    is_sound,
    put_u24,
    step,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.base.ports import AeadPort, Cipher
    from drupelet.channel.ports import SenderKeyPort

# Frame: flags u8, chain [4], epoch u24, seq u8, salt [8], ciphertext, tag [8].
HEADER_SIZE = const(17)
TAG_SIZE = const(8)
OVERHEAD = const(25)
_FLAGS = const(0xC0)
_EPOCH_AT = const(5)
_SEQ_AT = const(8)
_SALT_AT = const(9)
_SALT_SIZE = const(8)
_SEQ_MAX = const(255)
_IV_AT = const(16)
_NONCE_SIZE = const(13)
# Record: form u8, 0 [3], chain [4], epoch u32, owner [4], key [32], crc32 [4] little-endian.
_FORM = const(1)
_CHAIN_AT = const(4)
_OWNER_AT = const(12)
_CRC_AT = const(48)
_CHAIN_SIZE = const(4)
PLACE_SIZE = const(8)  # a chain and its epoch
_SEEN_SIZE = const(32)

assert HEADER_SIZE + TAG_SIZE == OVERHEAD


class SenderKeys:
    """The chains of one channel: ours, in row 0 of the key port, and those of other publishers.

    Counters of refused frames: forged, replayed, closed (of a closed epoch), clones (a second salt
    in one epoch), unknown (of an unknown chain).
    """

    def __init__(
        self, aead: "AeadPort", keys: "SenderKeyPort", own_id: "bytes | bytearray",
        random_byte: "Callable[[], int]", members_max: int = CHANNEL_MEMBERS_MAX,
    ) -> None:  # fmt: skip
        rows = members_max + 1
        self.rows = rows
        self.at = HEADER_SIZE
        self._aead = aead
        self._keys = keys
        self._own_id = own_id
        self._random_byte = random_byte
        self._records = bytearray(rows * RECORD_SIZE)
        self._salts = bytearray(rows * _SALT_SIZE)
        self._ivs = bytearray(rows * _NONCE_SIZE)
        self._seen = bytearray(rows * _SEEN_SIZE)
        self._ciphers: "list[Cipher | None]" = [None] * rows
        self._header = bytearray(HEADER_SIZE)  # of our frames in this epoch, without seq
        self._nonce = bytearray(_NONCE_SIZE)
        self._one = bytearray(RECORD_SIZE)
        self._seq = _SEQ_MAX  # of our last frame; the next one opens an epoch
        self._skip_ms = -1
        self.forged = self.replayed = self.closed = self.clones = self.unknown = 0

    # --- records ---

    def load(self) -> int:
        """Load the records of the key port; OK, or E_STORAGE: we have no chain yet."""
        record = self._one
        for row in range(self.rows):
            if self._keys.load(row, record) == OK and is_sound(record):
                self._put(row, record)
        return OK if self._records[0] == _FORM else E_STORAGE

    def create(self) -> int:
        """Begin a new chain of our own, which replaces the old one; OK or the key port's code.

        Members cannot read our frames until they have its record.
        """
        record = self._one
        fill(record, 0, RECORD_SIZE, 0)
        record[0] = _FORM
        for at in range(_CHAIN_SIZE):
            record[_CHAIN_AT + at] = self._random_byte()
        copy(record, _OWNER_AT, self._own_id, 0, _CHAIN_SIZE)
        for at in range(RECORD_KEY_AT, _CRC_AT):
            record[at] = self._random_byte()
        self._seq = _SEQ_MAX
        return self._save(0, record)

    def record_into(self, out: bytearray, at: int) -> bool:
        """Copy our record, 52 bytes, to out[at]; send it only through a member's sealed link.

        It opens our frames of the current and later epochs. False: we have no chain.
        """
        copy(out, at, self._records, 0, RECORD_SIZE)
        return self._records[0] == _FORM

    def admit(self, record: "bytes | bytearray", at: int) -> int:
        """Store a publisher's record; OK, E_PEER: damaged, old or ours, E_CAPACITY: no room.

        A publisher has one chain: a new one replaces the one that we have.
        """
        copied = self._one
        copy(copied, 0, record, at, RECORD_SIZE)
        row = self._find(_OWNER_AT, copied, _OWNER_AT)
        if not is_sound(copied) or equal(copied, _OWNER_AT, self._own_id, 0, _CHAIN_SIZE):
            return E_PEER
        place = row * RECORD_SIZE
        if row > 0 and equal(copied, _CHAIN_AT, self._records, place + _CHAIN_AT, _CHAIN_SIZE):
            epoch = get_u32(self._records, place + RECORD_EPOCH_AT)
            if get_u32(copied, RECORD_EPOCH_AT) <= epoch:
                return OK if equal(copied, 0, self._records, place, RECORD_SIZE) else E_PEER
        elif row < 0:
            row = self._free()
        return self._save(row, copied) if row > 0 else E_CAPACITY

    def place_into(
        self, out: bytearray, at: int, owner: "bytes | bytearray", owner_at: int
    ) -> bool:
        """Write a publisher's chain and the epoch that we hold of it; zeros and False: none."""
        row = self._find(_OWNER_AT, owner, owner_at)
        fill(out, at, PLACE_SIZE, 0)
        if row >= 0:
            copy(out, at, self._records, row * RECORD_SIZE + _CHAIN_AT, PLACE_SIZE)
        return row >= 0

    def remove(self, owner: "bytes | bytearray", at: int) -> int:
        """Forget a publisher's chain, so that its frames are refused; OK or a code."""
        row = self._find(_OWNER_AT, owner, at)
        if row <= 0:
            return E_PEER
        fill(self._records, row * RECORD_SIZE, RECORD_SIZE, 0)
        self._ciphers[row] = None
        return self._keys.drop(row)

    def _find(self, field_at: int, value: "bytes | bytearray", at: int) -> int:
        """Return the row whose record has these 4 bytes (chain or owner) at `field_at`, or -1."""
        for row in range(self.rows):
            place = row * RECORD_SIZE
            if self._records[place] == _FORM and equal(
                self._records, place + field_at, value, at, _CHAIN_SIZE
            ):
                return row
        return -1

    def _free(self) -> int:
        for row in range(1, self.rows):
            if self._records[row * RECORD_SIZE] != _FORM:
                return row
        return -1

    def _save(self, row: int, record: bytearray) -> int:
        """Make a record durable, then use it; OK or the key port's code."""
        finish(record)
        code = self._keys.save(row, record)
        if code == OK:
            self._put(row, record)
        return code

    def _put(self, row: int, record: bytearray) -> None:
        copy(self._records, row * RECORD_SIZE, record, 0, RECORD_SIZE)
        self._ciphers[row] = None

    def _step(self, row: int, epoch: int) -> None:
        """Set `_one` to the row's record, advanced to `epoch`."""
        record = self._one
        copy(record, 0, self._records, row * RECORD_SIZE, RECORD_SIZE)
        previous_epoch = get_u32(record, RECORD_EPOCH_AT)
        key = step(bytes(record[RECORD_KEY_AT:_CRC_AT]), previous_epoch, epoch - previous_epoch)
        copy(record, RECORD_KEY_AT, key, 0, 32)
        put_u32(record, RECORD_EPOCH_AT, epoch)

    def _cipher(self, header: "bytes | bytearray") -> "Cipher":
        """Return the cipher of `_one` with a header's salt; store its IV in `_nonce`."""
        salt = bytes(header[_SALT_AT:HEADER_SIZE])
        okm = frame_key(bytes(self._one[RECORD_KEY_AT:_CRC_AT]), salt)
        copy(self._nonce, 0, okm, _IV_AT, _NONCE_SIZE)
        return self._aead.cipher(okm, 0)

    def _take_up(self, row: int, cipher: "Cipher", header: "bytes | bytearray") -> None:
        """Use a new cipher for a row; its IV is in `_nonce`, its salt in the header."""
        self._ciphers[row] = cipher
        copy(self._ivs, row * _NONCE_SIZE, self._nonce, 0, _NONCE_SIZE)
        copy(self._salts, row * _SALT_SIZE, header, _SALT_AT, _SALT_SIZE)
        fill(self._seen, row * _SEEN_SIZE, _SEEN_SIZE, 0)

    # --- frames ---

    def seal_into(self, out: bytearray, frame: "bytes | bytearray", size: int) -> int:
        """Seal frame[:size] into `out`; return the sealed size, or a code: send nothing."""
        if size + OVERHEAD > len(out):
            return E_CAPACITY
        if self._seq == _SEQ_MAX or self._ciphers[0] is None:
            code = self._open_epoch()
            if code != OK:
                return code
        else:
            self._seq += 1
        copy(out, 0, self._header, 0, HEADER_SIZE)
        out[_SEQ_AT] = self._seq
        copy(out, HEADER_SIZE, frame, 0, size)
        copy(self._nonce, 0, self._ivs, 0, _NONCE_SIZE)
        self._nonce[_NONCE_SIZE - 1] ^= self._seq
        cipher = self._ciphers[0]
        assert cipher is not None
        self._aead.seal(cipher, self._nonce, out, 0, HEADER_SIZE, size, TAG_SIZE)
        return size + OVERHEAD

    def _open_epoch(self) -> int:
        """Advance our chain by an epoch, durable before its first frame; OK or a code."""
        epoch = get_u32(self._records, RECORD_EPOCH_AT) + 1
        if self._records[0] != _FORM or epoch > SEAL_EPOCH_MAX:
            return E_STORAGE
        self._step(0, epoch)
        code = self._save(0, self._one)
        if code != OK:
            return code
        header = self._header
        header[0] = _FLAGS
        copy(header, 1, self._records, _CHAIN_AT, _CHAIN_SIZE)
        put_u24(header, _EPOCH_AT, epoch)
        for at in range(_SALT_AT, HEADER_SIZE):
            header[at] = self._random_byte()
        self._take_up(0, self._cipher(header), header)
        self._seq = 0
        return OK

    def open(self, buf: bytearray, size: int, now_ms: int) -> int:
        """Open the frame buf[:size] in place; return the size of the text at buf[at] or a code."""
        size -= OVERHEAD
        if size <= 0 or buf[0] != _FLAGS:
            self.forged += 1
            return E_PEER
        row = self._find(_CHAIN_AT, buf, 1)
        if row <= 0:
            self.unknown += row < 0  # many carriers return our own frames: do not count them
            return E_PEER
        epoch = get_u24(buf, _EPOCH_AT)
        steps = epoch - get_u32(self._records, row * RECORD_SIZE + RECORD_EPOCH_AT)
        if steps < 0 or not epoch:
            self.closed += 1
            return E_PEER
        seq = buf[_SEQ_AT]
        seen_at = row * _SEEN_SIZE + (seq >> 3)
        cipher = self._ciphers[row]
        opens_epoch = steps > 0 or cipher is None
        nonce = self._nonce
        if opens_epoch:
            if steps > SEAL_STEPS_MAX or (steps > SEAL_SKIP_FREE and not self._may_skip(now_ms)):
                self.forged += 1
                return E_PEER
            self._step(row, epoch)
            cipher = self._cipher(buf)
        elif not equal(buf, _SALT_AT, self._salts, row * _SALT_SIZE, _SALT_SIZE):
            self.clones += 1
            return E_PEER
        elif self._seen[seen_at] & 1 << (seq & 7):
            self.replayed += 1
            return E_PEER
        else:
            copy(nonce, 0, self._ivs, row * _NONCE_SIZE, _NONCE_SIZE)
        nonce[_NONCE_SIZE - 1] ^= seq
        if not self._aead.open(cipher, nonce, buf, 0, HEADER_SIZE, size, TAG_SIZE):
            self.forged += 1
            return E_PEER
        # The chain advances only once the record is durable; until then the old epoch stays.
        code = self._save(row, self._one) if steps else OK
        if code != OK:
            return code
        if opens_epoch:
            nonce[_NONCE_SIZE - 1] ^= seq  # restore the IV
            self._take_up(row, cipher, buf)
        self._seen[seen_at] |= 1 << (seq & 7)
        return size

    def _may_skip(self, now_ms: int) -> bool:
        """Whether many steps may be computed now: they take time, and the frame may be forged."""
        if self._skip_ms >= 0 and elapsed_ms(now_ms, self._skip_ms) < SEAL_SKIP_MS:
            return False
        self._skip_ms = now_ms
        return True
