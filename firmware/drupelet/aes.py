"""AES in Python (FIPS 197): the fallback where no library has it. It only encrypts: so does CCM.

Slow, and not in constant time: a board uses `cryptolib`, a host `cryptography`.
"""

from drupelet._compat import const

_BLOCK_SIZE = const(16)

# Where ShiftRows takes each byte from; the state is four columns of four bytes.
_SHIFTED = bytes((0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11))


def _double(byte: int) -> int:
    """Times x in GF(2^8), modulo x^8 + x^4 + x^3 + x + 1."""
    byte <<= 1
    return byte ^ 0x11B if byte & 0x100 else byte


def _make_tables() -> "tuple[bytearray, bytearray]":
    """The S-box (FIPS 197 section 5.1.1), and its doubles."""
    box = bytearray(256)
    doubles = bytearray(256)
    p = q = 1
    while True:
        p ^= _double(p)  # times 3: runs through all but 0
        q ^= q << 1  # divided by 3
        q ^= q << 2
        q ^= q << 4
        q &= 255
        if q & 0x80:
            q ^= 9
        spread = q | q << 8
        box[p] = (spread ^ spread >> 4 ^ spread >> 5 ^ spread >> 6 ^ spread >> 7) & 255 ^ 0x63
        if p == 1:
            break
    box[0] = 0x63
    for i in range(256):
        doubles[i] = _double(box[i])
    return box, doubles


class Aes:
    """One key of 16, 24 or 32 bytes; `encrypt` has the shape of `cryptolib.aes` in mode ECB."""

    def __init__(self, key: "bytes | bytearray") -> None:
        assert len(key) in (16, 24, 32)
        self._box, self._doubles = _make_tables()
        self._key = self._expand(key)
        self._old = bytearray(_BLOCK_SIZE)
        self._new = bytearray(_BLOCK_SIZE)

    def _expand(self, key: "bytes | bytearray") -> bytearray:
        """The round keys (FIPS 197 section 5.2)."""
        size = len(key)
        box = self._box
        out = bytearray(_BLOCK_SIZE * (size // 4 + 7))
        out[:size] = key
        constant = 1
        word = bytearray(4)
        for at in range(size, len(out), 4):
            word[:] = out[at - 4 : at]
            if at % size == 0:
                word[:] = bytes(
                    (box[word[1]] ^ constant, box[word[2]], box[word[3]], box[word[0]])
                )
                constant = _double(constant)
            elif size == 32 and at % size == 16:
                for i in range(4):
                    word[i] = box[word[i]]
            for i in range(4):
                out[at + i] = out[at - size + i] ^ word[i]
        return out

    def encrypt(self, source: "bytes | bytearray", target: bytearray) -> None:
        """Encrypt whole blocks; `target` may be `source`."""
        assert len(source) == len(target) and not len(source) % _BLOCK_SIZE
        for at in range(0, len(source), _BLOCK_SIZE):
            self._block(source, target, at)

    def _block(self, source: "bytes | bytearray", target: bytearray, at: int) -> None:
        key = self._key
        old = self._old
        new = self._new
        box = self._box
        doubles = self._doubles
        for i in range(_BLOCK_SIZE):
            old[i] = source[at + i] ^ key[i]
        last = len(key) - _BLOCK_SIZE
        for round_at in range(_BLOCK_SIZE, last, _BLOCK_SIZE):
            for i in range(0, _BLOCK_SIZE, 4):
                a = old[_SHIFTED[i]]
                b = old[_SHIFTED[i + 1]]
                c = old[_SHIFTED[i + 2]]
                d = old[_SHIFTED[i + 3]]
                k = round_at + i
                both = box[a] ^ box[b] ^ box[c] ^ box[d]
                new[i] = doubles[a] ^ doubles[b] ^ both ^ box[a] ^ key[k]
                new[i + 1] = doubles[b] ^ doubles[c] ^ both ^ box[b] ^ key[k + 1]
                new[i + 2] = doubles[c] ^ doubles[d] ^ both ^ box[c] ^ key[k + 2]
                new[i + 3] = doubles[d] ^ doubles[a] ^ both ^ box[d] ^ key[k + 3]
            old, new = new, old
        for i in range(_BLOCK_SIZE):
            target[at + i] = box[old[_SHIFTED[i]]] ^ key[last + i]
