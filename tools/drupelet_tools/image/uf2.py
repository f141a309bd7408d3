"""UF2: a program in blocks that the boot ROM of an RP2040 takes from a USB drive, in any order.

A block has 512 bytes around a page of 256: two magic numbers, flags, the page's address, its size,
its number, how many there are, the chip's family, the page, a last magic number.
"""

import struct

BLOCK_SIZE = 512
PAGE_SIZE = 256
FLASH_BASE = 0x10000000
FAMILY_RP2040 = 0xE48BFF56
_MAGIC = (0x0A324655, 0x9E5D5157)
_MAGIC_END = 0x0AB16F30
_FLAG_FAMILY = 0x2000
_HEAD = struct.Struct("<8I")


def pack(program: bytes) -> bytes:
    """The UF2 file of a program that begins where the flash does."""
    count = -(-len(program) // PAGE_SIZE)
    blocks = []
    for number in range(count):
        page = program[number * PAGE_SIZE :][:PAGE_SIZE]
        address = FLASH_BASE + number * PAGE_SIZE
        head = (*_MAGIC, _FLAG_FAMILY, address, PAGE_SIZE, number, count, FAMILY_RP2040)
        blocks.append(_HEAD.pack(*head) + page.ljust(476, b"\0") + struct.pack("<I", _MAGIC_END))
    return b"".join(blocks)
