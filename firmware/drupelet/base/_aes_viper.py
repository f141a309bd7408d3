# mypy: disable-error-code="arg-type, assignment, index, name-defined, no-untyped-def"
# ruff: noqa: ANN202, F821
"""The loops of AES (FIPS 197) in machine code: MicroPython's viper, if a port has the emitter.

A column of the state is one word, its first byte lowest. Words that are shifted right are masked,
so that neither the sign on a 32-bit machine nor bits above 31 on a wider one have an effect.
"""

import micropython

# The state before and after a round: scratch that all keys share.
_WORK = bytearray(32)


@micropython.viper
def expand(box: object, keys: object, size: int):
    """Make the round keys (FIPS 197 section 5.2) after the key in keys[:size]."""
    sub = ptr8(box)
    end = int(len(keys))
    of = ptr8(keys)
    constant = 1
    turn = 0
    for at in range(size, end, 4):
        boxed = turn == 0 or (size == 32 and turn == 16)
        rotated = 1 if turn == 0 else 0
        for i in range(4):
            byte = int(of[at - 4 + (i + rotated & 3)])
            if boxed:
                byte = int(sub[byte])
            of[at + i] = int(of[at + i - size]) ^ byte
        if rotated:
            of[at] = int(of[at]) ^ constant
            constant = constant << 1 ^ (constant >> 7) * 0x11B
        turn += 4
        if turn == size:
            turn = 0


@micropython.viper
def encrypt(box: object, keys: object, source: object, target: object):
    """Encrypt whole blocks with the round keys; `target` may be `source`."""
    size = int(len(source))
    assert size == int(len(target)) and not size & 15
    sub = ptr8(box)
    of = ptr8(source)
    to = ptr8(target)
    key = ptr32(keys)
    key_bytes = ptr8(keys)
    last = (int(len(keys)) >> 2) - 4
    work = int(ptr8(_WORK))
    for at in range(0, size, 16):
        old = ptr8(work)
        for i in range(16):
            old[i] = int(of[at + i]) ^ int(key_bytes[i])
        other = 16
        for round_at in range(4, last + 4, 4):
            new = ptr32(work + other)
            for i in range(4):
                n = i << 2
                a = int(sub[old[n]])
                b = int(sub[old[n + 5 & 15]])
                c = int(sub[old[n + 10 & 15]])
                d = int(sub[old[n + 15 & 15]])
                column = a | b << 8 | c << 16 | d << 24
                if round_at < last:
                    # MixColumns: `turned` is each byte's neighbour. The result is both together,
                    # doubled, plus the neighbour, plus both together from two bytes further.
                    turned = b | c << 8 | d << 16 | a << 24
                    column ^= turned
                    carries = column >> 7 & 0x01010101
                    twice = (column ^ carries << 7) << 1 ^ carries * 0x1B
                    column = twice ^ turned ^ (column << 16 | column >> 16 & 0xFFFF)
                new[i] = column ^ int(key[round_at + i])
            old = ptr8(new)
            other ^= 16
        for i in range(16):
            to[at + i] = old[i]
