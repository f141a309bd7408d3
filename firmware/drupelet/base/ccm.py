"""AES-CCM (RFC 3610) over any AES block cipher, in place and without allocating.

An AEAD port (docs/DESIGN.md 12, docs/SPEC.md 11): call `cipher` once per key, then `seal`, `open`.
"""

from drupelet.base.compat import const
from drupelet.base.memory import copy, fill, put_u16, put_u32

# SyntaxError: the compiler has no viper; ValueError: an .mpy for another processor.
try:
    from drupelet.base._ccm_viper import absorb, crypt
except (ImportError, SyntaxError, ValueError):
    from drupelet.base._ccm_plain import absorb, crypt  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.base.ports import Cipher

# RFC 3610 section 2.2: from this size of authenticated data on, the size has four bytes.
_AAD_SHORT_MAX = const(0xFEFF)
# Blocks of key stream per call: a call into the cipher costs as much as eight blocks in it.
_STREAM_BLOCKS = const(8)


class Ccm:
    """AES-CCM; `make_aes(key)` returns an object with `encrypt(source, target)` for ECB blocks."""

    def __init__(self, make_aes: "Callable[[bytes], Cipher]") -> None:
        self._make_aes = make_aes
        self._state = bytearray(16)
        self._counter = bytearray(16)
        stream = memoryview(bytearray(16 * _STREAM_BLOCKS))
        self._views = [stream[: 16 * (n + 1)] for n in range(_STREAM_BLOCKS)]

    def cipher(self, key: "bytes | bytearray", at: int, size: int = 16) -> "Cipher":
        """Return the cipher of the key at key[at], for `seal` and `open`; only this allocates."""
        return self._make_aes(bytes(key[at : at + size])).encrypt

    def seal(
        self, cipher: "Cipher", nonce: bytearray, buf: bytearray, at: int, aad_size: int,
        size: int, tag_size: int,
    ) -> None:  # fmt: skip
        """Encrypt in place: buf[at:] has `aad_size` bytes that are authenticated only, `size`
        bytes of plaintext, and room for the tag (4, 6 ... 16 bytes). The nonce has 7 to 13 bytes.
        """
        self._begin(cipher, nonce, buf, at, aad_size, size, tag_size)
        at += aad_size
        absorb(cipher, self._state, 0, buf, at, size)
        copy(buf, at + size, self._state, 0, tag_size)
        crypt(cipher, self._counter, self._views, buf, at + size, tag_size)
        crypt(cipher, self._counter, self._views, buf, at, size)

    def open(
        self, cipher: "Cipher", nonce: bytearray, buf: bytearray, at: int, aad_size: int,
        size: int, tag_size: int,
    ) -> bool:  # fmt: skip
        """Decrypt `size` bytes in place; if the tag is wrong, zero them and return False."""
        self._begin(cipher, nonce, buf, at, aad_size, size, tag_size)
        at += aad_size
        tag_at = at + size
        crypt(cipher, self._counter, self._views, buf, tag_at, tag_size)
        crypt(cipher, self._counter, self._views, buf, at, size)
        state = self._state
        absorb(cipher, state, 0, buf, at, size)
        wrong = 0
        for i in range(tag_size):
            wrong |= state[i] ^ buf[tag_at + i]
        if wrong:
            fill(buf, at, size, 0)
        return not wrong

    def _begin(
        self, cipher: "Cipher", nonce: bytearray, buf: bytearray, at: int, aad_size: int,
        size: int, tag_size: int,
    ) -> None:  # fmt: skip
        """Set the counter to block 0, and the state to B_0 and the authenticated data."""
        state = self._state
        counter = self._counter
        room = 15 - len(nonce)  # bytes of the size field
        assert 2 <= room <= 8 and 4 <= tag_size <= 16 and not tag_size & 1
        assert 0 <= size < 1 << 20 and (room > 2 or size < 1 << 16)
        fill(counter, 0, 16, 0)
        counter[0] = room - 1
        copy(counter, 1, nonce, 0, 15 - room)
        copy(state, 0, counter, 0, 16)
        state[0] = room - 1 | (tag_size - 2) << 2 | (64 if aad_size else 0)
        if size >> 16:
            state[13] = size >> 16
        put_u16(state, 14, size & 0xFFFF)
        cipher(state, state)
        if not aad_size:
            return
        block = self._views[0]
        place = 2
        put_u16(block, 0, aad_size & 0xFFFF)
        if aad_size > _AAD_SHORT_MAX:
            place = 6
            put_u16(block, 0, 0xFFFE)
            put_u32(block, 2, aad_size)
        for i in range(place):
            state[i] ^= block[i]
        absorb(cipher, state, place, buf, at, aad_size)
