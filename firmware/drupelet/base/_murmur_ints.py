# host only: integers of any size and a cache, for CPython
"""Hash keys of ids (`drupelet.wire.sds.bloom`) for CPython."""

from functools import lru_cache  # noqa: TID251 - host only

_MASK = 0xFFFFFFFF
_CACHED_MAX = 4096  # ids; about 1 MB


def murmur3_32(data: bytes) -> int:
    """Return the MurmurHash3_32 of bytes, seed 0, unsigned."""
    return _mixed(
        [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)], len(data)
    )


def _mixed(blocks: list[int], size: int) -> int:
    h = 0
    for block in blocks[: size // 4]:
        k = block * 0xCC9E2D51 & _MASK
        h ^= ((k << 15 | k >> 17) & _MASK) * 0x1B873593 & _MASK
        h = (h << 13 | h >> 19) & _MASK
        h = h * 5 + 0xE6546B64 & _MASK
    if size % 4:
        k = blocks[-1] * 0xCC9E2D51 & _MASK
        h ^= ((k << 15 | k >> 17) & _MASK) * 0x1B873593 & _MASK
    h ^= size
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def _wide(text: bytes) -> int:
    """Return the hash of a text as the JavaScript peer computes it: of UTF-16 units that are each
    placed like one byte, and so overlap."""
    wide = text.decode().encode("utf-16-le")
    blocks = [0] * ((len(wide) + 7) // 8)
    for n in range(len(wide) // 2):
        unit = wide[2 * n] | wide[2 * n + 1] << 8
        blocks[n // 4] |= unit << 8 * (n % 4) & _MASK
    return _mixed(blocks, len(wide) // 2)


@lru_cache(_CACHED_MAX)
def cached_hash(text: bytes, suffixed: bool) -> bytes:
    """Return |MurmurHash3_32| of a text in UTF-16."""
    if suffixed:
        text += b" b"
    h = murmur3_32(text) if text.isascii() else _wide(text)
    if h >> 31:
        h = (1 << 32) - h
    return h.to_bytes(4, "little")


def hash_into(
    out: bytearray, at: int, data: bytes | bytearray | memoryview, start: int, size: int,
    suffixed: bool,
) -> None:  # fmt: skip
    """Store |MurmurHash3_32| of the text, seed 0, of UTF-16; 4 bytes, little-endian."""
    assert 0 <= start <= start + size <= len(data)
    out[at : at + 4] = cached_hash(bytes(data[start : start + size]), suffixed)
