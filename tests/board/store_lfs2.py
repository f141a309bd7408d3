"""Cuts the power at every block operation of LittleFS under a store; prints what was lost.

store_lfs2.py MODULE_PATH:MODULE_PATH
"""

import gc
import os
import sys

sys.path[:0] = sys.argv[1].split(":")
sys.path.insert(0, sys.argv[0].rpartition("/")[0])

from ram_blocks import BLOCK_SIZE, RamBlocks  # noqa: E402

from boards.unix.files import BoardFiles  # noqa: E402
from drupelet.limits import FILES_OPEN_MAX  # noqa: E402
from drupelet.store import STATE_DELETED, STATE_DELIVERED, STATE_PENDING, FlashStore  # noqa: E402

BLOCKS = 160
CUTS_MAX = 2000
out = bytearray(700)


def identity(number: int) -> bytes:
    return bytes([number * 37 & 255, number]) * 16


def body_of(number: int) -> bytes:
    size = 600 if number >= 100 else 40 + number
    return bytes([(number + i) & 255 for i in range(size)])


def mount(blocks: RamBlocks) -> FlashStore:
    """Mount, as after a boot, and open the store."""
    os.mount(os.VfsLfs2(blocks), "/flash")
    store = FlashStore(BoardFiles("/flash"), segment_size=1024, segments_max=6, filter_size=64)
    assert store.open() >= 0
    return store


def unmount(store: FlashStore) -> None:
    """Give the interpreter its files back; a device without power keeps nothing of it."""
    for fd in range(FILES_OPEN_MAX):
        if store._files._open[fd] is not None:
            store._files.close(fd)
    os.umount("/flash")
    gc.collect()


def play(store: FlashStore, sure: "dict[int, int]", maybe: "dict[int, int]") -> None:
    """Put, promote, delete; stops at the first code that says that the flash has gone."""
    handles = {}

    def put(number: int, pending: bool) -> bool:
        maybe[number] = STATE_PENDING if pending else STATE_DELIVERED
        body = body_of(number)
        if number < 100:
            code = store.put(
                1, 2, identity(number), 0, bytes(8), 0, body, 0, len(body), pending
            )  # fmt: skip
        else:
            store.part_open(0, identity(number), 0, 40 + len(body))
            if store.part_append(0, bytes(40), 0, 40) or store.part_append(0, body, 0, len(body)):
                return False
            code = store.put_part(0, 1, 2, identity(number), 0, pending)
        handles[number] = code
        return code > 0

    def barrier() -> bool:
        if store.barrier():
            return False
        sure.update(maybe)
        return True

    def promote(number: int) -> bool:
        maybe[number] = STATE_DELIVERED
        return store.promote(handles[number]) > 0

    def delete(number: int) -> bool:
        maybe[number] = STATE_DELETED
        return store.delete(handles[number]) == 0

    (
        store.member(1, bytes(32), 0, 32) > 0
        and put(1, False)
        and put(2, True)
        and barrier()
        and put(100, True)
        and store.save(b"state", 5) == 0
        and barrier()
        and promote(2)
        and put(3, False)
        and barrier()
        and promote(100)
        and delete(1)
        and barrier()
        and put(101, False)
        and put(4, False)
        and barrier()
        and delete(101)
        and put(5, False)
        and barrier()
    )


def verify(store: FlashStore, sure: "dict[int, int]", maybe: "dict[int, int]") -> None:
    """Each message is in a state that it had at the last barrier or later, and whole."""
    for number in sure:
        handle = store.find(identity(number), 0)
        assert handle > 0, f"message {number} is lost"
        assert store.load(handle) == 0
        assert store.state in (sure[number], maybe[number]), number
    seen = []
    handle = store.next(0)
    while handle:
        assert store.load(handle) == 0
        number = store.id[1]
        assert number in maybe and number not in seen
        seen.append(number)
        if store.state == STATE_DELIVERED:
            body = body_of(number)
            assert store.read_into(handle, 0, out, 0, 700) == len(body)
            assert out[: len(body)] == body
        handle = store.next(handle)
    assert store.put(1, 2, identity(50), 0, bytes(8), 0, b"after", 0, 5, False) > 0
    assert store.barrier() == 0


formatted = bytearray(BLOCKS * BLOCK_SIZE)
os.VfsLfs2.mkfs(RamBlocks(formatted))
cuts = 0
data = bytearray(BLOCKS * BLOCK_SIZE)
while cuts < CUTS_MAX:
    data[:] = formatted
    sure, maybe = {}, {}
    blocks = RamBlocks(data, cuts)
    store = mount(blocks)
    play(store, sure, maybe)
    unmount(store)
    store = mount(RamBlocks(data))
    verify(store, sure, maybe)
    unmount(store)
    if not blocks.dead:
        break
    cuts += 1
assert len(sure) == 7, sure
print("cuts", cuts, "lost 0")
