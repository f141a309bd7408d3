"""The remote log: upload and forget, feeds read elsewhere, a wiped device recovered from them."""

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet.base.errors import CapacityError, PeerError, StorageError
from drupelet.base.limits import BODY_SIZE_MAX
from drupelet_host.remote.content_store import (
    CONTENT_SIZE_MAX,
    FolderStore,
    RemoteStore,
    SqliteRemoteStore,
    address_of,
)
from drupelet_host.remote.log import (
    POLL_MS_MAX,
    POLL_MS_MIN,
    LogReader,
    Poll,
)
from drupelet_host.remote.log_bytes import (
    PAGE_PAIRS_MAX,
    FeedKeys,
    Message,
    Page,
    Pair,
    decode_message,
    decode_page,
)
from helpers_remote import KEYS, Device, upload
from opened import opened


def folder(path: Path) -> FolderStore:
    (path / "stick").mkdir(exist_ok=True)
    return FolderStore(path / "stick")


def sqlite(path: Path) -> RemoteStore:
    return SqliteRemoteStore(opened(sqlite3.connect(path / "agent.db", isolation_level=None)))


@pytest.fixture(params=[folder, sqlite])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteStore:
    made: RemoteStore = request.param(tmp_path)
    return made


def test_a_wiped_device_gets_every_message_back_in_order(store: RemoteStore) -> None:
    rng = random.Random(1)
    ann = Device()
    for number in range(150):
        size = rng.choice((0, 5, 100, 900, 5000)) if number else BODY_SIZE_MAX - 1
        ann.put(rng.randbytes(size), 1_700_000_000_000 + number)
    before = ann.log()
    assert upload(ann.writer(store)) == 150
    again = Device()
    assert again.take(LogReader(KEYS, store)) == 150
    assert again.log() == before
    again.author.recover()
    last = again.node.store
    again.put(b"goes on")
    assert again.log()[-1][2].startswith(b"\x01" + before[-1][0])
    # Its own feed goes on where it was.
    writer = again.writer(store)
    assert upload(writer) == 1 and writer.count == 151
    assert last.load(1) == 0 and last.source == 0


def test_uploading_is_no_acknowledgement_of_a_member(store: RemoteStore) -> None:
    ann = Device()
    handles = [ann.put(b"%d" % number) for number in range(5)]
    writer = ann.writer(store)
    assert not writer.is_stored(handles[0])
    assert upload(writer) == 5
    assert all(writer.is_stored(handle) for handle in handles)
    assert ann.node.outstanding(ann.peer) == 5  # the member is sent to as before
    assert ann.link().poll_into(bytearray(1024), 1000) > 0
    late = ann.put(b"later")
    assert not writer.is_stored(late)
    assert upload(writer) == 1 and writer.is_stored(late)


def test_a_member_reads_a_feed_and_acknowledges_to_its_writer(store: RemoteStore) -> None:
    ann, ben = Device(), Device()
    reader, link = LogReader(KEYS, store), ben.link()
    writer = ann.writer(store)
    assert ben.take(reader, link) == 0
    for turn in range(60):
        ann.put(b"%d" % turn)
        upload(writer)
        if turn % 7 == 0:
            ben.take(reader, link)
    ben.take(reader, link)
    assert ben.log() == ann.log()
    assert (reader.lost, reader.refused, reader.taken) == (0, 0, 60)
    # ben holds them now and says so to ann itself: only that ends ann's sending.
    frame, back = bytearray(1024), ann.link()
    for epoch in range(1, 20):
        while size := link.poll_into(frame, epoch * 1000):
            back.receive(frame, size, epoch * 1000)
    assert ann.node.outstanding(ann.peer) == 0
    assert ben.node.outstanding(ben.peer) == 0  # what it wrote itself is not sent back


def test_taking_in_is_bounded_and_goes_on(store: RemoteStore) -> None:
    ann, ben = Device(), Device()
    for number in range(50):
        ann.put(b"%d" % number)
    upload(ann.writer(store))
    reader = LogReader(KEYS, store)
    counts = [ben.take(reader, at_once=20) for _ in range(4)]
    assert counts == [20, 20, 10, 0] and ben.log() == ann.log()


