"""CRC-32 of many 512-byte blocks at the price of one long buffer.

The CRC of a buffer follows from the CRCs of its pieces by a linear map. So the CRCs that the
blocks carry give the CRC that a whole run of blocks must have; one call over the run confirms
all of them. Only where that fails is each block looked at.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from drupelet.base.limits import BLOCK_SIZE

Words = npt.NDArray[np.uint32]

POLYNOMIAL = 0xEDB88320
# Blocks that are confirmed with one call where a longer run failed.
GROUP = 16


def bad_blocks(blocks: npt.NDArray[np.uint8], told: Words) -> npt.NDArray[np.bool_]:
    """Which rows of an (n, 512) contiguous array do not have the CRC that `told` says."""
    bad = np.zeros(len(blocks), dtype=np.bool_)
    if len(blocks) == 0 or _run_crc(told) == zlib.crc32(blocks.data):
        return bad
    for low in range(0, len(blocks), GROUP):
        group = slice(low, low + GROUP)
        if _run_crc(told[group]) != zlib.crc32(blocks[group].data):
            for at in range(low, min(low + GROUP, len(blocks))):
                bad[at] = zlib.crc32(blocks[at].data) != told[at]
    return bad


def _run_crc(told: Words) -> int:
    """CRC of blocks one after the other, from the CRC of each."""
    level = 0
    sums = told
    while len(sums) > 1:
        if len(sums) % 2:
            # A piece in front that is empty has CRC 0 and changes nothing.
            sums = np.concatenate((np.zeros(1, dtype=np.uint32), sums))
        sums = _shift(sums[0::2], level) ^ sums[1::2]
        level += 1
    return int(sums[0])


def _shift(sums: Words, level: int) -> Words:
    """The share that CRCs have in a buffer when 512 * 2**level bytes follow."""
    tables = _tables(level)
    low, high = sums & 0xFF, sums >> 24
    found: Words = tables[0][low] ^ tables[1][(sums >> 8) & 0xFF]
    found ^= tables[2][(sums >> 16) & 0xFF] ^ tables[3][high]
    return found


@lru_cache(maxsize=32)
def _tables(level: int) -> Words:
    """Four tables of 256: the map of 512 * 2**level following bytes, byte by byte."""
    columns = _columns(level)
    tables = np.zeros((4, 256), dtype=np.uint32)
    for byte in range(4):
        for bit in range(8):
            tables[byte, 1 << bit : 2 << bit] = tables[byte, : 1 << bit] ^ columns[8 * byte + bit]
    return tables


@lru_cache(maxsize=32)
def _columns(level: int) -> Words:
    """The linear map of 512 * 2**level following bytes, as what becomes of each single bit."""
    if level:
        # Twice as many bytes: the map of half of them, applied twice.
        return _shift(_columns(level - 1), level - 1)
    columns = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(BLOCK_SIZE * 8):
        columns = np.where(columns & 1, columns >> 1 ^ np.uint32(POLYNOMIAL), columns >> 1)
    return columns
