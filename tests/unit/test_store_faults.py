"""What a store makes of flash that is full, refuses or rots, of a full heap; and what it wears."""

import random
import zlib
from collections.abc import Callable

import pytest

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import GONE_HANDLE, KEPT_MAX, MEMBERS_MAX, PART_FLUSH_SIZE
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_GONE,
    STATE_PENDING,
    STATE_PRIVATE,
)
from repeats import strides
from unit.cut_files import CutFiles
from unit.numbered_messages import SETTLED, body_of, log_of, message_id, put, reboot, store_id
from unit.power_cuts import check, go_on, play, recorded

SHORT = [
    "publish", "receive", "again", "delete", "bury", "private", "long_bodies", "descriptors",
    "leave", "remove_peer", "meta_log",
]  # fmt: skip
SECTOR_SIZE = 512
SALT = 0xC0FFEE11


# --- a flash that refuses, a heap that is full ---


def full_from(step: int) -> Callable[[int], int]:
    return lambda at: E_CAPACITY if at >= step else OK


def full_once(step: int) -> Callable[[int], int]:
    return lambda at: E_CAPACITY if at == step else OK


def failing_once(step: int) -> Callable[[int], int]:
    return lambda at: E_STORAGE if at == step else OK


def no_memory_once(step: int) -> Callable[[int], int]:
    def refusal(at: int) -> int:
        if at == step:
            raise MemoryError
        return OK

    return refusal


@pytest.mark.parametrize("refusals", [full_from, full_once, failing_once, no_memory_once])
@pytest.mark.parametrize("scenario", SHORT)
@pytest.mark.parametrize("stride", strides(2))
def test_a_refusal_at_every_step(
    scenario: str, refusals: Callable[[int], Callable], stride: int
) -> None:
    """It goes on at once, and after a reboot: nothing that it had is lost, and there is room."""
    for step in range(0, len(recorded(scenario)), stride):
        run = play(scenario, refusals(step))
        check(run, run.store, run.files)
        go_on(run, run.store, run.files)


class Silent(RamFiles):
    """Does not say how long one file is."""

    silent = ""

    def size(self, name: str) -> int:
        return E_STORAGE if name == self.silent else RamFiles.size(self, name)


def test_a_segment_of_unknown_length_is_not_taken_for_empty() -> None:
    """Else it would be the first to make room."""
    files = Silent()
    store = FlashStore(files, segment_size=1024)
    assert store.open() == 0
    handles = [put(store, number) for number in range(20)]
    assert store.barrier() == OK and min(handles) > 0
    for name in files.names():
        if name.endswith(".LOG"):
            files.silent = name
            assert FlashStore(files, segment_size=1024).open() == E_STORAGE
    files.silent = ""
    assert log_of(reboot(files, segment_size=1024)) == handles


class Lying(RamFiles):
    """The append number `lie` reaches the flash, and is reported as failed."""

    lie = -1

    def append(self, fd: int, buf: bytes | bytearray | memoryview, at: int, size: int) -> int:
        code = RamFiles.append(self, fd, buf, at, size)
        self.lie -= 1
        return code if self.lie else E_STORAGE


@pytest.mark.parametrize("again", [1, 3])
def test_a_record_whose_append_is_said_to_have_failed_comes_once(again: int) -> None:
    """However often it is tried, and whichever of the segments makes room first."""
    files = Lying()
    store = reboot(files, **SMALL)
    stays = put(store, 1, group=2)  # nobody comes for it
    for number in range(again):
        assert put(store, 50 + number, group=1) // 1024 == number + 1
        files.lie = 3  # heads of the record and of the message, body, CRC
        assert put(store, 2, group=1) == E_STORAGE and files.lie == 0
    entered = put(store, 2, group=1)
    assert entered // 1024 == again + 1
    for number in range(100, 300):
        store.settled[1] = SETTLED
        store.settled[2] = SETTLED if number >= 200 else 0
        assert put(store, number, group=1) > 0
        if number % 7 == 0:
            assert store.barrier() == OK
            store = reboot(files, **SMALL)
            log = log_of(store)
            ids = [store_id(store, handle) for handle in log]
            assert len(ids) == len(set(ids)) and (log[0] == stays or number >= 200)
            assert store.find(message_id(2), 0) == entered or number >= 200
    assert store.find(message_id(2), 0) >= GONE_HANDLE, "its segment went"


# --- damage ---


