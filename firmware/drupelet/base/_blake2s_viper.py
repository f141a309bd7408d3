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
def compress(h: ptr32, v: ptr32, of: ptr8, total: int, last: bool):
    """Mix the block in the words h[8:24] into the chain value in h[0:8].

    `v`: scratch of 16 words. `of`: the tables. `total`: bytes up to the end of this block, without
    padding. `last`: this is the last block. The pointers are the parameters themselves, because
    the machine code keeps its first three variables in registers.
    """
    iv = ptr32(of)
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
