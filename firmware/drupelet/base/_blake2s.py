"""BLAKE2s-256 for MicroPython, which has none, one block at a time (RFC 7693).

`compress` is viper if the port has the emitter, else arithmetic on 16-bit halves: whole words
would be heap objects on a 32-bit board. Both give the same bytes as CPython's hashlib.
"""

from drupelet.base.compat import const
from drupelet.base.memory import copy, fill

# SyntaxError: the compiler has no viper; ValueError: an .mpy for another processor.
try:
    from drupelet.base._blake2s_viper import compress, work
except (ImportError, SyntaxError, ValueError):
    from drupelet.base._blake2s_halves import compress, work  # type: ignore[assignment]

_DIGEST_SIZE = const(32)
_BLOCK_AT = const(32)
_BLOCK_SIZE = const(64)
_STATE_SIZE = const(96)

# RFC 7693 section 2.6: the initial value, words little-endian; section 2.7: ten permutations of
# the block; section 3.2: the words that are mixed, four columns and four diagonals. A bytearray,
# as its data is aligned for viper's word loads.
_TABLES = bytearray(
    b"\x67\xe6\x09\x6a\x85\xae\x67\xbb\x72\xf3\x6e\x3c\x3a\xf5\x4f\xa5"
    b"\x7f\x52\x0e\x51\x8c\x68\x05\x9b\xab\xd9\x83\x1f\x19\xcd\xe0\x5b"
    b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
    b"\x0e\x0a\x04\x08\x09\x0f\x0d\x06\x01\x0c\x00\x02\x0b\x07\x05\x03"
    b"\x0b\x08\x0c\x00\x05\x02\x0f\x0d\x0a\x0e\x03\x06\x07\x01\x09\x04"
    b"\x07\x09\x03\x01\x0d\x0c\x0b\x0e\x02\x06\x05\x0a\x04\x00\x0f\x08"
    b"\x09\x00\x05\x07\x02\x04\x0a\x0f\x0e\x01\x0b\x0c\x06\x08\x03\x0d"
    b"\x02\x0c\x06\x0a\x00\x0b\x08\x03\x04\x0d\x07\x05\x0f\x0e\x01\x09"
    b"\x0c\x05\x01\x0f\x0e\x0d\x04\x0a\x00\x07\x06\x03\x09\x02\x08\x0b"
    b"\x0d\x0b\x07\x0e\x0c\x01\x03\x09\x05\x00\x0f\x04\x08\x06\x02\x0a"
    b"\x06\x0f\x0e\x09\x0b\x03\x00\x08\x0c\x02\x0d\x07\x01\x04\x0a\x05"
    b"\x0a\x02\x08\x04\x07\x06\x01\x05\x0f\x0b\x09\x0e\x03\x0c\x0d\x00"
    b"\x00\x04\x08\x0c\x01\x05\x09\x0d\x02\x06\x0a\x0e\x03\x07\x0b\x0f"
    b"\x00\x05\x0a\x0f\x01\x06\x0b\x0c\x02\x07\x08\x0d\x03\x04\x09\x0e"
)

_work = work()  # scratch that all hashes share


class Blake2s:
    """A reusable hash: only the constructor allocates. At most 2^30 - 1 bytes per digest."""

    def __init__(self) -> None:
        self._state = bytearray(_STATE_SIZE)  # chain value, then the block being filled
        self._filled = 0
        self._total = 0
        Blake2s.start(self)  # subclasses have a `start` of their own

    def start(self, key: "bytes | bytearray | None" = None) -> None:
        """Begin a new digest; `key` is at most 32 bytes, None or empty for the plain hash."""
        state = self._state
        key_size = 0 if key is None else len(key)
        assert key_size <= _DIGEST_SIZE
        copy(state, 0, _TABLES, 0, _DIGEST_SIZE)
        # Parameter block: digest and key size, fan-out 1, depth 1 (RFC 7693 section 2.5).
        state[0] ^= _DIGEST_SIZE
        state[1] ^= key_size
        state[2] ^= 1
        state[3] ^= 1
        self._total = 0
        self._filled = 0
        if key is not None and key_size:
            fill(state, _BLOCK_AT, _BLOCK_SIZE, 0)
            copy(state, _BLOCK_AT, key, 0, key_size)
            self._filled = _BLOCK_SIZE

    def update(self, buf: "bytes | bytearray | memoryview", at: int, size: int) -> None:
        """Hash buf[at:at+size], too."""
        assert size >= 0
        while size:
            # A full block waits until more comes: the last one is compressed differently.
            if self._filled == _BLOCK_SIZE:
                self._total += _BLOCK_SIZE
                compress(self._state, _work, _TABLES, self._total, False)
                self._filled = 0
            part = _BLOCK_SIZE - self._filled
            if part > size:
                part = size
            copy(self._state, _BLOCK_AT + self._filled, buf, at, part)
            self._filled += part
            at += part
            size -= part

    def digest_into(self, out: "bytearray | memoryview", at: int) -> None:
        """Store the 32-byte digest at out[at]; call `start` before the next `update`."""
        filled = self._filled
        fill(self._state, _BLOCK_AT + filled, _BLOCK_SIZE - filled, 0)
        compress(self._state, _work, _TABLES, self._total + filled, True)
        copy(out, at, self._state, 0, _DIGEST_SIZE)