def damaged_copy(files: RamFiles, name: str, at: int, junk: bytes) -> FlashStore:
    """The store over a copy of the flash with `junk` in one place, opened."""
    copied = RamFiles()
    for other in files.names():
        copied.hold(other, files.content(other))
    copied.content(name)[at : at + len(junk)] = junk
    store = FlashStore(copied, salt=SALT)
    assert store.open() >= 0
    return store


def filled(count: int = 80) -> tuple[RamFiles, FlashStore, dict[int, tuple[int, int]]]:
    """A log of several segments, and where the record of each message is: its place and end."""
    files = RamFiles()
    store = FlashStore(files, salt=SALT)
    assert store.open() == 0
    assert store.member(1, message_id(1000), 0, 32) == 1
    assert store.member(2, b"peer", 0, 4) == 1
    places = {}
    for number in range(count):
        size = (60, 0, 400, 3)[number % 4]
        handle = put(store, number, size)
        places[number] = (handle, handle + 56 + size)
        if number % 7 == 0:
            assert store.barrier() == OK
    assert store.barrier() == OK and store.save(b"wake", 4) == OK
    assert store.barrier() == OK
    return files, store, places


JUNK = {
    "noise": lambda size: random.Random(size).randbytes(size),
    "zeros": bytes,
    "ones": lambda size: b"\xff" * size,
}


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("size", [SECTOR_SIZE, 4096])
def test_a_bad_sector_costs_what_was_in_it(junk: str, size: int) -> None:
    files, _, places = filled()
    segments = sorted(name for name in files.names() if name.endswith(".LOG"))
    assert len(segments) >= 3
    for name in segments[1 : 2 if size < 4096 else 3]:
        for at in range(0, min(4096, files.size(name)), size):
            end = min(at + size, files.size(name))
            store = damaged_copy(files, name, at, JUNK[junk](end - at))
            base = int(name[1:8]) * 4096
            for number, (place, after) in places.items():
                hit = place < base + end and after > base + at
                found = store.find(message_id(number), 0)
                assert found == (0 if hit else place), (name, at, number)
            assert 1 <= store.damaged <= 2, "the head counts for itself"
            assert log_of(store) == [
                place for place, after in places.values()
                if not (place < base + end and after > base + at)
            ]  # fmt: skip
            # It goes on: members have their numbers, and what is new is kept.
            assert store.member(1, message_id(1000), 0, 32) == 1
            assert store.member(2, b"peer", 0, 4) == 1
            new = put(store, 5000)
            assert new > max(place for place, _ in places.values())
            assert store.barrier() == OK and store.find(message_id(5000), 0) == new


@pytest.mark.parametrize("junk", JUNK)
def test_damage_to_the_meta_log_takes_no_member(junk: str) -> None:
    """What is current is in two segments, but for what came last."""
    files, store, places = filled(20)
    states = [b"wake"]
    while len([name for name in files.names() if name.endswith(".MET")]) < 2:
        states.append(b"%060d" % len(states))
        assert store.save(states[-1], 60) == OK and store.barrier() == OK
    for _ in range(20):
        states.append(b"%060d" % len(states))
        assert store.save(states[-1], 60) == OK and store.barrier() == OK
    for name in ("S0000001.MET", "S0000002.MET"):
        for at in range(0, files.size(name), SECTOR_SIZE):
            size = min(SECTOR_SIZE, files.size(name) - at)
            store = damaged_copy(files, name, at, JUNK[junk](size))
            assert store.member(1, message_id(1000), 0, 32) == 1
            assert store.member(2, b"peer", 0, 4) == 1
            assert bytes(store.saved[: store.saved_size]) in states
            assert name != "S0000001.MET" or store.saved[: store.saved_size] == states[-1]
            assert log_of(store) == [place for place, _ in places.values()]
            assert store.save(b"new", 3) == OK and store.barrier() == OK
            store = FlashStore(store.files, salt=SALT)
            assert store.open() >= 0 and store.saved[: store.saved_size] == b"new"
            assert store.member(2, b"peer", 0, 4) == 1


def test_a_whole_store_of_noise_opens_and_works() -> None:
    files, _, places = filled(40)
    for name in list(files.names()):
        if name.endswith((".LOG", ".MET")):
            files.content(name)[:] = random.Random(name).randbytes(files.size(name))
    files.power_cut()
    store = FlashStore(files, salt=SALT)
    assert store.open() >= 1 and log_of(store) == []
    assert put(store, 1) > max(place for place, _ in places.values())