def test_pages_are_filled_and_replaced_ones_dropped(tmp_path: Path) -> None:
    ann, place = Device(), folder(tmp_path)
    writer = ann.writer(place)
    for number in range(PAGE_PAIRS_MAX * 2 + 3):
        ann.put(b"%d" % number)
        writer.turn(0)
    assert len(list(tmp_path.rglob("*.BLK"))) == 3
    assert ann.writer(place).turn(0) == 0  # a new start finds its place


def test_a_page_that_is_lost_costs_only_what_it_held(tmp_path: Path) -> None:
    ann, ben, place = Device(), Device(), folder(tmp_path)
    for number in range(PAGE_PAIRS_MAX * 3):
        ann.put(b"%d" % number)
    writer = ann.writer(place)
    writer.turn(0)
    read: list[bytes] = []
    get = place.get
    place.get = lambda address: read.append(address) or get(address)  # type: ignore[method-assign]
    next(LogReader(KEYS, place).news())
    place.drop(read[-1])
    reader = LogReader(KEYS, place)
    ben.take(reader, ben.link())
    assert reader.lost == 1 and ben.node.delivered == 0
    assert ben.node.pending_count() == PAGE_PAIRS_MAX * 2  # they wait for what members hold


def test_a_lost_head_is_written_again(tmp_path: Path) -> None:
    ann, ben, place = Device(), Device(), folder(tmp_path)
    ann.put(b"one")
    upload(ann.writer(place))
    for path in tmp_path.rglob("*.BLK"):
        path.write_bytes(b"damaged")
    reader = LogReader(KEYS, place)
    assert ben.take(reader) == 0 and reader.lost == 1 and reader.taken == 0
    assert upload(ann.writer(place)) == 1
    assert ben.take(reader) == 1


def test_nobody_without_the_root_reads_or_writes_a_feed(tmp_path: Path) -> None:
    ann, ben, place = Device(), Device(), folder(tmp_path)
    ann.put(b"secret words")
    writer = ann.writer(place)
    upload(writer)
    old = place.fetch(KEYS.name)
    assert old is not None
    for path in tmp_path.rglob("*.*"):
        assert b"secret" not in path.read_bytes()
    reader = LogReader(KEYS, place)
    assert ben.take(reader) == 1
    ann.put(b"more")
    upload(writer)
    newer = place.fetch(KEYS.name)
    assert newer is not None and not place.update(KEYS.name, old)  # a store keeps the newest
    ben.take(reader)
    pointer = next(tmp_path.rglob("*.PTR"))
    for content in (old, b"\xff" * 8 + newer[8:], FeedKeys(bytes(32)).seal_pointer(
        KEYS.open_pointer(newer)
    )):  # fmt: skip
        pointer.write_bytes(content)
        assert ben.take(reader) == 0
    assert reader.refused == 3 and ben.log() == ann.log()


def test_what_is_deleted_or_private_is_not_uploaded(tmp_path: Path) -> None:
    ann, ben, place = Device(), Device(), folder(tmp_path)
    gone = ann.put(b"gone")
    ann.put(b"stays")
    ann.node.delete(gone)
    assert upload(ann.writer(place)) == 1
    ben.take(LogReader(KEYS, place), ben.link())
    assert ben.node.pending_count() == 1


def test_after_a_loss_nothing_is_uploaded_before_it_is_recovered(store: RemoteStore) -> None:
    ann = Device()
    for number in range(20):
        ann.put(b"%d" % number)
    upload(ann.writer(store))
    again = Device()
    again.put(b"written before it noticed")
    writer = again.writer(store)
    assert writer.turn(0) == 0 and writer.must_recover
    assert again.take(LogReader(KEYS, store)) == 20
    assert upload(writer) == 1 and writer.count == 21
    ben = Device()
    assert ben.take(LogReader(KEYS, store)) == 21


