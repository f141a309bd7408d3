"""Fills and reads MVDS payloads with the heap locked; prints what allocated and what a hash costs.

mvds_heap.py MODULE_PATH
"""

import gc
import hashlib
import sys

import micropython

sys.path.insert(0, sys.argv[1])

from drupelet.base.hashes_mvds import MvdsMessageHash
from drupelet.base.memory import copy
from drupelet.wire.mvds import payload as mvds

ROUNDS = 80
# The compiled modules have their constants folded in and no names for them.
ACK = 1
OFFER = 2
REQUEST = 3
MESSAGE = 4
SIZE = 900

buf = bytearray(SIZE)
ids = bytearray(range(128))
times = (bytes(8), bytes([5] * 8), bytes([255] * 8), bytes([0] * 7) + b"\x80")
body = bytes(range(150))
out = bytearray(32)
hashing = MvdsMessageHash()
# A group offer of `mvds-5001`, which our codec only reads: field 5005 with group id and 5 ids.
group_offer = b"\xea\xb8\x02\xcc\x01\x0a\x20" + ids[3:35]
for start in range(5):
    group_offer += b"\x12\x20" + ids[start : start + 32]


def fill(encoder: "mvds.Payload", metadata: bool, groups: bool) -> int:
    """Write as much as fits; return the payload's size."""
    offer_size = len(group_offer) if groups else 0
    encoder.open(buf, 0, SIZE - offer_size)
    for count in range(5):
        encoder.put_id(ACK, ids, count)
    encoder.put_id(OFFER, ids, 7)
    encoder.put_id(REQUEST, ids, 8)
    for moment in times:
        encoder.put_message(ids, 0, 32, moment, 0, 50, ids, 2 if metadata else 0, metadata * 3)
    while encoder.put_id(OFFER, ids, 7) > 0:
        pass
    copy(buf, encoder.at, group_offer, 0, offer_size)
    return encoder.at + offer_size


def read(decoder: "mvds.Payload", size: int) -> int:
    count = 0
    decoder.open(buf, 0, size)
    what = decoder.next()
    while what > 0:
        count += 1
        if what == MESSAGE:
            while decoder.next_parent() >= 0:
                pass
        what = decoder.next()
    return count


def run(encoder: "mvds.Payload", decoder: "mvds.Payload", metadata: bool, groups: bool) -> int:
    """Fill and read a payload, then read it cut and damaged; return how many records it had."""
    size = fill(encoder, metadata, groups)
    count = read(decoder, size)
    read(decoder, size - 1)
    for at in range(0, size, 131):
        kept = buf[at]
        for value in (255, 0, 127, 128):
            buf[at] = value
            read(decoder, size)
        buf[at] = kept
    return count


def locked(profile: "tuple[int, ...]", metadata: bool, groups: bool) -> int:
    """Return how many records went through, 0 where something allocated."""
    records = 0
    encoder = mvds.Payload(profile)
    decoder = mvds.Payload(profile)
    run(encoder, decoder, metadata, groups)
    micropython.heap_lock()
    try:
        for _ in range(ROUNDS):
            records += run(encoder, decoder, metadata, groups)
    except MemoryError:
        return 0
    finally:
        micropython.heap_unlock()
    return records


def identify() -> None:
    hashing.start_sized(ids, 0, 40, times[2], 0)
    hashing.update(body, 0, 100)
    hashing.update(body, 100, 50)
    hashing.digest_into(out, 0)


def sentinel() -> bool:
    micropython.heap_lock()
    try:
        return not [0] * 10
    except MemoryError:
        return True
    finally:
        micropython.heap_unlock()


assert sentinel(), "the lock must notice an allocation"
bad = []
records = []
for name, profile, metadata, groups in (
    ("mvds-1", mvds.MVDS_1, True, False),
    ("mvds-nested", mvds.MVDS_NESTED, False, False),
    ("mvds-5001", mvds.MVDS_5001, True, True),
):
    records.append(locked(profile, metadata, groups))
    if not records[-1]:
        bad.append(name)
print("allocating:", " ".join(bad) or "none")
print("records:", min(records))
identify()
gc.collect()
gc.disable()
before = gc.mem_alloc()
identify()
print("hash bytes:", gc.mem_alloc() - before)
expected = hashlib.sha256(b"MESSAGE_ID" + ids[:40] + times[2] + body).digest()
print("ids:", "right" if bytes(out) == expected else "wrong")