@pytest.mark.parametrize("flips", [1, 2, 5])
def test_flipped_bits_cost_the_records_that_they_hit(flips: int) -> None:
    files, _, places = filled()
    rng = random.Random(flips)
    segments = sorted(name for name in files.names() if name.endswith(".LOG"))[:-1]
    for _ in range(12):
        name = rng.choice(segments)
        at = [rng.randrange(16, files.size(name)) for _ in range(flips)]
        copied = RamFiles()
        for other in files.names():
            copied.hold(other, files.content(other))
        for place in at:
            copied.content(name)[place] ^= 1 << rng.randrange(8)
        store = FlashStore(copied, salt=SALT)
        assert store.open() >= 1
        base = int(name[1:8]) * 4096
        for number, (place, after) in places.items():
            hit = any(place <= base + one < after for one in at)
            assert store.find(message_id(number), 0) == (0 if hit else place)


def test_a_number_whose_owner_is_lost_is_nobody_elses() -> None:
    files = RamFiles()
    store = FlashStore(files)
    store.open()
    keys = [message_id(1000 + n) for n in range(3)]
    assert [store.member(1, key, 0, 32) for key in keys] == [1, 2, 3]
    put(store, 1, group=3)
    store.barrier()
    put(store, 2, group=1)
    store.barrier()
    files.content("S0000001.MET")[16 + 8 + 2 * 49 + 20] ^= 1
    files.power_cut()
    store = FlashStore(files)
    assert store.open() == 1
    assert store.member(1, message_id(2000), 0, 32) == 4, "not 3: messages carry it"
    assert store.find(message_id(1), 0) and store.group != 4


def forged(salt: int) -> bytes:
    """What a peer may send: a body that is records of our log, messages that nobody ever sent."""
    records = b""
    for number in range(4):
        record = b"\x38\x00\x04\x01" + bytes(16) + message_id(6000 + number)
        crc = zlib.crc32(record) ^ salt
        records += record + crc.to_bytes(4, "little")
    return bytes(40) + records


@pytest.mark.parametrize("salt", [0, SALT])
def test_a_body_is_never_taken_for_our_records(salt: int) -> None:
    """The head of its record is damaged, so the scan runs into it. Who knows the salt could."""
    files = RamFiles()
    store = FlashStore(files, salt=SALT)
    store.open()
    assert store.member(1, message_id(1000), 0, 32) == 1
    first = put(store, 1)
    body = forged(salt)
    hit = store.put(1, 2, message_id(2), 0, bytes(8), 0, body, 0, len(body), STATE_DELIVERED)
    store.barrier()
    last = put(store, 3)
    store.barrier()
    files.content("S0000001.LOG")[hit - 4096] ^= 0x10
    files.power_cut()
    store = FlashStore(files)
    assert store.open() >= 1
    log = log_of(store)
    assert (log[0], log[-1]) == (first, last) and len(log) == (6 if salt else 2)


def test_the_salt_is_in_the_name_of_a_file() -> None:
    files = RamFiles()
    store = FlashStore(files, salt=0xFEDCBA98)
    store.open()
    assert files.names() == ["FEDCBA98.SLT"]
    put(store, 1)
    store.barrier()
    files.power_cut()
    store = FlashStore(files, salt=0x12345678)
    assert store.open() == 0 and store.find(message_id(1), 0)
    assert len(files.names()) == 2
    plain = reboot(RamFiles())
    put(plain, 1)
    assert sorted(plain.files.names()) == ["S0000001.LOG"]


def test_what_was_not_flushed_is_not_there_without_what_came_before() -> None:
    files = RamFiles()
    store = reboot(files)
    sure = put(store, 1)
    store.barrier()
    lost, later = put(store, 2), put(store, 3)
    files.hold("S0000001.LOG", files.content("S0000001.LOG"))
    files.content("S0000001.LOG")[lost - 4096 : lost - 4096 + 64] = bytes(64)
    files.power_cut()
    for damaged in (1, 0):
        store = FlashStore(files)
        assert store.open() == damaged, "then the next segment says where that one ends"
        assert store.find(message_id(3), 0) == 0 and log_of(store)[0] == sure
        assert put(store, 4) > later
        store.barrier()
        assert len(log_of(store)) == 2
        files.power_cut()


# --- quotas, deletions that somebody may not know of ---

SMALL = {"segment_size": 1024, "segments_max": 8}