def test_an_absent_store_is_said_in_one_line(tmp_path: Path) -> None:
    ann, place = Device(), FolderStore(tmp_path / "stick")
    ann.put(b"x")
    writer = ann.writer(place)
    for _ in range(2):
        with pytest.raises(StorageError, match="plug the stick in"):
            writer.turn(0)
    place.path.mkdir()
    assert upload(writer) == 1


def test_a_store_is_bounded(store: RemoteStore) -> None:
    for bad in (b"", bytes(CONTENT_SIZE_MAX + 1)):
        with pytest.raises(CapacityError):
            store.add(bad)
    with pytest.raises(CapacityError):
        store.update(bytes(33), bytes(20))
    with pytest.raises(CapacityError):
        store.update(b"name", bytes(300))
    small = SqliteRemoteStore(opened(sqlite3.connect(":memory:")), 2, 1)
    first = small.add(b"one")
    assert small.add(b"one") == first == address_of(b"one") and first[:2] == b"\x12\x20"
    small.add(b"two")
    with pytest.raises(CapacityError):
        small.add(b"three")
    small.drop(first)
    small.add(b"three")
    small.update(b"a", bytes(9))
    with pytest.raises(CapacityError):
        small.update(b"b", bytes(9))


def test_what_is_damaged_on_a_stick_counts_as_absent(tmp_path: Path) -> None:
    place = FolderStore(tmp_path)
    address = place.add(b"content")
    [path] = tmp_path.rglob("*.BLK")
    for damage in (b"contenT", b"", bytes(CONTENT_SIZE_MAX + 2)):
        path.write_bytes(damage)
        assert place.get(address) is None
    assert place.damaged == 3
    assert place.add(b"content") == address and place.get(address) == b"content"


def test_protobufs_as_the_specification_has_them() -> None:
    page = Page([Pair(b"i" * 32, data=b"d")], b"\x12\x20" + b"t" * 32)
    assert page.encode() == (
        b"\x0a\x25\x12\x20" + b"i" * 32 + b"\x1a\x01d" + b"\x12\x22\x12\x20" + b"t" * 32
    )
    message = Message(b"g" * 32, 300, b"body")
    assert message.encode() == b"\x0a\x20" + b"g" * 32 + b"\x10\xac\x02\x1a\x04body"
    assert decode_page(page.encode()) == page and decode_message(message.encode()) == message


def test_fuzz_is_read_or_refused() -> None:
    rng = random.Random(1)
    good = Page([Pair(rng.randbytes(32), data=b"x")] * 3, address_of(b"t")).encode()
    read = 0
    for turn in range(20_000):
        content = bytearray(good if turn % 2 else rng.randbytes(rng.randrange(60)))
        for _ in range(rng.randrange(3)):
            if content:
                content[rng.randrange(len(content))] = rng.randrange(256)
        for decode in (decode_page, decode_message):
            try:
                decode(bytes(content))
                read += 1
            except PeerError:
                continue
    assert 0 < read < 20_000


def test_polling_adapts_to_how_often_a_feed_grows() -> None:
    poll = Poll(0)
    assert poll.wait_ms(0) == 0
    poll.looked(True, 600, 0)
    assert poll.wait_ms(0) == 300_000 and poll.wait_ms(300_000) == 0
    waits = []
    now_ms = 300_000
    for _ in range(20):
        poll.looked(False, 600, now_ms)
        waits.append(poll.wait_ms(now_ms))
        now_ms += waits[-1]
    assert waits == sorted(waits) and waits[0] == 450_000 and waits[-1] == POLL_MS_MAX
    poll.looked(True, 1, now_ms)
    assert poll.wait_ms(now_ms) == POLL_MS_MIN


def test_a_writer_tells_how_often_it_writes(tmp_path: Path) -> None:
    ann, place = Device(), folder(tmp_path)
    writer = ann.writer(place)
    for turn in range(12):
        ann.put(b"%d" % turn)
        writer.turn(turn * 900_000)
    reader = LogReader(KEYS, place)
    list(reader.news())
    assert reader.period_s == 900


