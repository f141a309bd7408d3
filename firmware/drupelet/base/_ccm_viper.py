# mypy: disable-error-code="arg-type, index, name-defined, no-untyped-def, operator"
# ruff: noqa: ANN202, F821
"""The two loops of CCM in machine code: MicroPython's viper, if the port has the emitter."""

import micropython


@micropython.viper
def absorb(encrypt: object, state: object, place: int, data: object, at: int, size: int):
    """CBC-MAC: XOR `size` bytes into the state from `place` on; encrypt the state when it is full.

    The last block is padded with zeros and encrypted, too.
    """
    assert 0 <= at <= at + size <= int(len(data))
    mixed = ptr8(state)
    of = ptr8(data)
    while size > 0:
        count = 16 - place
        if count > size:
            count = size
        to = ptr8(int(mixed) + place)
        more = ptr8(int(of) + at)
        for _ in range(count >> 2):
            to[0] = to[0] ^ more[0]
            to[1] = to[1] ^ more[1]
            to[2] = to[2] ^ more[2]
            to[3] = to[3] ^ more[3]
            to = ptr8(int(to) + 4)
            more = ptr8(int(more) + 4)
        for i in range(count & 3):
            to[i] = to[i] ^ more[i]
        encrypt(state, state)
        place = 0
        at += count
        size -= count


@micropython.viper
def crypt(encrypt: object, counter: object, views: object, data: object, at: int, size: int):
    """Counter mode: XOR the key stream onto `size` bytes, and advance the counter by block.

    views[n] are the first n + 1 blocks of one scratch buffer, for as many blocks in one call.
    """
    assert 0 <= at <= at + size <= int(len(data))
    now = ptr8(counter)
    words = ptr32(counter)
    most = int(len(views))
    key = ptr8(views[0])
    key_words = ptr32(views[0])
    of = ptr8(data)
    while size > 0:
        blocks = size + 15 >> 4
        if blocks > most:
            blocks = most
        at_word = 0
        for _ in range(blocks):
            for i in range(4):
                key_words[at_word + i] = words[i]
            at_word += 4
            n = int(now[15]) + 1
            now[15] = n
            now[14] = int(now[14]) + (n >> 8)
        view = views[blocks - 1]
        encrypt(view, view)
        count = blocks << 4
        if count > size:
            count = size
        to = ptr8(int(of) + at)
        more = ptr8(int(key))
        for _ in range(count >> 2):
            to[0] = to[0] ^ more[0]
            to[1] = to[1] ^ more[1]
            to[2] = to[2] ^ more[2]
            to[3] = to[3] ^ more[3]
            to = ptr8(int(to) + 4)
            more = ptr8(int(more) + 4)
        for i in range(count & 3):
            to[i] = to[i] ^ more[i]
        at += count
        size -= count