def test_a_group_that_waits_takes_no_room_from_another() -> None:
    files = RamFiles()
    store = reboot(files, **SMALL)
    store.quotas[2] = 3  # of the six that data may have
    waits = 0
    while put(store, waits, group=2) > 0:
        waits += 1
    assert len(files.names()) == 3
    for number in range(1000, 1100):
        handle = put(store, number, group=1)
        assert handle > 0, "its quota is its own"
        store.settled[1] = handle  # all but the newest
        if number % 5 == 0:
            assert put(store, number + 5000, group=2) == E_CAPACITY
    assert store.erases >= 8
    for _ in range(2):
        assert all(store.find(message_id(n), 0) for n in range(waits)), "nothing unsettled went"
        store.barrier()
        store = reboot(files, **SMALL)
        store.quotas[2] = 3
    assert put(store, 9000, group=2) == E_CAPACITY
    store.settled[2] = SETTLED
    assert put(store, 9000, group=2) > 0


def test_a_group_whose_quota_is_full_can_delete() -> None:
    store = reboot(RamFiles(), **SMALL)
    store.quotas[2] = 2
    handles = []
    while (handle := put(store, len(handles), group=2)) > 0:
        handles.append(handle)
    for handle in handles:
        assert store.entomb(handle, b"", 0) == OK
        assert store.load(handle) == OK and store.state == STATE_DELETED
    assert put(store, 9000, group=2) == E_CAPACITY


@pytest.mark.parametrize("by", ["opened", "unsettled", "nothing"])
def test_what_is_needed_again_makes_no_room(by: str) -> None:
    """Its segment was found to be needed by nobody, when a quota was counted."""
    store = reboot(RamFiles(), **SMALL)
    store.quotas[1] = 6
    first = put(store, 0, state=STATE_PRIVATE)
    store.settled_handle = store.settled[1] = SETTLED
    for number in range(1, 20):
        assert put(store, number) > 0
    assert not store.erases
    store.quotas[1] = 0
    if by == "opened":
        assert store.open_up(first) == OK
        store.settled_handle = store.settled[1] = first
    elif by == "unsettled":
        store.unsettle()
    taken = [put(store, number) for number in range(1000, 1100)]
    if by == "nothing":
        assert min(taken) > 0, "it makes room as long as nobody needs it again"
        return
    assert taken[0] > 0 and taken[-1] == E_CAPACITY
    assert store.find(message_id(0), 0) == first and store.load(first) == OK
    assert store.state == (STATE_DELIVERED if by == "opened" else STATE_PRIVATE)


def test_what_is_about_a_message_does_not_go_before_it() -> None:
    """A segment in the middle goes, but none whose loss would bring something back."""
    files = RamFiles()
    store = reboot(files, **SMALL)
    stays = put(store, 1, group=2)  # nobody comes for it
    deleted = put(store, 2, group=1)
    waiting = put(store, 3, state=STATE_PENDING, group=1)
    for number in range(10, 20):
        put(store, number, group=1)
    assert store.entomb(deleted, b"", 0) == OK
    entered = store.promote(waiting, STATE_DELIVERED)
    store.settled[1] = SETTLED
    for number in range(100, 280):
        assert put(store, number, group=1) > 0
        if number % 10 == 0:
            store.barrier()
            store = reboot(files, **SMALL)
            store.settled[1] = SETTLED
    assert store.load(deleted) == OK and store.state == STATE_DELETED
    assert store.next_pending(0) == 0 and store.find(message_id(3), 0) == entered
    assert store.load(stays) == OK and store.state == STATE_DELIVERED


