"""Runs the store's and the black box's steady state with the heap locked; prints what allocated.

store_heap.py MODULE_PATH:MODULE_PATH ram|folder|lfs2 FOLDER
"""

import gc
import os
import sys

import micropython

sys.path[:0] = sys.argv[1].split(":")
sys.path.insert(0, sys.argv[0].rpartition("/")[0])

from ram_blocks import BLOCK_SIZE, RamBlocks  # noqa: E402

from drupelet.store.files import RamFiles  # noqa: E402
from drupelet.store.flash_store import FlashStore  # noqa: E402
from drupelet.telemetry.black_box import BlackBox  # noqa: E402

KIND, FOLDER = sys.argv[2], sys.argv[3]
SEGMENT_SIZE = 32768  # one segment holds the whole run: opening another is an occasion of its own


def make_files() -> "object":
    if KIND == "ram":
        return RamFiles(file_size=SEGMENT_SIZE, files_count=4)
    from boards.files import BoardFiles

    if KIND == "folder":
        return BoardFiles(FOLDER)
    blocks = RamBlocks(bytearray(400 * BLOCK_SIZE))
    os.VfsLfs2.mkfs(blocks)
    os.mount(os.VfsLfs2(blocks), "/flash")
    return BoardFiles("/flash")


files = make_files()
store = FlashStore(files, segment_size=SEGMENT_SIZE)
box = BlackBox(b"\1\2\3\4", 7)
ids = bytearray(32)
timestamp = bytearray(8)
body = bytearray(952)
edges = bytearray(257)
left_id = bytearray(b"left" * 8)
out = bytearray(1000)
state = bytearray(492)
anchor = b"\1\2\3\4\5\6"
counts = [0, (1 << 30) - 5000]  # messages, ms


def next_id() -> None:
    counts[0] += 1
    ids[0] = counts[0] & 255
    ids[1] = counts[0] >> 8
    for i in range(2, 32):
        ids[i] = (ids[i - 1] * 5 + ids[i - 2] + 1) & 255


def put() -> None:
    next_id()
    assert store.put(1, 2, ids, 0, timestamp, 0, body, 0, 60, 1) > 0


def put_again() -> None:
    assert store.put(1, 2, ids, 0, timestamp, 0, body, 0, 60, 1) > 0


def pending_and_promote() -> None:
    next_id()
    handle = store.put(1, 2, ids, 0, timestamp, 0, body, 0, 100, 2)
    assert store.next_pending(0) == handle
    assert store.promote(handle, 1) > handle


def find_and_read() -> None:
    handle = store.find(ids, 0)
    assert store.load(handle) == 0
    assert store.read_into(handle, 0, out, 0, store.size) == store.size
    assert store.read_into(handle, 5, out, 40, 20) == 20


def find_nothing() -> None:
    next_id()
    assert store.find(ids, 0) == 0


def walk() -> None:
    handle = store.next(0)
    for _ in range(10):
        handle = store.next(handle)


def delete() -> None:
    put()
    assert store.entomb(store.find(ids, 0), edges, 257) == 0
    handle = store.find(ids, 0)
    assert store.load(handle) == 0 and store.edges_size == 257
    assert store.read_into(handle, 0, out, 0, 300) == 257


def keep_and_open_up() -> None:
    next_id()
    handle = store.put(1, 2, ids, 0, timestamp, 0, body, 0, 60, 5)
    assert store.load(handle) == 0 and store.private
    assert store.open_up(handle) == 0
    assert store.load(handle) == 0 and not store.private
    assert store.next(handle) == 0


def delete_kept() -> None:
    next_id()
    handle = store.put(1, 2, ids, 0, timestamp, 0, body, 0, 60, 5)
    assert store.entomb(handle, edges, 33) == 0
    assert store.load(handle) == 0 and store.private


def bury() -> None:
    next_id()
    handle = store.bury(1, 2, ids, 0, timestamp, 0, 0)
    assert store.bury(1, 2, ids, 0, timestamp, 0, 0) == handle
    assert store.load(handle) == 0 and store.state == 4 and store.next(handle) == 0


def bury_pending() -> None:
    next_id()
    handle = store.put(1, 2, ids, 0, timestamp, 0, body, 0, 100, 2)
    assert store.bury(1, 2, ids, 0, timestamp, 0, handle) == handle
    assert store.next_pending(0) == 0


def of_a_left_group() -> None:
    assert store.load(left_handle) < 0
    assert store.find(left_id, 0) == 0
    assert store.next(0) != left_handle


def save() -> None:
    assert store.save(state, 40) == 0


def barrier() -> None:
    assert store.barrier() == 0


def append_part() -> None:
    assert store.spool.part_append(0, body, 0, 300) == 0
    assert store.spool.part_read_into(0, 100, out, 3, 200) == 200


def member() -> None:
    assert store.member(2, b"peer", 0, 4) == 1


def refused() -> None:
    assert store.spool.part_append(1, body, 0, 300) < 0
    assert store.load(12345) < 0
    assert store.promote(12345, 1) < 0


def tell_box() -> None:
    for i in range(60):
        # Modulo 2^30, without ever passing it.
        now_ms = (counts[1] - 0x1FFFFFFF + 4000000 - 0x20000001) & 0x3FFFFFFF
        counts[1] = now_ms
        box.log(now_ms, 30, 1, 2, 0xFFFF, 0xFFFF)
        box.log_id(now_ms, 13, 1, 2, body, 0)
        box.count(70 + i, 0x1FFFFFFF)
        box.state(now_ms, i & 7)
        box.wall(now_ms, anchor, 12)
        if box.ready and i & 1:
            box.take()
    box.flush_counters(now_ms)
    box.finish()
    box.take()


CALLS = [
    put, put_again, pending_and_promote, find_and_read, find_nothing, walk, delete,
    keep_and_open_up, delete_kept, bury, bury_pending, of_a_left_group, save, barrier,
    append_part, member, refused, tell_box,
]  # fmt: skip


def measure(call: "object", times: int) -> str:
    """The name of a call that allocates, or nothing."""
    call()
    gc.collect()
    micropython.heap_lock()
    try:
        for _ in range(times):
            call()
    except MemoryError:
        return call.__name__
    finally:
        micropython.heap_unlock()
    return ""


assert store.open() == 0
assert store.member(2, b"peer", 0, 4) == 1
assert store.member(1, ids, 0, 32) == 1
group = store.member(1, left_id, 0, 32)
left_handle = store.put(group, 2, left_id, 0, timestamp, 0, body, 0, 60, 1)
assert left_handle > 0 and store.dismiss(1, group) == 0
assert store.member(1, left_id, 0, 32) == group + 1
assert store.spool.part_open(0, ids, 0, 0) == 0
allocating = []
for call in CALLS:
    name = measure(call, 8)
    if name:
        allocating.append(name)
print("allocating:", " ".join(allocating) or "none")

# The declared occasion: another segment file for writing, and one for reading. What the open
# file itself takes goes back when it is closed.
gc.collect()
gc.disable()
before = gc.mem_alloc()
assert store.log.rotate(64) == 0
written = gc.mem_alloc() - before
before = gc.mem_alloc()
walk()
print("per segment:", written, gc.mem_alloc() - before)
gc.enable()