class Raced(FolderStore):
    """A store whose writer moves the feed on after each of the first looks at its pointer."""

    def __init__(self, path: Path, move: Callable[[], object], moves: int) -> None:
        super().__init__(path)
        self.move = move
        self.moves = moves

    def fetch(self, name: bytes) -> bytes | None:
        content = super().fetch(name)
        if self.moves:
            self.moves -= 1
            self.move()
        return content


def test_a_feed_that_moves_while_it_is_read_is_looked_at_again_at_once(tmp_path: Path) -> None:
    ann, ben, place = Device(), Device(), folder(tmp_path)
    writer = ann.writer(place)

    def grow() -> None:
        ann.put(b"more")
        upload(writer)

    grow()
    reader = LogReader(KEYS, Raced(place.path, grow, 1))
    assert ben.take(reader) == 2 and reader.lost == 0
    # A page that was found, and is replaced before it is read.
    reader = LogReader(KEYS, place)
    assert next(reader.news())
    grow()
    assert len(list(reader.news())) == 3 and reader.taken == 3


def test_two_writers_of_one_feed_do_not_pass_over_a_message(tmp_path: Path) -> None:
    ann, twin, place = Device(), Device(), folder(tmp_path)
    other = twin.writer(place)
    twin.put(b"of a copy")
    raced = Raced(place.path, lambda: upload(other), 1)
    ann.put(b"ours")
    writer = ann.writer(raced)
    # The copy wrote between our look and our update: its message is taken in first.
    assert writer.turn(0) == 0 and writer.must_recover
    assert ann.take(LogReader(KEYS, place)) == 1
    assert upload(writer) == 1 and writer.count == 2


def test_an_update_that_is_refused_is_told_and_not_taken_for_done(tmp_path: Path) -> None:
    ann, place = Device(), FolderStore(tmp_path)
    place.update = lambda *_: False  # type: ignore[method-assign]
    ann.put(b"never through")
    with pytest.raises(StorageError, match="another device"):
        ann.writer(place).turn(0)


def test_what_is_lost_of_the_own_feed_does_not_end_it(tmp_path: Path) -> None:
    ann, place = Device(), folder(tmp_path)
    ann.put(b"short")
    upload(ann.writer(place))
    before = set(tmp_path.rglob("*.BLK"))
    ann.put(b"long" * 1000)
    upload(ann.writer(place))
    contents = set(tmp_path.rglob("*.BLK")) - before
    max(contents, key=lambda path: path.stat().st_size).unlink()  # the long one's own content
    again = Device()
    writer = again.writer(place)
    assert writer.turn(0) == 0 and writer.must_recover
    assert again.take(LogReader(KEYS, place)) == 1
    assert writer.turn(0) == 0 and writer.must_recover
    writer.go_on()
    again.put(b"after it")
    assert upload(writer) == 1 and writer.count == 3
    ben = Device()
    assert ben.take(LogReader(KEYS, place)) == 2


def test_a_writer_that_stays_measures_its_period(tmp_path: Path) -> None:
    ann, place = Device(), folder(tmp_path)
    writer, reader = ann.writer(place), LogReader(KEYS, folder(tmp_path))
    for turn in range(20):
        ann.put(b"%d" % turn)
        writer.look_again()
        assert writer.turn(turn * 600_000) == 1
    Device().take(reader)
    assert reader.period_s == 600


def test_another_stick_gets_the_whole_log(tmp_path: Path) -> None:
    ann = Device()
    place = FolderStore(tmp_path / "stick")
    place.path.mkdir()
    writer = ann.writer(place)
    for number in range(40):
        ann.put(b"%d" % number)
    assert upload(writer) == 40
    place.path.rename(tmp_path / "first")
    place.path.mkdir()
    ann.put(b"one more")
    writer.look_again()
    assert upload(writer) == 41
    ben = Device()
    assert ben.take(LogReader(KEYS, place)) == 41
