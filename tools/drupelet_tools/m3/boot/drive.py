# mypy: ignore-errors
"""The board's flash: the first megabyte of the machine's PSRAM, which QEMU keeps in a file.

It takes what a NOR flash takes, and nothing else: erasing sets a whole block to ones, programming
turns ones into zeros. So a file system that forgot to erase would read nonsense here, too.
"""

import micropython
import uctypes

ADDRESS = 0x21000000
BLOCK_SIZE = 4096
BLOCKS = 256
PAGE_SIZE = 256
worn = [0, 0]  # pages that were programmed since the start, and blocks that were erased


@micropython.viper
def _copy(to: int, source: int, size: int):  # noqa: ANN202 - viper has no type for it
    words = size >> 2
    a = ptr32(to)  # noqa: F821 - viper
    b = ptr32(source)  # noqa: F821
    for i in range(words):
        a[i] = b[i]
    c = ptr8(to)  # noqa: F821
    d = ptr8(source)  # noqa: F821
    for i in range(words << 2, size):
        c[i] = d[i]


@micropython.viper
def _program(to: int, source: int, size: int):  # noqa: ANN202 - viper has no type for it
    words = size >> 2
    a = ptr32(to)  # noqa: F821
    b = ptr32(source)  # noqa: F821
    for i in range(words):
        a[i] = a[i] & b[i]
    c = ptr8(to)  # noqa: F821
    d = ptr8(source)  # noqa: F821
    for i in range(words << 2, size):
        c[i] = c[i] & d[i]


@micropython.viper
def _erase(to: int, size: int):  # noqa: ANN202 - viper has no type for it
    a = ptr32(to)  # noqa: F821
    for i in range(size >> 2):
        a[i] = -1


class Drive:
    """A block device as MicroPython's file systems take it; counts what wears a flash."""

    def readblocks(self, block: int, buf: bytearray, offset: int = 0) -> None:
        """Fill `buf`."""
        _copy(uctypes.addressof(buf), ADDRESS + block * BLOCK_SIZE + offset, len(buf))

    def writeblocks(self, block: int, buf: bytearray, offset: int = 0) -> None:
        """Program what was erased before."""
        size = len(buf)
        worn[0] += (offset % PAGE_SIZE + size + PAGE_SIZE - 1) // PAGE_SIZE
        _program(ADDRESS + block * BLOCK_SIZE + offset, uctypes.addressof(buf), size)

    def ioctl(self, what: int, block: int) -> int:
        """4: number of blocks, 5: their size, 6: erase one."""
        if what == 4:
            return BLOCKS
        if what == 5:
            return BLOCK_SIZE
        if what == 6:
            worn[1] += 1
            _erase(ADDRESS + block * BLOCK_SIZE, BLOCK_SIZE)
        return 0