def test_a_segment_goes_when_its_last_message_is_below_the_mark() -> None:
    store = reboot(RamFiles(), **SMALL)
    handles = []
    while (handle := put(store, len(handles), group=1)) > 0:
        handles.append(handle)
    last = max(handle for handle in handles if handle // 1024 == handles[0] // 1024)
    store.settled[1] = last
    assert put(store, 5000, group=1) == E_CAPACITY and not store.erases
    store.settled[1] = last + 1
    assert put(store, 5000, group=1) > 0 and store.erases == 1


@pytest.mark.parametrize("distance", [1, 7, 8, 9, 12])
def test_what_is_about_a_message_far_back_does_not_go_before_it(distance: int) -> None:
    files = RamFiles()
    options = {"segment_size": 512, "segments_max": 20}
    store = reboot(files, **options)
    put(store, 1, group=2)  # nobody comes for it
    deleted = put(store, 2, group=1)
    number = 10
    while store.log.numbers[store.log.count - 1] < 1 + distance:
        number += put(store, number, group=1) > 0
    assert store.entomb(deleted, b"", 0) == OK
    for _ in range(2):
        store.settled[1] = SETTLED
        for _ in range(200):
            number += put(store, number, group=1) > 0
        assert store.erases > 10
        assert store.load(deleted) == OK and store.state == STATE_DELETED
        store.barrier()
        store = reboot(files, **options)
    assert store.load(deleted) == OK and store.state == STATE_DELETED


@pytest.mark.parametrize("what", ["pending", "kept"])
def test_what_is_written_again_holds_no_segment(what: str) -> None:
    """Not even while its group's settled handle is below it."""
    store = reboot(RamFiles(), **SMALL)
    handle = put(store, 1, state=STATE_PENDING if what == "pending" else 1, group=1)
    store.settled[2] = SETTLED
    if what == "kept":
        number = 10
        while store.log.count == 1:
            number += put(store, number, group=2) > 0
        store.settled[1] = 1024 * store.log.numbers[1]
        assert store.entomb(handle, b"", 0, 0b11) == OK
    first = store.log.numbers[0]
    for number in range(100, 250):
        assert put(store, number, group=2) > 0
    assert store.log.numbers[0] > first + 6
    assert store.find(message_id(1), 0) == handle and store.load(handle) == OK
    assert store.state == (STATE_PENDING if what == "pending" else STATE_DELETED)


def test_a_segments_number_is_not_given_again() -> None:
    """All is settled, and the flash refuses whatever goes into a segment that is begun."""
    files = CutFiles()
    store = reboot(files, salt=SALT, **SMALL)
    group = store.member(1, message_id(999), 0, 32)
    newest, number = put(store, 1, group=group), 2
    while store.log.count < 3 or store.log.fits(300):
        newest = put(store, number, group=group)
        number += 1
    assert store.barrier() == OK
    store.settled_handle = SETTLED
    log = store.log
    append, open_file = files.append, files.open
    names: dict[int, str] = {}  # of the files that are opened from now on

    def noted(name: str, create: bool) -> int:
        fd = open_file(name, create)
        names[fd] = name
        return fd

    def refuse(fd: int, buf: bytes, at: int, size: int) -> int:
        name = names.get(fd, "")
        is_new = name.endswith(".LOG") and int(name[1:8]) > newest // log.segment_size
        return E_CAPACITY if is_new else append(fd, buf, at, size)

    files.append, files.open = refuse, noted  # type: ignore[method-assign]
    for _ in range(5):
        assert put(store, 5000, 300, group=group) == E_CAPACITY
    files.power_on(1 << 20)
    files.append, files.open = append, open_file  # type: ignore[method-assign]
    store = reboot(files, salt=SALT, **SMALL)
    assert store.member(1, message_id(999), 0, 32) == group, "the log was not begun anew"
    assert put(store, number, group=group) > newest


def test_a_number_is_not_given_again_while_departed_ids_have_it() -> None:
    files = RamFiles()
    store = reboot(files, **SMALL)
    groups = [store.member(1, message_id(1000 + row), 0, 32) for row in range(MEMBERS_MAX)]
    assert put(store, 1, group=groups[0]) > 0
    store.settled_handle = SETTLED
    number = 100
    while store.log.numbers[0] == 1:
        number += put(store, number, group=groups[1]) > 0
    assert store.dismiss(1, groups[0]) == OK
    assert store.member(1, message_id(2000), 0, 32) == E_CAPACITY, "its id is kept"
    assert store.dismiss(1, groups[5]) == OK
    assert store.member(1, message_id(2000), 0, 32) == groups[5], "nothing carries this one"


def test_a_deletion_is_kept_until_all_are_known_to_have_the_message() -> None:
    files = RamFiles()
    store = reboot(files, **SMALL)
    store.settled_handle = SETTLED
    edges = b"\1" + message_id(7)
    kept, known = put(store, 1), put(store, 2)
    assert store.entomb(kept, edges, 33, 0b101) == OK and store.entomb(known, edges, 33) == OK
    number = 100
    for missing in (0b101, 0b100):
        for _ in range(70):
            assert put(store, number) > 0
            number += 1
        assert store.load(store.find(message_id(2), 0)) == OK, "it has gone for room"
        assert store.state == STATE_GONE
        for _ in range(2):
            assert store.find(message_id(1), 0) == kept == store.next_kept(0)
            assert store.load(kept) == OK and store.state == STATE_DELETED
            assert (store.missing, store.size, store.edges_size) == (missing, 0, 33)
            back = bytearray(40)
            assert store.read_into(kept, 0, back, 0, 40) == 33 and back[:33] == edges
            store.barrier()
            store = reboot(files, **SMALL)
            store.settled_handle = SETTLED
        assert store.keep(kept, missing & ~1 if missing & 1 else 0) == OK
    assert store.next_kept(0) == 0 and store.keep(kept, 7) == OK
    for _ in range(100):
        assert put(store, number) > 0
        number += 1
    assert store.load(store.find(message_id(1), 0)) == OK and store.state == STATE_GONE


def test_too_many_kept_deletions_are_refused() -> None:
    store = reboot(RamFiles())
    handles = [put(store, number) for number in range(KEPT_MAX + 2)]
    codes = [store.entomb(handle, b"", 0, 1) for handle in handles[: KEPT_MAX + 1]]
    assert codes == [OK] * KEPT_MAX + [E_CAPACITY]
    assert store.load(handles[KEPT_MAX]) == OK and store.state == STATE_DELIVERED
    assert store.entomb(handles[-1], b"", 0) == OK, "one that all have"
    assert store.keep(handles[0], 0) == OK
    assert store.entomb(handles[KEPT_MAX], b"", 0, 1) == OK


def test_the_count_of_what_is_gone_is_exact() -> None:
    files = RamFiles()
    store = reboot(files, **SMALL)
    group = store.member(1, message_id(1000), 0, 32)
    store.settled_handle = SETTLED
    for number in range(150):
        source = number % 3
        assert store.put(
            group, source, message_id(number), 0, bytes(8), 0, body_of(number, 50), 0, 50, 1
        ) > 0  # fmt: skip
        if number % 20 == 0:
            store.barrier()
            store = reboot(files, **SMALL)
            store.settled_handle = SETTLED
        here = 0
        for handle in log_of(store):
            assert store.load(handle) == OK
            here += not store.source
        assert store.dropped(group) + here == number // 3 + 1
    assert store.dropped(group) > 20 and store.dropped(9) == 0
    assert store.member(1, message_id(1000), 0, 32) == group


# --- wear ---


def test_two_programs_a_message_one_a_wake_and_an_erase_for_sixteen() -> None:
    """Trust invariant S13 on the emulated flash, which counts for itself."""
    files = CutFiles()
    store = FlashStore(files, segments_max=8)
    store.open()
    for wake in range(1, 401):
        handle = put(store, wake, 196)  # a record of 256 B
        assert store.barrier() == OK and handle > 0
        assert store.save(bytes(60), 60) == OK and store.barrier() == OK
        store.settled_handle = handle
        assert files.programs <= 3 * wake
        assert files.programs == store.programs
    assert files.erases == store.erases > 10
    # Segments of 4 KiB: 256 B and the wake state of each message, and what is written again.
    assert store.erases <= 400 / 16 * 1.5


def test_a_long_body_costs_a_program_for_each_4_kib() -> None:
    files = CutFiles()
    store = FlashStore(files)
    store.open()
    content = bytes(40) + body_of(1, 32768)
    store.spool.part_open(0, message_id(1), 0, len(content))
    for at in range(0, len(content), 512):
        assert store.spool.part_append(0, content, at, min(512, len(content) - at)) == OK
    assert store.put_part(0, 1, 2, message_id(1), 0, STATE_DELIVERED) > 0
    assert store.barrier() == OK
    assert files.programs <= 32768 // 4096 + 2 and store.programs == files.programs + 0


def test_a_part_of_unknown_length_is_not_taken_for_missing() -> None:
    """Else what is composed next would begin with what is left of it."""
    files = Silent()
    store = reboot(files)
    assert store.spool.part_open(0, b"composed", 0, 0) == OK
    assert store.spool.part_append(0, bytes(PART_FLUSH_SIZE), 0, PART_FLUSH_SIZE) == OK
    again = reboot(files)
    files.silent = "P0.PRT"
    assert again.spool.part_drop(0) == E_STORAGE
    assert again.spool.part_open(0, b"composed", 0, 0) == E_STORAGE
    files.silent = ""
    assert again.spool.part_open(0, b"composed", 0, 0) == PART_FLUSH_SIZE
