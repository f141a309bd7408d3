"""The two loops of CCM in Python, for CPython and for ports without the viper emitter."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def absorb(
    encrypt: "Callable[[bytearray, bytearray], None]", state: bytearray, place: int,
    data: "bytes | bytearray", at: int, size: int,
) -> None:  # fmt: skip
    """CBC-MAC: XOR `size` bytes into the state from `place` on; encrypt the state when it is full.

    The last block is padded with zeros and encrypted, too.
    """
    while size > 0:
        count = min(16 - place, size)
        for i in range(count):
            state[place + i] ^= data[at + i]
        encrypt(state, state)
        place = 0
        at += count
        size -= count


def crypt(
    encrypt: "Callable[[memoryview, memoryview], None]", counter: bytearray,
    views: "list[memoryview]", data: bytearray, at: int, size: int,
) -> None:  # fmt: skip
    """Counter mode: XOR the key stream onto `size` bytes, and advance the counter by block.

    views[n] are the first n + 1 blocks of one scratch buffer, for as many blocks in one call.
    """
    key = views[-1]
    while size > 0:
        blocks = min(size + 15 >> 4, len(views))
        for block_at in range(0, blocks << 4, 16):
            for i in range(16):
                key[block_at + i] = counter[i]
            n = counter[15] + 1
            counter[15] = n & 255
            counter[14] = (counter[14] + (n >> 8)) & 255
        encrypt(views[blocks - 1], views[blocks - 1])
        count = min(blocks << 4, size)
        for i in range(count):
            data[at + i] ^= key[i]
        at += count
        size -= count
