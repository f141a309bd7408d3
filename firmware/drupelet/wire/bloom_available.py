# host only: filters over whole logs
"""BLOOM_AVAILABLE: which messages of a part of a group are here, as a Bloom filter (SPEC 14).

Mobile paper, enhancement 3. The part is a range of timestamps, cut further by a rest of the id;
timestamp and id are the same at all members, which arrival order is not.
"""

import hashlib

KIND_BLOOM = 0x54
HEAD_SIZE = 45
_PART_SIZE = 20
ANSWER = 1  # flags: an answer; it is not answered again
SUM_ONLY = 2  # flags: count and sum alone, no filter
WHOLE = 4  # flags: of all messages, so no part is told
# 10 bits and 7 hashes a message: one false positive in 122.
BITS_PER_ID = 10
HASHES = 7
HASHES_MAX = 16
TIME_END = 1 << 63


class Subset:
    """A part of a group: timestamps start .. end - 1, ids whose rest by `modulo` is `offset`."""

    def __init__(self, start: int, end: int, modulo: int = 1, offset: int = 0) -> None:
        assert 0 <= start <= end <= TIME_END and 0 <= offset < modulo <= 0xFFFF
        self.start = start
        self.end = end
        self.modulo = modulo
        self.offset = offset

    def has(self, timestamp: int, id: bytes) -> bool:
        """Whether a message belongs to it."""
        inside = self.start <= timestamp < self.end
        return inside and int.from_bytes(id[24:]) % self.modulo == self.offset


class Filter:
    """A filter over ids: `bits`, which of its own salt, so that errors differ each time."""

    def __init__(self, bits: bytearray, hashes: int, salt: bytes) -> None:
        self.bits = bits
        self.hashes = hashes
        self.salt = salt

    @classmethod
    def over(cls, ids: "list[bytes]", salt: bytes, size_max: int) -> "Filter":
        """A new one, of at most `size_max` bytes; of no ids it has none."""
        size = min((len(ids) * BITS_PER_ID + 7) // 8, size_max)
        made = cls(bytearray(size), HASHES, salt)
        for id in ids:
            for place in made._places(id):
                made.bits[place >> 3] |= 1 << (place & 7)
        return made

    def _places(self, id: bytes) -> "list[int]":
        digest = hashlib.blake2s(id, key=self.salt, digest_size=16).digest()
        first = int.from_bytes(digest[:8])
        step = int.from_bytes(digest[8:]) | 1
        count = len(self.bits) * 8
        return [(first + turn * step) % count for turn in range(self.hashes)]

    def maybe(self, id: bytes) -> bool:
        """False: this id was not put in. True: it may have been."""
        if not self.bits:
            return False
        return all(self.bits[place >> 3] & 1 << (place & 7) for place in self._places(id))


def sum_of(ids: "list[bytes]") -> bytes:
    """8 bytes that are equal for equal sets of ids: the first 8 of each, added modulo 2^64."""
    total = sum(int.from_bytes(id[:8]) for id in ids)
    return (total & 0xFFFFFFFFFFFFFFFF).to_bytes(8)


class Available:
    """A frame's content."""

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
    """Write a frame; its size."""
    subset, bloom = what.subset, what.filter
    whole = subset.start == 0 and subset.end == TIME_END and subset.modulo == 1
    flags = what.flags & ~WHOLE | (WHOLE if whole else 0)
    head = bytes((KIND_BLOOM,)) + what.group + bytes((flags, bloom.hashes))
    head += min(what.count, 0xFFFF).to_bytes(2) + what.sum + bloom.salt
    if not whole:
        head += subset.modulo.to_bytes(2) + subset.offset.to_bytes(2)
        head += subset.start.to_bytes(8) + (subset.end - 1).to_bytes(8)
    end = len(head) + len(bloom.bits)
    frame[: len(head)] = head
    frame[len(head) : end] = bloom.bits
    return end


def read(frame: "bytes | bytearray", size: int) -> "Available | None":
    """A frame's content, or None: malformed."""
    at = HEAD_SIZE - _PART_SIZE
    if size < at or frame[0] != KIND_BLOOM or not 0 < frame[10] <= HASHES_MAX:
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
