"""A flash that version 3 of the log wrote is taken over once, whole, and at whatever instant the
power goes meanwhile.

The image is data/flash_v3.json: files, and what the firmware that wrote it said of them after a
reboot. The FlashStore of commit 163fca0 made it over RamFiles, 12 segments of 1 KB, salt 5a17c0de:

* groups 1 to 3 and peers 1 to 4, a descriptor of group 1, a wake state; group 3 with two messages
  and peer 4 were dismissed;
* message n has the id (n & 255, n >> 8, n * 37 & 255, 7) eight times; 500 waits and 501 is a kept
  deletion that is known to more since, both from before 9 segments went to make room; so 0 to n
  are gone but for the last, a third of them our own; 600 was buried, 700 never came;
* 1000 to 1009: delivered, deleted with two edges, private, opened up, deleted while private, with
  a body file, pending with one, pending and then promoted, pending and then buried, our own;
* the last 4 bytes of 1010 reached the flash in an append that was reported as failed, and 1010 was
  put again; 1011 after that; 600 of 3,000 bytes of a part.
"""

import base64
import json
import random
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import GONE_HANDLE
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import STATE_DELIVERED
from repeats import strides
from unit.cut_files import AFTER, BEFORE, TORN, CutFiles, PowerCut

MODULE = "drupelet.store.migration"
NEW = 2000  # no message of the image has this number


@cache
def image() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "data" / "flash_v3.json").read_text("ascii"))


def flashed() -> CutFiles:
    """The flash as the old firmware left it, all of it durable."""
    files = CutFiles()
    for name, packed in image()["files"].items():
        files.hold(name, zlib.decompress(base64.b85decode(packed)))
    return files


def booted(files: RamFiles) -> FlashStore:
    store = FlashStore(files, **image()["options"])
    assert store.open() == 0, store.damaged
    return store


def message_id(number: int) -> bytes:
    return bytes([number & 255, number >> 8, number * 37 & 255, 7]) * 8


def walk(step: Any) -> list[int]:
    handles, handle = [], step(0)
    while handle:
        handles.append(handle)
        handle = step(handle)
    return handles


def fact(store: FlashStore, number: int) -> list[Any]:
    """What a store says of a message."""
    handle = store.find(message_id(number), 0)
    if not handle:
        return [0]
    assert store.load(handle) == OK
    if handle >= GONE_HANDLE:
        return [handle, store.state, store.group]
    buf = bytearray(4000)
    size = store.read_into(handle, 0, buf, 0, 4000)
    return [
        handle, store.state, store.group, store.source, store.size, store.edges_size,
        store.private, store.missing, bytes(store.timestamp).hex(), zlib.crc32(buf[:size]),
    ]  # fmt: skip


