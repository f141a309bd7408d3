"""Messages that a number makes: put into a flash store, buried, and found again after a reboot."""

import hashlib

from drupelet.base.errors import OK
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import STATE_DELIVERED, STATE_PENDING

SETTLED = 1 << 29
# A flash that is soon full and then drops its oldest messages, of which it keeps the ids.
SMALL = {"segment_size": 1024, "segments_max": 12, "filter_size": 256}


def message_id(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(4)).digest()


def state_of(store: FlashStore, number: int) -> int:
    assert store.load(store.find(message_id(number), 0)) == OK
    return store.state


def body_of(number: int, size: int) -> bytes:
    return bytes((number + i) & 255 for i in range(size))


def put(
    store: FlashStore, number: int, size: int = 60, pending: bool = False, state: int = 0,
    group: int = 1,
) -> int:  # fmt: skip
    """Put a message that the store does not know yet; the handle of one that it knows."""
    return store.find(message_id(number), 0) or store.put(
        group, 2, message_id(number), 0, number.to_bytes(8), 0, body_of(number, size), 0, size,
        state or (STATE_PENDING if pending else STATE_DELIVERED),
    )  # fmt: skip


def bury(store: FlashStore, number: int, handle: int = 0, group: int = 1) -> int:
    return store.bury(group, 2, message_id(number), 0, number.to_bytes(8), 0, handle)


def put_long(store: FlashStore, number: int, state: int, group: int = 1, size: int = 1000) -> int:
    content = bytes(32) + number.to_bytes(8) + body_of(number, size)
    store.spool.part_drop(0)
    if known := store.find(message_id(number), 0):
        return known
    assert store.spool.part_open(0, message_id(number), 0, len(content)) == 0
    assert store.spool.part_append(0, content, 0, len(content)) == OK
    return store.put_part(0, group, 2, message_id(number), 0, state)


def reboot(files: RamFiles, **options: int) -> FlashStore:
    files.power_cut()
    store = FlashStore(files, **options)
    assert store.open() == 0
    return store


def log_of(store: FlashStore) -> list[int]:
    handles, handle = [], store.next(0)
    while handle:
        handles.append(handle)
        handle = store.next(handle)
    return handles


def store_id(store: FlashStore, handle: int) -> bytes:
    assert store.load(handle) == OK
    return bytes(store.id)
