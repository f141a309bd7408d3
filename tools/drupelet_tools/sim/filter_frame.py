"""Frames of filter_sync: a Bloom filter of the messages held in part of a group.

Enhancement 3 of the mobile paper. A part is a range of timestamps, optionally restricted to the
ids with a given remainder: timestamps and ids are the same at all members, arrival order is not.
"""

import hashlib

KIND = 0x54
HEAD_SIZE = 45
_PART_SIZE = 20
ANSWER = 1  # flag: this frame answers another one and is not answered itself
SUM_ONLY = 2  # flag: the frame has count and sum, but no filter
WHOLE = 4  # flag: the frame covers the whole group, so the part's fields are left out
# 10 bits and 7 hashes a message: one false positive in 122.
BITS_PER_ID = 10
HASHES = 7
HASHES_MAX = 16
TIME_END = 1 << 63


class Subset:
    """Part of a group: timestamps start .. end - 1 (ms), ids that are `offset` modulo `modulo`."""

    def __init__(self, start: int, end: int, modulo: int = 1, offset: int = 0) -> None:
        assert 0 <= start <= end <= TIME_END and 0 <= offset < modulo <= 0xFFFF
        self.start = start
        self.end = end
        self.modulo = modulo
        self.offset = offset

    def has(self, timestamp: int, id: bytes) -> bool:
        """Whether a message belongs to this part."""
        inside = self.start <= timestamp < self.end
        return inside and int.from_bytes(id[24:]) % self.modulo == self.offset


class Filter:
    """A Bloom filter over 32-byte ids; a new salt per filter makes false positives differ."""

    def __init__(self, bits: bytearray, hashes: int, salt: bytes) -> None:
        self.bits = bits
        self.hashes = hashes
        self.salt = salt

    @classmethod
    def over(cls, ids: "list[bytes]", salt: bytes, size_max: int) -> "Filter":
        """Return a filter of the ids, at most `size_max` bytes long; empty if there are no ids."""
        size = min((len(ids) * BITS_PER_ID + 7) // 8, size_max)
        bloom = cls(bytearray(size), HASHES, salt)
        for id in ids:
            for bit in bloom._places(id):
                bloom.bits[bit >> 3] |= 1 << (bit & 7)
        return bloom

    def _places(self, id: bytes) -> "list[int]":
        digest = hashlib.blake2s(id, key=self.salt, digest_size=16).digest()
        first = int.from_bytes(digest[:8])
        step = int.from_bytes(digest[8:]) | 1
        count = len(self.bits) * 8
        return [(first + index * step) % count for index in range(self.hashes)]

    def maybe(self, id: bytes) -> bool:
        """False if the id is not in the filter; True if it may be."""
        if not self.bits:
            return False
        return all(self.bits[bit >> 3] & 1 << (bit & 7) for bit in self._places(id))


def sum_of(ids: "list[bytes]") -> bytes:
    """Return the sum of the first 8 bytes of each id modulo 2^64, as 8 bytes, big-endian."""
    total = sum(int.from_bytes(id[:8]) for id in ids)
    return (total & 0xFFFFFFFFFFFFFFFF).to_bytes(8)


class Available:
    """The content of a filter frame."""

    def __init__(
        self, group: bytes, flags: int, subset: Subset, count: int, total: bytes, bloom: Filter
    ) -> None:
        self.group = group  # the first 8 bytes of its id
        self.flags = flags
        self.subset = subset
        self.count = count
        self.sum = total
        self.filter = bloom


def put_into(frame: bytearray, what: Available) -> int:
    """Write a frame to frame[0:]; return its size in bytes."""
    subset, bloom = what.subset, what.filter
    whole = subset.start == 0 and subset.end == TIME_END and subset.modulo == 1
    flags = what.flags & ~WHOLE | (WHOLE if whole else 0)
    head = bytes((KIND,)) + what.group + bytes((flags, bloom.hashes))
    head += min(what.count, 0xFFFF).to_bytes(2) + what.sum + bloom.salt
    if not whole:
        head += subset.modulo.to_bytes(2) + subset.offset.to_bytes(2)
        head += subset.start.to_bytes(8) + (subset.end - 1).to_bytes(8)
    end = len(head) + len(bloom.bits)
    frame[: len(head)] = head
    frame[len(head) : end] = bloom.bits
    return end


def read(frame: "bytes | bytearray", size: int) -> "Available | None":
    """Return the content of frame[:size], or None if it is malformed."""
    at = HEAD_SIZE - _PART_SIZE
    if size < at or frame[0] != KIND or not 0 < frame[10] <= HASHES_MAX:
        return None
    subset = Subset(0, TIME_END)
    if not frame[9] & WHOLE:
        if size < HEAD_SIZE:
            return None
        modulo, offset = int.from_bytes(frame[25:27]), int.from_bytes(frame[27:29])
        start, last = int.from_bytes(frame[29:37]), int.from_bytes(frame[37:45])
        if offset >= modulo or not start <= last < TIME_END:
            return None
        subset = Subset(start, last + 1, modulo, offset)
        at = HEAD_SIZE
    return Available(
        bytes(frame[1:9]), frame[9], subset, int.from_bytes(frame[11:13]), bytes(frame[13:21]),
        Filter(bytearray(frame[at:size]), frame[10], bytes(frame[21:25])),
    )  # fmt: skip