def check(store: FlashStore) -> None:
    """Every fact that the old firmware told of its flash."""
    known = image()
    for number, expected in known["messages"].items():
        assert fact(store, int(number)) == expected, number
    assert walk(store.next) == known["log"]
    assert walk(store.next_pending) == known["pending"]
    assert walk(store.next_kept) == known["kept"]
    for kind, key, number in known["members"]:
        assert store.member(kind, bytes.fromhex(key), 0, len(key) // 2) == number
    size = store.spool.descriptor_size(1)
    text = bytearray(size)
    assert store.spool.descriptor_read_into(1, 0, text, 0, size) == size
    assert text.decode() == known["descriptor"]
    assert [store.dropped(group) for group in (1, 2)] == known["dropped"]
    assert [store.noted(message_id(n), 0) for n in (700, 1000)] == known["never"]
    assert bytes(store.saved[: store.saved_size]).hex() == known["saved"]
    assert (store.store_gen, store.spool.part_left(2)) == (known["store_gen"], known["part"])


def put(store: FlashStore, number: int) -> int:
    return store.put(1, 2, message_id(number), 0, bytes(8), 0, b"new", 0, 3, STATE_DELIVERED)


def test_the_image_is_rich() -> None:
    states = {row[1] for row in image()["messages"].values() if len(row) > 1}
    assert states == {1, 2, 3, 4, 5, 8}, "each state that a board knows"
    assert len(image()["kept"]) == 1 and len(image()["pending"]) == 2
    assert min(image()["log"]) // 1024 > 1, "it has rotated"
    files = flashed()
    heads = [bytes(files.content(name)[3:4]) for name in files.names() if name.endswith(".LOG")]
    assert b"\xc3" in heads, "an append that had failed reached the flash"


def test_nothing_is_lost_and_it_is_done_once() -> None:
    files = flashed()
    sys.modules.pop(MODULE, None)
    store = booted(files)
    assert MODULE in sys.modules
    check(store)
    new = put(store, NEW)
    assert new > max(image()["log"]) and store.barrier() == OK
    del sys.modules[MODULE]
    for _ in range(2):
        files.power_on()
        store = booted(files)
        assert MODULE not in sys.modules, "it is not an old log any more"
        assert fact(store, NEW)[0] == new
        assert walk(store.next) == [*image()["log"], new]
    # What left has no number, what is new gets one that nobody had.
    assert store.member(1, bytes([3]) * 32, 0, 32) == 4
    assert store.member(2, b"\xa0\0\0\4", 0, 4) == 5


def test_a_log_of_its_own_version_needs_no_taking_over() -> None:
    files = RamFiles()
    sys.modules.pop(MODULE, None)
    for _ in range(2):
        store = booted(files)
        assert put(store, 1) > 0 and store.member(1, bytes(32), 0, 32) == 1
        assert store.barrier() == OK
        files.power_cut()
    assert MODULE not in sys.modules


@cache
def steps() -> int:
    files = flashed()
    booted(files)
    return files.steps


@pytest.mark.parametrize("moment", [BEFORE, TORN, AFTER])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("stride", strides(2))
def test_a_cut_at_every_step_loses_nothing(moment: int, seed: int, stride: int) -> None:
    """Of what was not flushed nothing, a beginning or all survives; with an odd seed, any of it.

    The second boot is cut, too. What one seed leaves out the other tries.
    """
    assert steps() > 30
    for step in range(seed % stride, steps(), stride):
        rng = random.Random(f"{moment} {seed} {step}")
        files = flashed()
        for again in (step, rng.randrange(steps() + 1), -1):
            files.power_on(cut_at=again)
            files.moment = moment
            try:
                store = FlashStore(files, **image()["options"])
                assert store.open() >= 0
                assert files.cut_at < 0 or files.steps <= files.cut_at
            except PowerCut:
                left = files.image()
                files = CutFiles()
                files.restore(left, rng, bool(seed & 1))
        check(store)
        assert put(store, NEW) > max(image()["log"]) and store.barrier() == OK
        files.power_on()
        store = booted(files)
        check_after(store)


def check_after(store: FlashStore) -> None:
    assert walk(store.next)[:-1] == image()["log"] and fact(store, NEW)[1] == STATE_DELIVERED
    assert bytes(store.saved[: store.saved_size]).hex() == image()["saved"]


@pytest.mark.parametrize("code", [E_CAPACITY, E_STORAGE])
def test_a_flash_that_refuses_is_left_as_it_was(code: int) -> None:
    for step in range(steps()):
        files = flashed()
        left = [step + 1]

        def refusal(left: list[int] = left) -> int:
            left[0] -= 1
            return OK if left[0] else code

        files.refusal = refusal
        store = FlashStore(files, **image()["options"])
        if store.open() >= 0:
            check(store)
        files.refusal = None
        files.power_on()
        check(booted(files))


@pytest.mark.parametrize("version", [1, 2])
def test_versions_before_that_are_taken_over_too(version: int) -> None:
    files = flashed()
    for name in files.names():
        if name.endswith(".LOG"):
            data = files.content(name)
            data[3] = data[3] & 0xC0 | version
            data[12:16] = zlib.crc32(data[:12]).to_bytes(4, "little")
    check(booted(files))
