# mypy: disable-error-code="arg-type, name-defined, no-untyped-def"
# ruff: noqa: ANN202, F821
"""Hash keys of ids (`drupelet.wire.sds.bloom`) in machine code: MicroPython's viper.

Viper ints have the width of the machine: no step depends on more than 32 bits, and words that are
shifted right are masked. A factor that is no small int of a 32-bit board is written as its
negative equivalent modulo 2^32, or multiplied in two halves.
"""

import micropython


@micropython.viper
def hash_into(out: object, at: int, data: object, start: int, size: int, suffixed: bool):
    """Store |MurmurHash3_32| of the text, seed 0, of UTF-16; 4 bytes, little-endian."""
    end = start + size
    assert 0 <= start <= end <= int(len(data)) and 0 <= at <= at + 4 <= int(len(out))
    of = ptr8(data)
    to = ptr8(out)
    suffix = 2 if suffixed else 0
    second = -1
    h = k = n = unit = 0
    while unit >= 0:
        unit = second
        if second >= 0:
            second = -1
        elif start < end:
            unit = of[start]
            start += 1
            if unit >= 0xF0:
                unit = (unit & 7) << 6 | of[start] & 63
                unit = (unit << 6 | of[start + 1] & 63) << 6 | of[start + 2] & 63
                second = 0xDC00 | unit & 0x3FF
                unit = 0xD800 + (unit - 0x10000 >> 10)
                start += 3
            elif unit >= 0xE0:
                unit = (unit & 15) << 12 | (of[start] & 63) << 6 | of[start + 1] & 63
                start += 2
            elif unit >= 0x80:
                unit = (unit & 31) << 6 | of[start] & 63
                start += 1
        elif suffix:
            unit = 32 if suffix == 2 else 98
            suffix -= 1
        if unit >= 0:
            k |= unit << 8 * (n & 3)
            n += 1
        if unit < 0 or n & 3 == 0:
            k *= -862048943
            h ^= (k << 15 | k >> 17 & 0x7FFF) * 461845907
            k = 0
            if unit >= 0:
                h = (h << 13 | h >> 19 & 0x1FFF) * 5 - 430675100
    h ^= n
    h ^= h >> 16 & 0xFFFF
    h = (h * 0x85EB << 16) + h * 0xCA6B
    h ^= h >> 13 & 0x7FFFF
    h = (h * 0xC2B2 << 16) + h * 0xAE35
    h ^= h >> 16 & 0xFFFF
    if h >> 31 & 1:
        h = 0 - h
    for i in range(4):
        to[at + i] = h >> 8 * i
