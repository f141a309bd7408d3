"""Fills a LittleFS around a store that has not flushed yet; prints how many barriers were checked.

full_lfs2.py MODULE_PATH:MODULE_PATH
"""

import gc
import os
import sys

sys.path[:0] = sys.argv[1].split(":")
sys.path.insert(0, sys.argv[0].rpartition("/")[0])

from ram_blocks import BLOCK_SIZE, RamBlocks  # noqa: E402

from boards.files import BoardFiles  # noqa: E402
from drupelet.base.errors import E_CAPACITY, OK  # noqa: E402
from drupelet.store.flash_store import FlashStore  # noqa: E402

BLOCKS = 32
MESSAGES_MAX = 100


def identity(number: int) -> bytes:
    return bytes([number * 37 & 255, number]) * 16


def mount(data: bytearray, path: str) -> FlashStore:
    """Mount, as after a boot, and open the store."""
    os.mount(os.VfsLfs2(RamBlocks(data)), path)
    store = FlashStore(BoardFiles(path), segment_size=1024, segments_max=40, filter_size=64)
    assert store.open() >= 0
    return store


def put(store: FlashStore, number: int) -> int:
    body = bytes([number]) * (20 + number % 90)
    return store.put(1, 2, identity(number), 0, bytes(8), 0, body, 0, len(body), 1)


def check(data: bytearray, durable: list) -> None:
    """After a power cut now, the store has everything that it called durable."""
    store = mount(bytearray(data), "/cut")
    for number in durable:
        assert store.find(identity(number), 0) > 0, f"message {number} is lost"
    os.umount("/cut")


formatted = bytearray(BLOCKS * BLOCK_SIZE)
os.VfsLfs2.mkfs(RamBlocks(formatted))
barriers = refused = 0
for filler_blocks in range(BLOCKS - 14, BLOCKS - 6):
    for batch in (1, 2, 3, 5):
        data = bytearray(formatted)
        store = mount(data, "/flash")
        with open("/flash/FILLER", "wb") as filler:
            filler.write(bytes(filler_blocks * BLOCK_SIZE))
        entered, durable = [], []
        for number in range(MESSAGES_MAX):
            code = put(store, number)
            if code > 0:
                entered.append(number)
            else:
                assert code == E_CAPACITY, code
                refused += 1
            if (number % batch == batch - 1 or code < 0) and store.barrier() == OK:
                durable = entered[:]
                barriers += 1
                if code < 0:
                    check(data, durable)
            if code < 0:
                break
        os.remove("/flash/FILLER")
        assert store.barrier() == OK, "a full flash recovers when there is room"
        check(data, entered)
        assert put(store, 200) > 0 and store.barrier() == OK
        entered.append(200)
        check(data, entered)
        assert "COPY.TMP" not in os.listdir("/flash")
        os.umount("/flash")
        gc.collect()
print("barriers", barriers, "refused", refused)
