"""Cuts the power at every block operation of LittleFS under a store; prints what was lost.

store_lfs2.py MODULE_PATH:MODULE_PATH
"""

import gc
import os
import sys

sys.path[:0] = sys.argv[1].split(":")
sys.path.insert(0, sys.argv[0].rpartition("/")[0])

from ram_blocks import BLOCK_SIZE, RamBlocks  # noqa: E402

from boards.files import BoardFiles  # noqa: E402
from drupelet.store.flash_store import FlashStore  # noqa: E402
from drupelet.store.states import (  # noqa: E402
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)

BLOCKS = 160
CUTS_MAX = 2000
out = bytearray(700)


def identity(number: int) -> bytes:
    return bytes([number * 37 & 255, number]) * 16


def body_of(number: int) -> bytes:
    size = 600 if number >= 100 else 40 + number
    return bytes([(number + i) & 255 for i in range(size)])


class ListedFiles(BoardFiles):
    """Files that know which of their descriptors are open."""

    def __init__(self, folder: str) -> None:
        BoardFiles.__init__(self, folder)
        self.opened = []

    def open(self, name: str, create: bool) -> int:
        fd = BoardFiles.open(self, name, create)
        if fd >= 0:
            self.opened.append(fd)
        return fd

    def close(self, fd: int) -> None:
        self.opened.remove(fd)
        BoardFiles.close(self, fd)


def mount(blocks: RamBlocks) -> FlashStore:
    """Mount, as after a boot, and open the store."""
    os.mount(os.VfsLfs2(blocks), "/flash")
    store = FlashStore(ListedFiles("/flash"), segment_size=1024, segments_max=6, filter_size=64)
    assert store.open() >= 0
    return store


def unmount(store: FlashStore) -> None:
    """Give the interpreter its files back; a device without power keeps nothing of it."""
    for fd in list(store.files.opened):
        store.files.close(fd)
    os.umount("/flash")
    gc.collect()


def put(store: FlashStore, number: int, state: int) -> int:
    """Put a message, a long one through a part; its handle or a code. 8 is in group 2."""
    body = body_of(number)
    group = 2 if number == 8 else 1
    if number < 100:
        return store.put(group, 2, identity(number), 0, bytes(8), 0, body, 0, len(body), state)
    store.spool.part_open(0, identity(number), 0, 40 + len(body))
    code = store.spool.part_append(0, bytes(40), 0, 40) or store.spool.part_append(
        0, body, 0, len(body)
    )
    return code or store.put_part(0, group, 2, identity(number), 0, state)


# What happens, one barrier after the other: verb and message.
PLAY = (
    (("put", 1), ("pend", 2)),
    (("pend", 100), ("save", 0)),
    (("promote", 2), ("put", 3)),
    (("promote", 100), ("delete", 1)),
    (("put", 101), ("put", 4)),
    (("delete", 101), ("put", 5)),
    (("keep", 6), ("pend", 7)),
    (("put", 8), ("open", 6)),
    (("bury", 7), ("delete", 6)),
    (("leave", 8),),
)
ABSENT = 0
BECOMES = {
    "put": STATE_DELIVERED,
    "pend": STATE_PENDING,
    "promote": STATE_DELIVERED,
    "delete": STATE_DELETED,
    "keep": STATE_PRIVATE,
    "open": STATE_DELIVERED,
    "bury": STATE_INVALID,
    "leave": ABSENT,
}
EDGES = bytes([1]) + bytes(32)


def play(store: FlashStore, sure: "dict[int, int]", maybe: "dict[int, int]") -> None:
    """Do all that; stops at the first code that says that the flash has gone."""
    handles = {}
    if store.member(1, bytes(32), 0, 32) < 0 or store.member(1, b"2" * 32, 0, 32) < 0:
        return
    for calls in PLAY:
        for verb, number in calls:
            if verb == "save":
                code = store.save(b"state", 5)
            else:
                maybe[number] = BECOMES[verb]
                if verb == "delete":
                    code = store.entomb(handles[number], EDGES, 33)
                elif verb == "open":
                    code = store.open_up(handles[number])
                elif verb == "bury":
                    code = store.bury(1, 2, identity(number), 0, bytes(8), 0, handles[number])
                elif verb == "leave":
                    code = store.dismiss(1, 2)
                elif verb == "promote":
                    code = handles[number] = store.promote(handles[number], 1)
                else:
                    code = handles[number] = put(store, number, BECOMES[verb])
            if code < 0:
                return
        if store.barrier() < 0:
            return
        sure.update(maybe)


def verify(store: FlashStore, sure: "dict[int, int]", maybe: "dict[int, int]") -> None:
    """Each message is in a state that it had at the last barrier or later, and whole."""
    for number in sure:
        handle = store.find(identity(number), 0)
        if not handle and maybe[number] == ABSENT:
            continue
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
    assert store.put(1, 2, identity(50), 0, bytes(8), 0, b"after", 0, 5, 1) > 0
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
assert len(sure) == 10, sure
print("cuts", cuts, "lost 0")
