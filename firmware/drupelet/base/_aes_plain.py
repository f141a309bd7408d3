"""The loops of AES (FIPS 197) in Python, for CPython and for ports without the viper emitter."""

from drupelet.base.compat import const

_BLOCK_SIZE = const(16)

# The source of each byte in ShiftRows; the state is four columns of four bytes.
_SHIFTED = bytes((0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11))
# Each byte times x in GF(2^8), modulo x^8 + x^4 + x^3 + x + 1: 256 B of heap, made once.
_DOUBLES = bytes([n << 1 ^ (0x11B if n & 0x80 else 0) for n in range(256)])
# The state before and after a round: scratch that all keys share.
_OLD = bytearray(_BLOCK_SIZE)
_NEW = bytearray(_BLOCK_SIZE)


def expand(box: bytes, keys: bytearray, size: int) -> None:
    """Make the round keys (FIPS 197 section 5.2) after the key in keys[:size]."""
    constant = 1
    turn = 0
    for at in range(size, len(keys), 4):
        boxed = turn == 0 or (size == 32 and turn == 16)
        rotated = 1 if turn == 0 else 0
        for i in range(4):
            byte = keys[at - 4 + (i + rotated & 3)]
            if boxed:
                byte = box[byte]
            keys[at + i] = keys[at + i - size] ^ byte
        if rotated:
            keys[at] ^= constant
            constant = _DOUBLES[constant]
        turn += 4
        if turn == size:
            turn = 0


def encrypt(
    box: bytes, keys: bytearray, source: "bytes | bytearray | memoryview",
    target: "bytearray | memoryview",
) -> None:  # fmt: skip
    """Encrypt whole blocks with the round keys; `target` may be `source`."""
    assert len(source) == len(target) and not len(source) % _BLOCK_SIZE
    for at in range(0, len(source), _BLOCK_SIZE):
        _encrypt_block(box, keys, source, target, at)


def _encrypt_block(
    box: bytes, keys: bytearray, source: "bytes | bytearray | memoryview",
    target: "bytearray | memoryview", at: int,
) -> None:  # fmt: skip
    old = _OLD
    new = _NEW
    doubles = _DOUBLES
    shifted = _SHIFTED
    for i in range(_BLOCK_SIZE):
        old[i] = source[at + i] ^ keys[i]
    last = len(keys) - _BLOCK_SIZE
    for round_at in range(_BLOCK_SIZE, last, _BLOCK_SIZE):
        for i in range(0, _BLOCK_SIZE, 4):
            a = box[old[shifted[i]]]
            b = box[old[shifted[i + 1]]]
            c = box[old[shifted[i + 2]]]
            d = box[old[shifted[i + 3]]]
            k = round_at + i
            both = a ^ b ^ c ^ d
            new[i] = doubles[a ^ b] ^ both ^ a ^ keys[k]
            new[i + 1] = doubles[b ^ c] ^ both ^ b ^ keys[k + 1]
            new[i + 2] = doubles[c ^ d] ^ both ^ c ^ keys[k + 2]
            new[i + 3] = doubles[d ^ a] ^ both ^ d ^ keys[k + 3]
        old, new = new, old
    for i in range(_BLOCK_SIZE):
        target[at + i] = box[old[shifted[i]]] ^ keys[last + i]
