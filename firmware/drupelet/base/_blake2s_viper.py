# mypy: disable-error-code="name-defined, no-untyped-def"
# ruff: noqa: ANN202, F821
"""The compression function of BLAKE2s (RFC 7693 section 3.2) in machine code.

Every word is stored and loaded again before it is rotated, as the store truncates it to 32 bits on
machines of any width.
"""

import micropython


def work() -> bytearray:
    """Return the scratch memory that `compress` needs: 16 words."""
    return bytearray(64)


@micropython.viper
def compress(state: object, scratch: object, tables: object, total: int, last: bool):
    """Mix the block at state[32:96] into the chain value at state[0:32].

    `total`: bytes up to the end of this block, without padding. `last`: this is the last block.
    """
    h = ptr32(state)  # chain value, block from h[8] on
    v = ptr32(scratch)
    iv = ptr32(tables)
    of = ptr8(tables)
    for i in range(8):
        v[i] = h[i]
        v[i + 8] = iv[i]
    v[12] = int(v[12]) ^ total
    if last:
        v[14] = int(v[14]) ^ -1
    s = 32  # the ten permutations
    g = 192  # which words mix
    for _ in range(80):
        if g == 224:
            g = 192
        a = of[g]
        b = of[g + 1]
        c = of[g + 2]
        d = of[g + 3]
        g += 4
        v[a] = int(v[a]) + int(v[b]) + int(h[8 + of[s]])
        x = uint(v[d]) ^ uint(v[a])
        v[d] = x >> 16 | x << 16
        v[c] = int(v[c]) + int(v[d])
        x = uint(v[b]) ^ uint(v[c])
        v[b] = x >> 12 | x << 20
        v[a] = int(v[a]) + int(v[b]) + int(h[8 + of[s + 1]])
        x = uint(v[d]) ^ uint(v[a])
        v[d] = x >> 8 | x << 24
        v[c] = int(v[c]) + int(v[d])
        x = uint(v[b]) ^ uint(v[c])
        v[b] = x >> 7 | x << 25
        s += 2
    for i in range(8):
        h[i] = int(h[i]) ^ int(v[i]) ^ int(v[i + 8])
