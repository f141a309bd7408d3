"""The compression function of BLAKE2s (RFC 7693 section 3.2) on 16-bit halves.

For ports without the viper emitter. A word is two list entries, low half first. No intermediate
result reaches 2^30, so nothing is allocated on a 32-bit board.
"""

from drupelet.base.compat import const

_M = const(32)  # index of the block's halves in the scratch list, after the 32 of v


def work() -> "list[int]":
    """Return the scratch memory that `compress` needs: v and the block as 64 halves."""
    return [0] * 64


def _load(v: "list[int]", at: int, source: "bytes | bytearray", start: int, count: int) -> None:
    """Put `count` little-endian halves of `source` into the list."""
    for i in range(at, at + count):
        v[i] = source[start] | source[start + 1] << 8
        start += 2


def _mix(v: "list[int]", a: int, b: int, c: int, d: int, m: int, second: bool) -> None:
    """Do the first or second half of G; a, b, c, d and m are indices of low halves."""
    low = v[a] + v[b] + v[m]
    v[a + 1] = v[a + 1] + v[b + 1] + v[m + 1] + (low >> 16) & 65535
    v[a] = low & 65535
    low = v[d] ^ v[a]
    high = v[d + 1] ^ v[a + 1]
    if second:  # rotate right by 8
        v[d] = (low >> 8 | high << 8) & 65535
        v[d + 1] = (high >> 8 | low << 8) & 65535
    else:  # by 16
        v[d] = high
        v[d + 1] = low
    low = v[c] + v[d]
    v[c + 1] = v[c + 1] + v[d + 1] + (low >> 16) & 65535
    v[c] = low & 65535
    low = v[b] ^ v[c]
    high = v[b + 1] ^ v[c + 1]
    if second:  # by 7
        v[b] = (low >> 7 | high << 9) & 65535
        v[b + 1] = (high >> 7 | low << 9) & 65535
    else:  # by 12
        v[b] = (low >> 12 | high << 4) & 65535
        v[b + 1] = (high >> 12 | low << 4) & 65535


def compress(
    state: bytearray, scratch: "list[int]", tables: bytearray, total: int, last: bool
) -> None:
    """Mix the block at state[32:96] into the chain value at state[0:32].

    `total`: bytes up to the end of this block, without padding. `last`: this is the last block.
    """
    v = scratch
    _load(v, 0, state, 0, 16)
    _load(v, 16, tables, 0, 16)
    _load(v, _M, state, 32, 32)
    v[24] ^= total & 65535
    v[25] ^= total >> 16
    if last:
        v[28] ^= 65535
        v[29] ^= 65535
    s = 32  # the ten permutations
    g = 192  # which words mix
    for _ in range(80):
        if g == 224:
            g = 192
        a = tables[g] << 1
        b = tables[g + 1] << 1
        c = tables[g + 2] << 1
        d = tables[g + 3] << 1
        _mix(v, a, b, c, d, _M + (tables[s] << 1), False)
        _mix(v, a, b, c, d, _M + (tables[s + 1] << 1), True)
        g += 4
        s += 2
    for i in range(16):
        low = v[i] ^ v[i + 16]
        state[i * 2] ^= low & 255
        state[i * 2 + 1] ^= low >> 8
